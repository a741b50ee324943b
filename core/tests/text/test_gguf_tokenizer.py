"""Tokenizers from hand-made GGUF files: each key of the section means what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from text.corpus import CORPUS
from text.gguf_files import CONTROL, NORMAL, byte_level, sentencepiece, write_gguf

from octavo.errors import CheckpointError
from octavo.text import Tokenizer, load_tokenizer
from octavo.text.gguf_byte_level import SCHEMES
from octavo.text.gguf_sentencepiece import merges_from_scores


@pytest.fixture
def load(tmp_path: Path) -> Any:
    def from_section(section: dict[str, Any], architecture: str = "llama") -> Tokenizer:
        return load_tokenizer(write_gguf(tmp_path / "model.gguf", section, architecture))

    return from_section


def by_transformers(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


SECTIONS = [
    *[(byte_level(pre), "llama") for pre in ("default", "gpt-2", "smollm", "qwen2", "qwen35", "deepseek-r1-qwen")],
    *[(byte_level(pre, **{"ggml.add_bos_token": True}), "llama") for pre in ("llama-bpe", "llama3", "tekken")],
    (sentencepiece(), "llama"),
    (sentencepiece(**{"ggml.add_bos_token": True, "ggml.add_eos_token": True}), "llama"),
    (sentencepiece(**{"ggml.scores": None, "ggml.merges": ["h e", "l l", "▁ he", "▁he ll"]}), "llama"),
    (sentencepiece(), "phi3"),
]


@pytest.mark.parametrize(("section", "architecture"), SECTIONS)
def test_a_file_splits_text_like_transformers(tmp_path: Path, section: dict[str, Any], architecture: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", section, architecture)
    tokenizer, judge = load_tokenizer(path), by_transformers(path)
    # transformers leaves this out for Llama 3 and Tekken, whose own tokenizer.json has it.
    judge.backend_tokenizer.model.ignore_merges = SCHEMES[section.get("ggml.pre", "default")].ignore_merges
    for text in [*CORPUS, "hello  hello\n\n123 1234", "The helloThe ABcdEF été €uro"]:
        ids = judge.encode(text)
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == judge.decode(ids, skip_special_tokens=True)
        assert tokenizer.decode(ids, skip_special_tokens=False) == judge.decode(ids)


@pytest.mark.parametrize("pre", [pre for pre in SCHEMES if SCHEMES[pre].pattern])
def test_words_are_cut_as_transformers_cuts_them(load: Any, tmp_path: Path, pre: str) -> None:
    mine = load(byte_level(pre)).hf.backend_tokenizer.pre_tokenizer
    theirs = by_transformers(tmp_path / "model.gguf").backend_tokenizer.pre_tokenizer
    for text in CORPUS:
        assert mine.pre_tokenize_str(text) == theirs.pre_tokenize_str(text)


def test_llama_3_takes_a_word_that_is_a_token_whole(load: Any) -> None:
    section = byte_level("llama-bpe")
    section["ggml.tokens"].append("xyz")  # no merge makes it
    section["ggml.token_type"].append(NORMAL)
    tokenizer = load(section)
    assert tokenizer.encode("xyz", add_special_tokens=False) == [tokenizer.vocab_size - 1]
    section["ggml.pre"] = "qwen2"
    assert len(load(section).encode("xyz", add_special_tokens=False)) == 3


def test_an_unknown_way_to_split_text_is_named_with_the_known_ones(load: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.pre is 'klingon'.*known: .*llama-bpe.*qwen2.*smollm"):
        load(byte_level("klingon"))


def test_an_unknown_kind_of_tokenizer_is_named_with_the_known_ones(load: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.model is 'bert'; supported: gpt2, llama"):
        load(byte_level(**{"ggml.model": "bert"}))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({}, "holds no tokenizer"),
        (byte_level(**{"ggml.merges": None}), "needs tokenizer.ggml.merges"),
        (byte_level(**{"ggml.merges": ["h e", "he x"]}), "'he x', which does not join two tokens"),
        (byte_level(**{"ggml.merges": ["he"]}), "'he', which does not join two tokens"),
        (byte_level(**{"ggml.token_type": [1, 1]}), "token_type has 2 entries for"),
        (byte_level(**{"ggml.bos_token_id": 70_000}), "bos_token_id is 70000, outside the vocabulary of"),
        (byte_level(**{"ggml.eos_token_id": "two"}), "eos_token_id is str 'two'; expected int"),
        (byte_level(**{"ggml.tokens": [1, 2, 3], "ggml.token_type": None}), "tokens holds int; expected strings"),
        (sentencepiece(**{"ggml.scores": None}), "needs tokenizer.ggml.scores"),
        (sentencepiece(**{"ggml.scores": ["a"] * 344}), "ggml.scores"),
    ],
)
def test_a_damaged_section_is_refused_by_name(load: Any, section: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(section)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(CheckpointError, match=r"model\.gguf"):
        load_tokenizer(path)
    with pytest.raises(CheckpointError, match=r"missing\.gguf"):
        load_tokenizer(tmp_path / "missing.gguf")


def test_special_tokens_around_a_text_are_what_the_file_asks_for(load: Any) -> None:
    def around(section: dict[str, Any]) -> list[int]:
        ids: list[int] = load(section).encode("")
        return ids

    assert around(byte_level()) == []
    assert around(byte_level(**{"ggml.add_bos_token": True})) == [1]
    assert around(byte_level(**{"ggml.add_bos_token": True, "ggml.add_eos_token": True})) == [1, 2]
    assert around(byte_level("llama-bpe")) == [1], "Llama 3 begins with BOS unless the file denies it"
    assert around(byte_level("llama-bpe", **{"ggml.add_bos_token": False})) == []
    assert around(sentencepiece()) == [1], "so does SentencePiece"
    assert around(sentencepiece(**{"ggml.add_bos_token": False})) == []
    assert around(sentencepiece(**{"ggml.bos_token_id": None})) == []


def test_the_space_before_a_text_is_what_the_file_asks_for(load: Any) -> None:
    with_space, without = load(sentencepiece()), load(sentencepiece(**{"ggml.add_space_prefix": False}))
    assert with_space.token_text(with_space.encode("hello")[1]) == " hello"
    assert without.token_text(without.encode("hello")[1]) != " hello"
    for text in ("hello", " hello", "  hello", "hello ", " "):
        assert without.decode(without.encode(text)) == text
    assert with_space.decode(with_space.encode("hello ")) == "hello "
    # The Llama kind adds no space to one that is there already, so that a text loses it on the way back.
    assert with_space.decode(with_space.encode(" hello")) == "hello"


def test_no_token_is_added_beyond_the_vocabulary(load: Any) -> None:
    section = byte_level("qwen2", **{"ggml.unknown_token_id": None})
    section["ggml.tokens"][0] = "<|other|>"  # the file has no <|endoftext|>, GPT-2's default for everything
    assert load(section).vocab_size == len(section["ggml.tokens"])


def test_control_tokens_are_matched_whole_and_left_out_of_text(load: Any) -> None:
    tokenizer = load(byte_level("qwen2"))
    ids = tokenizer.encode("<|start|>hello<think><|end|>")
    assert [ids[0], *ids[-2:]] == [1, 3, 2]
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.decode(ids) == "hello<think>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|start|>hello<think><|end|>"


def test_control_tokens_may_use_any_characters(load: Any) -> None:
    section = byte_level("deepseek-r1-qwen")
    section["ggml.tokens"][1] = "<｜begin▁of▁sentence｜>"
    tokenizer = load(section)
    assert tokenizer.encode("<｜begin▁of▁sentence｜>h") == [1, tokenizer.encode("h")[0]]
    assert tokenizer.token_text(1) == "<｜begin▁of▁sentence｜>"
    assert tokenizer.vocab_size == len(section["ggml.tokens"])


def test_a_normal_token_in_plain_text_is_respelled_in_the_alphabet(load: Any) -> None:
    section = byte_level("llama-bpe")
    section["ggml.tokens"].append("日本")
    section["ggml.token_type"].append(NORMAL)
    tokenizer = load(section)
    assert tokenizer.encode("日本", add_special_tokens=False) == [tokenizer.vocab_size - 1]
    assert tokenizer.token_text(tokenizer.vocab_size - 1) == "日本"


def test_end_ids_are_eos_end_of_turn_and_end_of_message(load: Any) -> None:
    assert load(byte_level()).eos_token_ids == {2}
    assert load(byte_level(**{"ggml.eot_token_id": 0, "ggml.eom_token_id": 1})).eos_token_ids == {0, 1, 2}
    assert load(byte_level(**{"ggml.eos_token_id": None})).eos_token_ids == frozenset()


def test_a_turn_end_that_the_template_writes_counts_where_the_file_marks_none(load: Any) -> None:
    section = byte_level(**{"ggml.eos_token_id": 0})  # <|end|> is token 2, <|endoftext|> 0
    assert load(section).eos_token_ids == {0}
    assert load({**section, "chat_template": "{{ messages[0].content }}<|end|>"}).eos_token_ids == {0, 2}
    assert load({**section, "chat_template": "x<|end|>", "ggml.eot_token_id": 1}).eos_token_ids == {0, 1}
    section["ggml.token_type"] = [CONTROL, CONTROL, NORMAL, *section["ggml.token_type"][3:]]
    assert load({**section, "chat_template": "{{ messages[0].content }}<|end|>"}).eos_token_ids == {0}


def test_a_file_may_have_a_template_of_its_own_for_tools(load: Any) -> None:
    tokenizer = load(byte_level(**{"chat_template": "plain", "chat_template.tool_use": "with {{ tools | length }}"}))
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.chat_template == "plain"
    assert tokenizer.render_chat(messages) == "plain"
    assert tokenizer.render_chat(messages, tools=[{"type": "function"}]) == "with 1"


def test_merges_follow_the_scores_and_then_the_longer_left_part() -> None:
    tokens = ["a", "b", "c", "ab", "bc", "abc", "ca"]
    scores = [0.0, 0.0, 0.0, -2.0, -1.0, -3.0, -1.0]
    assert merges_from_scores(tokens, scores, set(tokens)) == [
        ("b", "c"),
        ("c", "a"),
        ("a", "b"),
        ("ab", "c"),
        ("a", "bc"),
    ]
    tied = merges_from_scores(tokens, [0.0] * 7, set(tokens))
    assert tied == [("ab", "c"), ("a", "bc"), ("a", "b"), ("b", "c"), ("c", "a")]
