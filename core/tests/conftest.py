"""The real checkpoints, for every test that needs one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"


def _model(name: str) -> Path:
    folder = os.environ.get("OCTAVO_TEST_MODELS")
    if folder is None or not (Path(folder) / name).exists():
        pytest.fail(
            f"{name} is not in OCTAVO_TEST_MODELS ({folder or 'unset'}): `make test` fetches it and sets that",
            pytrace=False,
        )
    return Path(folder) / name


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: Llama family, byte-level BPE."""
    return _model(SMOLLM2)


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M, Q4_K_M: sliding windows, SentencePiece kind of tokenizer."""
    return _model(GEMMA3)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The same model as bf16 safetensors."""
    return _model("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3_folder() -> Path:
    """The same model as bf16 safetensors."""
    return _model("gemma3-270m")
