"""Fill in the middle: whose tokens are found, and the prompt they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from text.tokenizer.gguf_files import CONTROL, byte_level, sentencepiece, write_gguf

from octavo.text import Tokenizer, load_tokenizer
from octavo.text.tokenizer.fim import FillInMiddle, encode_inside, fim_of_gguf, fim_of_vocabulary


def with_tokens(section: dict[str, Any], *names: str) -> dict[str, Any]:
    """A vocabulary with more control tokens behind it."""
    grown = {**section, "ggml.tokens": [*section["ggml.tokens"], *names]}
    grown["ggml.token_type"] = [*section["ggml.token_type"], *[CONTROL] * len(names)]
    if "ggml.scores" in section:
        grown["ggml.scores"] = [*section["ggml.scores"], *[0.0] * len(names)]
    return grown


def loaded(tmp_path: Path, section: dict[str, Any]) -> Tokenizer:
    return load_tokenizer(write_gguf(tmp_path / "model.gguf", section))


@pytest.mark.parametrize(
    ("names", "suffix_first"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), False),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), False),
        (("<fim-prefix>", "<fim-suffix>", "<fim-middle>"), False),
        (("▁<PRE>", "▁<SUF>", "▁<MID>"), False),
        (("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"), False),
        (("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"), False),
        (("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"), True),
        (("[PREFIX]", "[SUFFIX]"), True),
    ],
)
def test_each_family_is_known_by_the_names_of_its_tokens(names: tuple[str, ...], suffix_first: bool) -> None:
    vocabulary = {name: 10 + at for at, name in enumerate(names)}
    found = fim_of_vocabulary(vocabulary.get)
    assert found == FillInMiddle(10, 11, 12 if len(names) == 3 else None, suffix_first)
    for missing in names:
        assert fim_of_vocabulary({name: at for name, at in vocabulary.items() if name != missing}.get) is None


def test_what_ends_a_gap_is_known_where_the_vocabulary_has_it() -> None:
    names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|file_sep|>", "other"]
    found = fim_of_vocabulary({name: at for at, name in enumerate(names)}.get)
    assert found is not None
    assert found.ends == {3, 4}


@pytest.mark.parametrize(
    ("fim", "prompt"),
    [
        (FillInMiddle(7, 8, 9), [7, 20, 21, 8, 30, 9]),
        (FillInMiddle(7, 8, None), [7, 20, 21, 8, 30]),
        (FillInMiddle(7, 8, None, suffix_first=True), [8, 30, 7, 20, 21]),
        (FillInMiddle(7, 8, 9, suffix_first=True), [8, 30, 7, 20, 21, 9]),
    ],
)
def test_the_prompt_has_the_order_of_the_family_and_one_bos_in_front(fim: FillInMiddle, prompt: list[int]) -> None:
    assert fim.prompt([20, 21], [30], None) == prompt
    assert fim.prompt([20, 21], [30], 1) == prompt
    assert fim.prompt([1, 20, 21], [30], 1) == [1, *prompt]
    assert fim.prompt([], [], 1) == [token for token in prompt if token < 10]


def test_a_gguf_file_finds_them_by_name(tmp_path: Path) -> None:
    section = with_tokens(byte_level(), "<fim_prefix>", "<fim_middle>", "<fim_suffix>")
    count = len(section["ggml.tokens"])
    assert loaded(tmp_path, section).fim == FillInMiddle(count - 3, count - 1, count - 2, ends=frozenset({0}))


@pytest.mark.parametrize(
    "keys", [("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")], ids=["newer", "older"]
)
def test_a_gguf_file_may_name_them_by_id(tmp_path: Path, keys: tuple[str, ...]) -> None:
    section = with_tokens(byte_level(), "<A>", "<B>", "<C>", "<D>")
    first = len(section["ggml.tokens"]) - 4
    assert loaded(tmp_path, section).fim is None
    section.update({f"ggml.{key}_token_id": first + at for at, key in enumerate(keys)})
    assert loaded(tmp_path, section).fim == FillInMiddle(first, first + 1, first + 2)
    section["ggml.fim_pad_token_id"] = first + 3
    assert loaded(tmp_path, section).fim == FillInMiddle(first, first + 1, first + 2, ends=frozenset({first + 3}))


@pytest.mark.parametrize("broken", [{"fim_mid": None}, {"fim_mid": 100}, {"fim_mid": -1}, {"fim_mid": "9"}])
def test_ids_that_are_none_of_the_vocabulary_s_are_not_taken(broken: dict[str, Any]) -> None:
    roles = {"fim_pre": 7, "fim_suf": 8, "fim_mid": 9, **broken}
    assert fim_of_gguf({f"tokenizer.ggml.{role}_token_id": value for role, value in roles.items()}, 100) is None


def test_a_model_without_them_has_none(tmp_path: Path) -> None:
    assert loaded(tmp_path, byte_level()).fim is None


def test_text_inside_another_has_no_space_of_its_own(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, sentencepiece())

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    assert tokenizer.token_names(encode("hello"))[0].startswith("▁")
    assert "".join(tokenizer.token_names(encode_inside(encode, "hello"))) == "hello"
    assert "".join(tokenizer.token_names(encode_inside(encode, " hello"))) == "▁hello"


def test_a_tokenizer_that_joins_line_breaks_is_taken_at_its_word(tmp_path: Path) -> None:
    tokenizer = loaded(tmp_path, byte_level())

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    for text in ("hello", "\nhello", ""):
        assert encode_inside(encode, text) == encode(text)


@pytest.mark.real_model
def test_smollm2_has_none_until_it_is_given_some(smollm2_gguf: Path) -> None:
    plain = load_tokenizer(smollm2_gguf)
    assert plain.fim is None
    plain.hf.add_special_tokens({"additional_special_tokens": ["<fim_prefix>", "<fim_middle>", "<fim_suffix>"]})
    coder = Tokenizer(plain.hf)
    assert coder.fim is not None
    prompt = coder.fim.prompt(coder.encode("def f("), coder.encode("return x"), coder.bos_token_id)
    assert coder.decode(prompt, skip_special_tokens=False) == "<fim_prefix>def f(<fim_suffix>return x<fim_middle>"
    assert coder.encode("<fim_prefix>def f(<fim_suffix>return x<fim_middle>") == prompt
