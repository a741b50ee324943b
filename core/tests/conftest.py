"""The real checkpoints, for every test that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_models import GEMMA3, MINILM, SMOLLM2, real_model


@pytest.fixture(scope="session", autouse=True)
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no server that one starts, touches what the user keeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: Llama family, byte-level BPE."""
    return real_model(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M, Q4_K_M: sliding windows, SentencePiece kind of tokenizer."""
    return real_model(GEMMA3)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The same model as bf16 safetensors."""
    return real_model("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3_folder() -> Path:
    """The same model as bf16 safetensors."""
    return real_model("gemma3-270m")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2: a BERT that makes embeddings, float32 safetensors."""
    return real_model(MINILM)
