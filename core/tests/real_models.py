"""Where the real checkpoints are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-q4_k_m.gguf"
MINILM = "all-MiniLM-L6-v2"
VOCABULARIES = "llama.cpp-vocabularies"


def real_model(name: str) -> Path:
    """The checkpoint of that name; fails the test, with the cure, if it is not there."""
    folder = os.environ.get("OCTAVO_TEST_MODELS")
    if folder is None or not (Path(folder) / name).exists():
        pytest.fail(
            f"{name} is not in OCTAVO_TEST_MODELS ({folder or 'unset'}): `make test` fetches it and sets that",
            pytrace=False,
        )
    return Path(folder) / name
