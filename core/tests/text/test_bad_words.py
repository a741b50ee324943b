"""Bad words: which tokens write them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.sampling import SamplingParams
from octavo.text import Tokenizer
from octavo.text.bad_words import tokenise_bad_words


def ids(tokenizer: Tokenizer, *words: str) -> list[list[str]]:
    found = tokenise_bad_words(SamplingParams(bad_words=words), tokenizer).bad_word_ids
    return [[tokenizer.token_text(token) for token in word] for word in found]


def test_a_word_is_bad_with_and_without_a_space(smollm2: Tokenizer) -> None:
    assert ids(smollm2, "Paris") == [["Paris"], [" Paris"]]
    assert ids(smollm2, " Paris") == ids(smollm2, "Paris")


def test_a_word_of_several_tokens_keeps_them_in_order(smollm2: Tokenizer) -> None:
    words = ids(smollm2, "unforgettable")
    assert all(len(word) > 1 for word in words)
    assert {"".join(word) for word in words} <= {"unforgettable", " unforgettable"}


def test_a_cut_that_a_space_makes_longer_does_not_count(smollm2: Tokenizer) -> None:
    """vLLM's rule: as many tokens, and another first one."""
    for word in ("zqx", "!!", "hello", "the", "né"):
        bare = smollm2.encode(word, add_special_tokens=False)
        spaced = smollm2.encode(" " + word, add_special_tokens=False)
        expected = [bare] + ([spaced] if len(spaced) == len(bare) and spaced[0] != bare[0] else [])
        found = tokenise_bad_words(SamplingParams(bad_words=[word]), smollm2).bad_word_ids
        assert [list(word) for word in found] == expected


@pytest.mark.parametrize("bad", [None, [], [(5, 6)], [[7]]])
def test_what_is_ids_already_stays(smollm2: Tokenizer, bad: list[tuple[int, ...]] | None) -> None:
    params = SamplingParams(bad_words=bad)
    assert tokenise_bad_words(params, smollm2) is params


def test_the_rest_of_the_parameters_stays(smollm2: Tokenizer) -> None:
    params = SamplingParams(bad_words=["x"], temperature=0.3, stop=["a"], seed=4, logit_bias={3: 1.0})
    made = tokenise_bad_words(params, smollm2)
    assert replace(made, bad_words=["x"]) == params and made.bad_word_ids
