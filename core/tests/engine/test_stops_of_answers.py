"""What stop strings end: not within ``min_tokens``, and not the reasoning."""

from __future__ import annotations

import pytest

from octavo.engine.outputs import RequestState
from octavo.sampling import ReasoningMarks, SamplingParams
from octavo.scheduler import TokenEvent
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: object) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)  # type: ignore[arg-type]


def run(tokenizer: Tokenizer, text: str, **params: object) -> tuple[str, int, str | None, object]:
    """The text, how many tokens it took, and why it ended; a token at a time, the last by length."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    state = RequestState("r", (1,), SamplingParams(max_tokens=len(ids), **params), tokenizer)  # type: ignore[arg-type]
    shown = ""
    for number, token in enumerate(ids, 1):
        delta = state.update(TokenEvent("r", 0, (token,), finish_reason="length" if number == len(ids) else None))
        assert delta is not None
        (choice,) = delta.outputs
        shown += choice.text
        if choice.finish_reason is not None:
            return shown, number, choice.finish_reason, choice.stop_reason
    raise AssertionError("it has an end")


def test_min_tokens_holds_off_stop_strings(tokenizer: Tokenizer) -> None:
    text = " one two. three four. five"
    ids = tokenizer.encode(text, add_special_tokens=False)
    dots = [number for number, token in enumerate(ids, 1) if "." in tokenizer.token_text(token)]
    assert len(dots) == 2
    assert run(tokenizer, text, stop=["."]) == (" one two", dots[0], "stop", ".")
    assert run(tokenizer, text, stop=["."], min_tokens=dots[0] - 1) == (" one two", dots[0], "stop", ".")
    assert run(tokenizer, text, stop=["."], min_tokens=dots[0]) == (" one two. three four", dots[1], "stop", ".")
    assert run(tokenizer, text, stop=["."], min_tokens=len(ids)) == (text, len(ids), "length", None)


def test_a_stop_string_that_begins_early_counts_when_it_is_complete(tokenizer: Tokenizer) -> None:
    text = " one two three four"
    shown, number, *why = run(tokenizer, text, stop=["two three"], min_tokens=2)
    assert (shown, number, why) == (" one ", 3, ["stop", "two three"])


@pytest.mark.parametrize("inside", [False, True])
def test_stop_strings_act_on_the_answer_alone(tokenizer: Tokenizer, inside: bool) -> None:
    text = "Let me see. Yes.</think>It is so. Good." if inside else "<think>See. Yes.</think>It is so. Good."
    marks = ReasoningMarks("<think>", "</think>", inside=inside)
    before = text[: text.index(". Good")]
    assert run(tokenizer, text, stop=["."], reasoning=marks)[::2] == (before, "stop")
    first = text[: text.index(".")]
    assert run(tokenizer, text, stop=["."], reasoning=marks, stop_in_reasoning=True)[::2] == (first, "stop")
    assert run(tokenizer, text, stop=["."])[::2] == (first, "stop")
