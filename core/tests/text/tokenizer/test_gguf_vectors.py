"""GGUF vocabularies against llama.cpp: what it publishes with them, and what it was recorded to make of some texts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from real_models import VOCABULARIES, real_model
from text.tokenizer.gguf_files import NORMAL, byte_alphabet
from text.tokenizer.record_llama_cpp import RECORD, digest, summary, texts, vocabulary_for, with_name

from octavo.models.gguf_file import GGUFFile
from octavo.text import Tokenizer, load_tokenizer
from octavo.text.tokenizer.gguf_pretokenizers import PRE_TOKENIZERS

PUBLISHED = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "mpt",
    "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip
"""All that llama.cpp publishes with vectors and whose kind is read here; BERT's is not."""
BETWEEN = "\n__ggml_vocab_test__\n"
RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
ALPHABET_OF_BYTES = frozenset(byte_alphabet())

pytestmark = pytest.mark.real_model


def vocabulary(name: str) -> Path:
    return real_model(VOCABULARIES) / f"ggml-vocab-{name}.gguf"


@cache
def loaded(path: Path) -> Tokenizer:
    return load_tokenizer(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vectors(name: str) -> None:
    path = vocabulary(name)
    tokenizer = loaded(path)
    given = Path(f"{path}.inp").read_text(encoding="utf-8").split(BETWEEN)
    wanted = [[int(token) for token in line.split()] for line in Path(f"{path}.out").read_text().split("\n")]
    assert len(given) >= 46
    for text, ids in zip(given, wanted, strict=False):
        assert tokenizer.encode(text, add_special_tokens=False) == ids, repr(text)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_token_is_the_text_that_it_is_in_llama_cpp(name: str) -> None:
    """But for words that byte-level vocabularies hold in plain text: llama.cpp writes nonsense for Command R's."""
    path = vocabulary(name)
    tokenizer, metadata = loaded(path), GGUFFile(path).metadata
    shown = []
    for token, (text, kind) in enumerate(
        zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    ):
        plain = metadata["tokenizer.ggml.model"] == "gpt2" and kind == NORMAL and not ALPHABET_OF_BYTES.issuperset(text)
        shown.append(b"" if plain else tokenizer.token_bytes(token))
        assert not plain or tokenizer.token_text(token) == text
    recorded = RECORDED["vocabularies"][name]
    assert summary(shown, tokenizer.special_ids, tokenizer.eos_token_ids) == recorded


def renamed(tmp_path: Path, name: str) -> Tokenizer:
    """A vocabulary whose file says that its text is split another way."""
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(with_name((real_model(VOCABULARIES) / vocabulary_for(name)).read_bytes(), name))
    return load_tokenizer(path)


def test_every_name_was_recorded() -> None:
    recorded = [name for way in RECORDED["ways"] for name in way["names"]]
    assert sorted(recorded) == sorted(PRE_TOKENIZERS)


@pytest.mark.parametrize("way", RECORDED["ways"], ids=lambda way: way["names"][0])
def test_each_way_of_splitting_is_llama_cpp_s(way: dict[str, Any], tmp_path: Path) -> None:
    digests = way["digests"]
    for name in {PRE_TOKENIZERS[name]: name for name in way["names"]}.values():
        tokenizer = renamed(tmp_path, name)
        for number, text in enumerate(texts()):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert digest(ids) == digests[8 * number : 8 * number + 8], (name, text, ids)
