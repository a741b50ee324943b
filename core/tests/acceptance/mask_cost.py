"""What structured output costs of a step: run on a quiet machine.

    python core/tests/acceptance/mask_cost.py MODEL

Two parts, each for 1, 8 and 32 rows; the cost is the time that steps spend on making masks and on moving forms on. What
the sampler does with a mask is not in it, but in the difference between a step with a form and one without.

*One form* is JSON that never ends, at temperature 1, with plain strings and with bounded ones; medians of steps.
Bounded strings, and mail addresses, are the dear ones: where they end, or the tokens of a part are few, all tokens must
be looked at. *The schemas* are those of `validity.py`, each row another; sums over all steps in which all rows decode.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from acceptance.schemas import PERSON
from acceptance.validity import schemas

from octavo import LLM, SamplingParams
from octavo.runner import Batch
from octavo.structured_output import StructuredOutput
from octavo.text.grammar.grammars import GrammarState

FORMS = {
    "plain": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "email": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name", "age", "email", "tags"],
        "additionalProperties": False,
    },
    "bounded": PERSON,
}
ROWS = (1, 8, 32)
SKIPPED = 8
"""Steps at first that are not counted: prompts, and what a form does once."""


@dataclass
class Clock:
    """Seconds of every step in which all rows decode, and those within some functions."""

    rows: int
    steps: list[float] = field(default_factory=list)
    inner: list[float] = field(default_factory=list)
    _seconds: float = 0.0
    _decodes: bool = False

    def around(self, owner: type, name: str) -> None:
        """Count what one function takes."""
        function = getattr(owner, name)

        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._seconds += time.perf_counter() - begun

        setattr(owner, name, timed)

    def watch(self, llm: LLM) -> None:
        """Time its steps."""
        core = llm._core
        step, schedule = core.step, core._scheduler.schedule

        def planned() -> Any:
            plan = schedule()
            self._decodes = plan is not None and plan.counts == [1] * self.rows
            return plan

        def timed() -> Any:
            self._seconds, begun = 0.0, time.perf_counter()
            events = step()
            if self._decodes:
                self.steps.append(time.perf_counter() - begun)
                self.inner.append(self._seconds)
            return events

        core._scheduler.schedule = planned  # type: ignore[method-assign]
        core.step = timed  # type: ignore[method-assign]

    def take(self) -> tuple[list[float], list[float]]:
        """Steps and inner seconds since the last call."""
        taken = self.steps[SKIPPED:], self.inner[SKIPPED:]
        self.steps, self.inner = [], []
        return taken


def one_form(llm: LLM, rows: int, tokens: int, clock: Clock) -> None:
    """Steps without a form, with plain strings and with bounded ones."""
    free = 0.0
    for name in (None, *FORMS):
        form = None
        if name is not None:
            form = StructuredOutput(json={"type": "array", "items": FORMS[name], "minItems": 10_000})
        endless = form is None  # the forms have no end
        params = [SamplingParams(structured=form, max_tokens=tokens, ignore_eos=endless, seed=i) for i in range(rows)]
        llm.generate(["A list of people as JSON: "] * rows, params, use_tqdm=False)
        steps, inner = clock.take()
        held = median(steps)
        if name is None:
            free = held
            sys.stdout.write(f"{rows:3} rows, free:    step {held * 1e3:6.2f} ms\n")
        else:
            sys.stdout.write(
                f"{rows:3} rows, {name:7}: step {held * 1e3:6.2f} ms ({held / free - 1:+.1%}), masks "
                f"{mean(inner) * 1e3:.3f} ms: {mean(inner) / held:.1%}\n"
            )


def many_schemas(llm: LLM, rows: int, count: int, clock: Clock) -> None:
    """Rows of different schemas, one coming as another ends."""
    asked: Sequence[Any] = schemas(count)
    prompts = [f"Write one JSON value that fits this schema.\n{json.dumps(schema)}\nJSON: " for schema in asked]
    params = [SamplingParams(structured=StructuredOutput(json=s), seed=i, max_tokens=80) for i, s in enumerate(asked)]
    llm.generate(prompts, params, use_tqdm=False)
    steps, inner = clock.take()
    if not steps:
        sys.stdout.write(f"{rows:3} rows, {count} schemas: no step in which all rows decode; give more (--schemas)\n")
        return
    sys.stdout.write(
        f"{rows:3} rows, {count} schemas: step {mean(steps) * 1e3:6.2f} ms, masks {mean(inner) * 1e3:.3f} ms: "
        f"{sum(inner) / sum(steps):.1%} ({len(steps)} steps)\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--schemas", type=int, default=300)
    options = parser.parse_args(arguments)
    clock = Clock(1)
    functions: tuple[tuple[type, str], ...] = ((Batch, "_mask"), (GrammarState, "accept"))
    for owner, name in functions:
        clock.around(owner, name)
    parts: tuple[Callable[[LLM, int], None], ...] = (
        lambda llm, rows: one_form(llm, rows, options.tokens, clock),
        lambda llm, rows: many_schemas(llm, rows, options.schemas, clock),
    )
    for rows in ROWS:
        clock.rows = rows
        llm = LLM(options.model, max_model_len=1024, max_num_seqs=rows)
        clock.watch(llm)
        for part in parts:
            part(llm, rows)
        llm.close()


if __name__ == "__main__":
    main()
