"""Ids that the tokenizer does not have are never drawn, whatever the model thinks of them.

The model of these tests thinks much of every id; which of them are no tokens is decided after looking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from engine.tiny_engine import EOS, VOCAB, TinyEngine, engine, prompt

from octavo.sampling import SamplingParams

pytestmark = pytest.mark.usefixtures("platform_name")

TAIL = tuple(range(VOCAB - 30, VOCAB))
GAPS = (5, 6, 17, 40, 41, 42, 77, VOCAB - 1)
LENGTH = 40


def run(absent: Sequence[int], rows: int = 3, **params: Any) -> TinyEngine:
    tiny = engine(absent=absent)
    for row in range(rows):
        asked = SamplingParams(**{"max_tokens": LENGTH, "ignore_eos": True, "seed": row, **params})
        tiny.core.add(f"r{row}", prompt(row + 1, 7 + row), asked)
    tiny.finish()
    return tiny


@pytest.mark.parametrize("absent", [TAIL, GAPS], ids=["tail", "gaps"])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "logprobs": 9},
        {"temperature": 1.0},
        {"temperature": 8.0, "n": 3},
        {"temperature": 8.0, "top_k": 50, "top_p": 0.99},
        {"temperature": 2.0, "logprobs": 0, "prompt_logprobs": 9},
        {"temperature": 0.0, "repetition_penalty": 5.0},
        {"temperature": 0.0, "logit_bias": dict.fromkeys([*TAIL, *GAPS], 100.0)},
        {"temperature": 4.0, "allowed_token_ids": [3, *TAIL, *GAPS, 60]},
        {"temperature": 0.0, "min_tokens": 9, "bad_words": [(3,), (4, 4)]},
    ],
    ids=str,
)
def test_they_are_never_drawn(absent: tuple[int, ...], params: dict[str, Any]) -> None:
    free, held = run((), **params), run(absent, **params)
    choices = range(params.get("n", 1))
    drawn = {t for row in range(3) for i in choices for t in free.tokens(f"r{row}", i)}
    assert drawn & set(absent), "the model would draw them, so this shows something"
    for row in range(3):
        for i in choices:
            tokens = held.tokens(f"r{row}", i)
            assert len(tokens) == LENGTH and not set(tokens) & set(absent)


def test_greedy_takes_the_best_of_the_others() -> None:
    """Step by step what a bias that forbids them gives, and so does a step in which some rows would have drawn them."""
    forbidding = [(token,) for token in GAPS]
    absent, forbidden = run(GAPS, temperature=0.0), run((), temperature=0.0, bad_words=forbidding)
    for row in range(3):
        assert absent.tokens(f"r{row}") == forbidden.tokens(f"r{row}")


@pytest.mark.parametrize("absent", [TAIL, GAPS], ids=["tail", "gaps"])
def test_no_alternative_names_them(absent: tuple[int, ...]) -> None:
    tiny = run(absent, temperature=0.0, logprobs=20, prompt_logprobs=20)
    entries = [e for event in tiny.events for e in (*(event.logprobs or ()), *(event.prompt_logprobs or ()))]
    assert len(entries) > 3 * LENGTH
    for entry in entries:
        assert len(entry.top) == 20 and not {token for token, _ in entry.top} & set(absent)


def test_a_request_that_allows_nothing_else_is_at_fault() -> None:
    tiny = engine(absent=TAIL)
    tiny.core.add("r", prompt(1, 5), SamplingParams(allowed_token_ids=TAIL))
    tiny.core.add("words", prompt(1, 5), SamplingParams(bad_words=[(t,) for t in range(VOCAB - len(TAIL))]))
    tiny.core.add("fine", prompt(1, 5), SamplingParams(allowed_token_ids=[*TAIL, EOS], temperature=0.0))
    tiny.finish()
    for name, param in (("r", "allowed_token_ids"), ("words", "bad_words")):
        ended = tiny.ended(name)
        assert (ended.finish_reason, ended.refused, ended.param) == ("error", True, param)
    assert tiny.tokens("fine") == [EOS]
