"""The detokenizer on the vocabularies of real checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.tokenizer.corpus import CORPUS, TEXTS, chunked
from text.tokenizer.test_detokenizer import stream

from octavo.text import Tokenizer

pytestmark = pytest.mark.real_model


def broken_ids(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are no whole characters by themselves."""
    return [i for i in range(tokenizer.vocab_size) if "\ufffd" in tokenizer.token_text(i)]


@pytest.fixture(scope="session")
def fragments(real: Tokenizer) -> list[int]:
    found = broken_ids(real)
    assert len(found) > 100
    return found


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_any_ids_in_any_chunks_give_the_text_of_all_at_once(
    real: Tokenizer, fragments: list[int], data: st.DataObject
) -> None:
    kinds = st.integers(0, real.vocab_size + 2) | st.sampled_from(fragments) | st.sampled_from(sorted(real.special_ids))
    ids = data.draw(st.lists(kinds, max_size=60))
    prompt = [*data.draw(st.lists(kinds, max_size=5)), *real.encode("a", add_special_tokens=False)]
    skip = data.draw(st.booleans())
    text = stream(real, prompt, ids, data.draw(chunked(len(ids))), skip)
    before = real.decode(prompt, skip_special_tokens=skip)
    assert before + text == real.decode(prompt + ids, skip_special_tokens=skip)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS | st.sampled_from(CORPUS), data=st.data())
def test_any_text_comes_back_as_from_decode(real: Tokenizer, text: str, data: st.DataObject) -> None:
    ids = real.encode(text, add_special_tokens=False)
    streamed = stream(real, [], ids, data.draw(chunked(len(ids))), skip=False)
    assert streamed == real.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    "text",
    [
        "naïve café, Straße",
        "日本語のテキスト、中文文本。",
        "😀😃🤖 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽",
        "e\u0301 n\u0303",
        "አማርኛ བོད་ཡིག 𓀀𓀁",
    ],
)
def test_characters_of_many_tokens_are_never_shown_in_part(real: Tokenizer, text: str) -> None:
    ids = real.encode(text, add_special_tokens=False)
    assert stream(real, [], ids, [1] * len(ids)) == text


def test_token_bytes_join_to_the_bytes_of_the_text(real: Tokenizer) -> None:
    for text in CORPUS:
        ids = real.encode(text, add_special_tokens=False)
        decoded = real.decode(ids, skip_special_tokens=False)
        if "\ufffd" not in decoded:
            assert b"".join(real.token_bytes(i) for i in ids) == decoded.encode()
