"""The forms of a prompt, and what is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.engine.prompts import as_batch, prompt_ids, prompt_text
from octavo.errors import RequestError
from octavo.text import Tokenizer, load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


def test_every_form_of_a_prompt_comes_to_the_same_ids(tokenizer: Tokenizer) -> None:
    text = "Once upon a time"
    ids = tokenizer.encode(text)
    forms: Sequence[Any] = [text, {"prompt": text}, {"prompt_token_ids": ids}, ids, tuple(ids), np.array(ids)]
    assert {prompt_ids(form, tokenizer) for form in forms} == {tuple(ids)}
    assert all(type(token) is int for token in prompt_ids(np.array(ids), tokenizer))
    assert [prompt_text(form) for form in forms[:4]] == [text, text, None, None]


def test_ids_go_before_the_text_that_they_came_from(tokenizer: Tokenizer) -> None:
    both: Mapping[str, Any] = {"prompt": "as it was typed", "prompt_token_ids": [1, 2]}
    assert prompt_ids(both, tokenizer) == (1, 2)
    assert prompt_text(both) == "as it was typed"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "not None"), (5, "not 5"), (b"bytes", "not b'bytes'"),
        ({}, "not None"), ({"prompt": None}, "not None"),
        ({"text": "x"}, "not 'text'"), ({"prompt": "x", "multi_modal_data": {}}, "not 'multi_modal_data'"),
        (["a"], "has 'a' where a token id belongs"), ([1, 2.5], "has 2.5 where"), ([True], "has True where"),
        ({"prompt_token_ids": [None]}, "has None where"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_is_a_request_error_that_shows_it(prompt: Any, message: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        prompt_ids(prompt, tokenizer)
    assert caught.value.param == "prompt"


def test_one_prompt_and_a_list_of_prompts_are_told_apart() -> None:
    assert as_batch("a") == ["a"]
    assert as_batch({"prompt": "a"}) == [{"prompt": "a"}]
    assert as_batch([1, 2]) == [[1, 2]]
    assert as_batch([[1, 2], "a"]) == [[1, 2], "a"]
    assert as_batch([]) == []
    for nothing in (None, 5, b"a"):
        with pytest.raises(RequestError, match="prompts are a prompt or a list of them"):
            as_batch(nothing)  # type: ignore[arg-type]
