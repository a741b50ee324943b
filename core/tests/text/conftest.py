"""Real tokenizers, loaded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.text import Tokenizer, load_tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_gguf: Path) -> Tokenizer:
    """A byte-level tokenizer of 49 152 tokens."""
    return load_tokenizer(smollm2_gguf)


@pytest.fixture(scope="session")
def gemma3(gemma3_gguf: Path) -> Tokenizer:
    """A SentencePiece-kind tokenizer of 262 144 tokens."""
    return load_tokenizer(gemma3_gguf)


@pytest.fixture(scope="session", params=["smollm2", "gemma3"])
def real(request: pytest.FixtureRequest) -> Tokenizer:
    """Each of the two."""
    tokenizer: Tokenizer = request.getfixturevalue(request.param)
    return tokenizer


@pytest.fixture(scope="session")
def judge(real: Tokenizer, request: pytest.FixtureRequest) -> Any:
    """What transformers itself made of the file that `real` was loaded from, kept as a folder: reading it is slow."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(
        request.getfixturevalue("gemma3_folder" if real.vocab_size > 100_000 else "smollm2_folder")
    )
