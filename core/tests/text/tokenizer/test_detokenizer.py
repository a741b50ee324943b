"""The detokenizer on small vocabularies of every kind of decoder, against decoding everything at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.tokenizer.corpus import chunked
from text.tokenizer.gguf_files import byte_level, sentencepiece
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from octavo.text import Detokenizer, Tokenizer
from octavo.text.tokenizer.gguf import gguf_tokenizer
from octavo.text.tokenizer.pieces import Spelling


def from_section(section: dict[str, Any]) -> Tokenizer:
    found = gguf_tokenizer(Path("model.gguf"), {f"tokenizer.{key}": value for key, value in section.items()})
    return Tokenizer(found.hf, found.ends, literals=found.literals)


def with_decoder(decoder: Any, tokens: list[str]) -> Tokenizer:
    backend = Backend(models.WordLevel({token: i for i, token in enumerate(["<s>", *tokens])}, unk_token="<s>"))
    backend.decoder = decoder
    return Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>"))


BYTE_LEVEL = from_section(byte_level())
LLAMA = from_section(sentencepiece())  # strips the space before the text
PLAIN = from_section(sentencepiece(**{"ggml.add_space_prefix": False}))
WORDS = ["▁the", "▁", "cat", "▁sat", ".", "▁▁", "é", "日"]
METASPACE = with_decoder(decoders.Metaspace(), WORDS)
WORDPIECE = with_decoder(decoders.WordPiece(cleanup=False), ["the", "##m", "##s", "cat", "."])
SPACED = with_decoder(None, ["the", "cat"])
ALL = {
    "byte-level": BYTE_LEVEL,
    "llama": LLAMA,
    "plain": PLAIN,
    "metaspace": METASPACE,
    "wordpiece": WORDPIECE,
    "spaced": SPACED,
}


def stream(tokenizer: Tokenizer, prompt: list[int], ids: list[int], sizes: list[int], skip: bool = True) -> str:
    detokenizer = Detokenizer(tokenizer, prompt, skip_special_tokens=skip)
    texts, at = [], 0
    for size in sizes:
        texts.append(detokenizer.push(ids[at : at + size]))
        at += size
    assert at == len(ids)
    return "".join([*texts, detokenizer.finish()])


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    first = 4 if tokenizer is BYTE_LEVEL else 3
    return [first + byte for byte in data]


def test_the_kinds_of_decoder_are_told_apart() -> None:
    kinds = {name: tokenizer.pieces.spelling for name, tokenizer in ALL.items()}
    assert kinds == {
        "byte-level": Spelling.BYTE_LEVEL,
        "llama": Spelling.BYTE_FALLBACK,
        "plain": Spelling.BYTE_FALLBACK,
        "metaspace": Spelling.OTHER,
        "wordpiece": Spelling.OTHER,
        "spaced": Spelling.OTHER,
    }
    assert (LLAMA.pieces.strip, PLAIN.pieces.strip) == (1, 0)


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(data=st.data())
def test_joined_text_is_the_text_of_all_ids_at_once(name: str, data: st.DataObject) -> None:
    tokenizer = ALL[name]
    any_id = st.integers(0, tokenizer.vocab_size + 1)  # two ids that do not exist among them
    if tokenizer.pieces.spelling is not Spelling.OTHER:
        any_id |= st.sampled_from(byte_ids(tokenizer, "é€😀a ".encode()))
    ids = data.draw(st.lists(any_id, max_size=40))
    skip = data.draw(st.booleans())
    assert stream(tokenizer, [], ids, data.draw(chunked(len(ids))), skip) == tokenizer.decode(
        ids, skip_special_tokens=skip
    )


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None)
@given(data=st.data())
def test_output_continues_the_prompt(name: str, data: st.DataObject) -> None:
    tokenizer = ALL[name]
    any_id = st.integers(0, tokenizer.vocab_size + 1)
    prompt = [*data.draw(st.lists(any_id, max_size=12)), tokenizer.vocab_size - 2]  # a token of text to end the prompt
    ids = data.draw(st.lists(any_id, max_size=12))
    skip = data.draw(st.booleans())
    whole = tokenizer.decode(prompt + ids, skip_special_tokens=skip)
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    assert before + stream(tokenizer, prompt, ids, data.draw(chunked(len(ids))), skip) == whole


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
def test_a_character_appears_when_its_last_byte_is_there(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    [letter] = tokenizer.encode("z", add_special_tokens=False)[-1:]
    texts = [detokenizer.push([token_id]) for token_id in [letter, *byte_ids(tokenizer, "😀".encode()), letter]]
    assert texts[:4] == ["z", "", "", ""]
    assert "".join(texts) == "z😀z"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
def test_an_incomplete_character_becomes_a_replacement_only_at_the_end(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, "€".encode()[:2])
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(ids) == ""
    assert detokenizer.finish() == tokenizer.decode(ids)
    assert set(tokenizer.decode(ids)) == {"\ufffd"}
    assert detokenizer.finish() == "", "finishing twice returns nothing twice"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
def test_invalid_bytes_become_replacements_as_soon_as_they_are_surely_invalid(tokenizer: Tokenizer) -> None:
    [letter] = tokenizer.encode("z", add_special_tokens=False)[-1:]
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push([*byte_ids(tokenizer, b"\xe2\x82"), letter]) == (
        tokenizer.decode([letter, *byte_ids(tokenizer, b"\xe2\x82")])[1:] + "z"
    )


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
@pytest.mark.parametrize("split", [1, 2, 3])
def test_a_character_that_the_prompt_begins_is_returned_whole(tokenizer: Tokenizer, split: int) -> None:
    [letter] = tokenizer.encode("z", add_special_tokens=False)[-1:]
    data = byte_ids(tokenizer, "é😀".encode())  # the é is the prompt's, and complete
    prompt, ids = [letter, *data[: 2 + split]], [*data[2 + split :], letter]
    assert stream(tokenizer, prompt, ids, [len(ids)]) == "😀z"


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
def test_special_tokens_inside_a_character_do_not_break_it_when_they_are_skipped(tokenizer: Tokenizer) -> None:
    first, *rest = byte_ids(tokenizer, "😀".encode())
    ids = [first, 2, *rest, tokenizer.vocab_size + 5]
    assert stream(tokenizer, [], ids, [1] * len(ids)) == "😀"
    kept = stream(tokenizer, [], ids, [1] * len(ids), skip=False)
    assert kept == tokenizer.decode(ids, skip_special_tokens=False)
    assert "😀" not in kept


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, LLAMA, PLAIN])
def test_special_tokens_that_are_asked_for_are_visible_among_skipped_ones(tokenizer: Tokenizer) -> None:
    [letter] = tokenizer.encode("z", add_special_tokens=False)[-1:]
    detokenizer = Detokenizer(tokenizer, visible=[2])
    assert detokenizer.push([1, letter, 2, letter, 1]) + detokenizer.finish() == f"z{tokenizer.token_text(2)}z"


def test_a_leading_space_goes_only_where_the_prompt_has_no_text() -> None:
    [hello] = LLAMA.encode("hello", add_special_tokens=False)
    assert LLAMA.token_text(hello) == " hello"
    assert stream(LLAMA, [], [hello, hello], [1, 1]) == "hello hello"
    assert stream(LLAMA, [1], [hello, hello], [1, 1]) == "hello hello", "BOS is no text"
    assert stream(LLAMA, [1, hello], [hello], [1]) == " hello"
    assert stream(LLAMA, [1], [hello], [1], skip=False) == " hello", "BOS is text when it is not skipped"


def test_a_long_run_of_byte_tokens_is_not_held_to_its_end() -> None:
    ids = byte_ids(PLAIN, "😀".encode() * 40)
    detokenizer = Detokenizer(PLAIN)
    held = [len(detokenizer.push([token_id])) for token_id in ids]
    assert sum(held[:63]) == 0
    assert sum(held[:64]) == 16
    assert sum(held) == 40
    assert stream(PLAIN, [], ids, [len(ids)]) == PLAIN.decode(ids)


def test_a_bad_byte_in_a_long_run_costs_only_itself() -> None:
    ids = byte_ids(PLAIN, "😀".encode() * 20 + b"\xff" + "é".encode())
    assert stream(PLAIN, [], ids, [1] * len(ids)) == "😀" * 20 + "\ufffd" + "é"


def test_a_long_run_that_ends_incomplete_is_replaced_there() -> None:
    [letter] = PLAIN.encode("z", add_special_tokens=False)
    ids = [*byte_ids(PLAIN, "é".encode() * 40 + b"\xe2"), letter, *byte_ids(PLAIN, "é".encode())]
    assert stream(PLAIN, [], ids, [1] * len(ids)) == "é" * 40 + "\ufffdz" + "é"


class Counting(Tokenizer):
    """Records how many ids each call of `decode` gets."""

    def decode(self, ids: Any, *, skip_special_tokens: bool = True) -> str:
        self.sizes.append(len(ids))
        return super().decode(ids, skip_special_tokens=skip_special_tokens)

    sizes: list[int]


@pytest.mark.parametrize("name", ALL)
def test_no_step_decodes_more_than_a_window(name: str) -> None:
    tokenizer = Counting(ALL[name].hf)
    tokenizer.sizes = []
    ids = list(range(1, min(tokenizer.vocab_size, 300))) * 4
    detokenizer = Detokenizer(tokenizer, ids)
    for token_id in ids:
        detokenizer.push([token_id])
    assert max(tokenizer.sizes, default=0) <= 16


@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_bytes_are_read_as_python_reads_utf_8(data: bytes) -> None:
    assert stream(BYTE_LEVEL, [], byte_ids(BYTE_LEVEL, data), [1] * len(data)) == data.decode(errors="replace")


@pytest.mark.parametrize("spread", range(2, 9))
def test_a_decoder_of_another_kind_waits_for_a_character_over_several_tokens(spread: int) -> None:
    """Byte tokens behind a decoder that is none of the known kinds. Tokens without text in between make it longer."""
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip("_", 0, 1)])
    tokenizer = with_decoder(decoder, names)
    assert tokenizer.pieces.spelling is Spelling.OTHER
    absent = len(names) + 1
    for character in ("é", "日", "😀"):
        first, *rest = [1 + byte for byte in character.encode()]
        if spread < 1 + len(rest):
            continue
        ids = [first, *[absent] * (spread - 1 - len(rest)), *rest]
        detokenizer = Detokenizer(tokenizer, [1 + ord("a")])
        assert [detokenizer.push([token]) for token in ids] == [""] * (spread - 1) + [character]
        assert detokenizer.push([1 + ord("b")]) + detokenizer.finish() == "b"
