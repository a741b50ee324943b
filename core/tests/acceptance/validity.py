"""Do outputs have the form that was asked for? `jsonschema` is the judge.

As a script: every schema, some seeds, on a real model; and walks through the masks with no model, which go where a
model hardly would. `test_structured.py` runs a part.

    python core/tests/acceptance/validity.py MODEL --schemas 300 --seeds 3 --walks 10
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from acceptance.schemas import BY_HAND, Schema, generated

from octavo import LLM, SamplingParams
from octavo.runner.masks import allowed_tokens, word_count
from octavo.structured_output import StructuredOutput
from octavo.text import Tokenizer, load_tokenizer
from octavo.text.grammar.grammars import Grammars

MAX_TOKENS = 300


def schemas(count: int) -> list[Schema]:
    """Those by hand first."""
    return [*BY_HAND, *generated(max(0, count - len(BY_HAND)))][:count]


def complaint(schema: Schema, text: str) -> str | None:
    """What the judge says against a text."""
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{text!r} of {json.dumps(schema, ensure_ascii=False)}: {str(error).splitlines()[0]}"
    return None


def generate(llm: LLM, asked: Sequence[Schema], seeds: int) -> tuple[Counter[str], list[str]]:
    """Outputs at temperature 1. Returns how many ended how, and complaints about those that were not cut."""
    work = [(schema, seed) for schema in asked for seed in range(seeds)]
    prompts = [f"Write one JSON value that fits this schema.\n{json.dumps(schema)}\nJSON: " for schema, _ in work]
    params = [
        SamplingParams(structured=StructuredOutput(json=schema), seed=seed, max_tokens=MAX_TOKENS, temperature=1.0)
        for schema, seed in work
    ]
    ends: Counter[str] = Counter()
    complaints = []
    for (schema, _), output in zip(work, llm.generate(prompts, params, use_tqdm=False), strict=True):
        choice = output.outputs[0]
        ends[str(choice.finish_reason)] += 1
        if choice.finish_reason != "length" and (found := complaint(schema, choice.text)) is not None:
            complaints.append(found)
    return ends, complaints


def walk(tokenizer: Tokenizer, asked: Sequence[Schema], seeds: int) -> tuple[Counter[str], list[str]]:
    """Outputs drawn from the masks alone, where what closes something is as likely as all the rest."""
    vocab, ends = tokenizer.vocab_size, frozenset(tokenizer.eos_token_ids)
    grammars = Grammars(tokenizer, vocab, ends, seconds=60)
    pieces = [tokenizer.token_bytes(token) for token in range(vocab)]
    closing = np.array([piece in (b'"', b"}", b"]", b'"}', b'",') for piece in pieces])
    closing[list(ends)] = True
    blank = np.array([piece.isspace() for piece in pieces])
    words = np.zeros(word_count(vocab), np.uint32)
    outcomes: Counter[str] = Counter()
    complaints = []
    for number, schema in enumerate(asked):
        for seed in range(seeds):
            state, rng = grammars.start(StructuredOutput(json=schema)), np.random.default_rng([number, seed])
            made: list[int] = []
            over = False
            while not over and len(made) < MAX_TOKENS:
                assert state.mask(words) is None, schema
                ids = np.flatnonzero(allowed_tokens(words, vocab))
                weights = np.where(closing[ids], len(ids), np.where(blank[ids], 0.02, 1.0))
                token = int(rng.choice(ids, p=weights / weights.sum()))
                over = state.accept(token)
                made += [token] * (token not in ends)
            outcomes["stop" if over else "length"] += 1
            found = complaint(schema, b"".join(pieces[token] for token in made).decode()) if over else None
            complaints += [found] * (found is not None)
    grammars.close()
    return outcomes, complaints


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--walks", type=int, default=10)
    options = parser.parse_args(arguments)
    asked = schemas(options.schemas)
    runs: list[tuple[str, Any]] = [("walks", lambda: walk(load_tokenizer(options.model), asked, options.walks))]
    if options.seeds:
        llm = LLM(options.model, max_model_len=4096)
        runs.append(("outputs of the model", lambda: generate(llm, asked, options.seeds)))
    wrong = 0
    for name, run in runs:
        begun = time.perf_counter()
        ends, complaints = run()
        told = ", ".join(f"{count} {how}" for how, count in ends.items())
        seconds = time.perf_counter() - begun
        lines = [f"{len(asked)} schemas, {name}: {told}; {len(complaints)} not valid; {seconds:.0f} s", *complaints]
        sys.stdout.write("\n".join(lines) + "\n")
        wrong += len(complaints)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
