"""GGUF vocabularies against llama.cpp: what it publishes with them, and what it was recorded to make of some texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real_models import VOCABULARIES, real_model
from text.record_llama_cpp import RECORD, digest, texts, with_name

from octavo.text import Tokenizer, load_tokenizer
from octavo.text.gguf_pretokenizers import PRE_TOKENIZERS

PUBLISHED = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2",
    "qwen35", "refact", "starcoder",
)  # fmt: skip
"""All that llama.cpp publishes with vectors and whose kind is read here; BERT's and Gemma 4's are not."""
BETWEEN = "\n__ggml_vocab_test__\n"

pytestmark = pytest.mark.real_model


def vocabulary(name: str) -> Path:
    return real_model(VOCABULARIES) / f"ggml-vocab-{name}.gguf"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_vectors(name: str) -> None:
    path = vocabulary(name)
    tokenizer = load_tokenizer(path)
    given = Path(f"{path}.inp").read_text(encoding="utf-8").split(BETWEEN)
    wanted = [[int(token) for token in line.split()] for line in Path(f"{path}.out").read_text().split("\n")]
    assert len(given) >= 47
    for text, ids in zip(given, wanted, strict=False):
        assert tokenizer.encode(text, add_special_tokens=False) == ids, repr(text)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.fixture(scope="module")
def ways() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(RECORD.read_text())["ways"]
    return found


def renamed(tmp_path: Path, name: str) -> Tokenizer:
    """Llama 3's vocabulary, whose file says that its text is split another way."""
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(with_name(vocabulary("llama-bpe").read_bytes(), name))
    return load_tokenizer(path)


def test_every_name_was_recorded(ways: list[dict[str, Any]]) -> None:
    recorded = [name for way in ways for name in way["names"]]
    assert sorted(recorded) == sorted(PRE_TOKENIZERS)


@pytest.mark.parametrize("at", range(len(json.loads(RECORD.read_text())["ways"])))
def test_each_way_of_splitting_is_llama_cpp_s(ways: list[dict[str, Any]], tmp_path: Path, at: int) -> None:
    digests = ways[at]["digests"]
    for name in {PRE_TOKENIZERS[name]: name for name in ways[at]["names"]}.values():
        tokenizer = renamed(tmp_path, name)
        for number, text in enumerate(texts()):
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert digest(ids) == digests[8 * number : 8 * number + 8], (name, text, ids)
