"""What structured output costs of a step: run on a quiet machine.

    python core/tests/acceptance/mask_cost.py MODEL

For 1, 8 and 32 rows: a decode step without a form and with one (JSON that never ends, temperature 1), medians; and what
of the latter went into masks and into moving the forms on. What the sampler does with a mask is in neither, but in the
difference of the steps. Strings whose length is bounded are the dear ones: near its end all tokens must be looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from acceptance.schemas import PERSON

from octavo import LLM, SamplingParams
from octavo.sampling import StructuredOutput
from octavo.text.grammar import GrammarState

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
SKIPPED = 8
"""Steps at first that are not counted: prompts, and what a form does once."""


@dataclass
class Clock:
    """Seconds within a function, since they were last taken."""

    seconds: float = 0.0
    steps: list[float] = field(default_factory=list)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - begun

        return timed

    def take(self) -> None:
        self.steps.append(self.seconds)
        self.seconds = 0.0


def measure(llm: LLM, form: StructuredOutput | None, rows: int, tokens: int, clock: Clock) -> tuple[float, float]:
    """Median seconds of a step, and of its masks."""
    params = [SamplingParams(structured=form, max_tokens=tokens, ignore_eos=True, seed=i) for i in range(rows)]
    step, times = llm._core.step, []
    clock.steps.clear()

    def timed() -> Any:
        begun = time.perf_counter()
        events = step()
        times.append(time.perf_counter() - begun)
        clock.take()
        return events

    llm._core.step = timed  # type: ignore[method-assign]
    try:
        llm.generate(["A list of people as JSON: "] * rows, params, use_tqdm=False)
    finally:
        llm._core.step = step  # type: ignore[method-assign]
    return median(times[SKIPPED:]), sum(clock.steps[SKIPPED:]) / len(clock.steps[SKIPPED:])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=120)
    options = parser.parse_args(arguments)
    clock = Clock()
    for name in ("mask", "accept"):
        setattr(GrammarState, name, clock.around(getattr(GrammarState, name)))
    llm = LLM(options.model, max_model_len=1024)
    for rows in (1, 8, 32):
        free, _ = measure(llm, None, rows, options.tokens, clock)
        sys.stdout.write(f"{rows:3} rows, free:    step {free * 1e3:7.2f} ms\n")
        for name, schema in FORMS.items():
            form = StructuredOutput(json={"type": "array", "items": schema, "minItems": 10_000})
            held, masks = measure(llm, form, rows, options.tokens, clock)
            sys.stdout.write(
                f"{rows:3} rows, {name:7}: step {held * 1e3:7.2f} ms, of which masks {masks * 1e3:6.3f} ms (mean), "
                f"{masks / held:.1%}\n"
            )
    llm.close()


if __name__ == "__main__":
    main()
