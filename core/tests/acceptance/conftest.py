"""The checkpoints, and the judge of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.judge import Judge
from real_models import as_transformers_reads


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def name(request: pytest.FixtureRequest) -> str:
    """Each of the two real checkpoints."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def checkpoint(name: str, request: pytest.FixtureRequest) -> Path:
    """Its GGUF file."""
    path: Path = request.getfixturevalue(f"{name}_gguf")
    return path


@pytest.fixture(scope="module")
def judge(name: str, checkpoint: Path, request: pytest.FixtureRequest) -> Judge:
    """transformers in float32, on weights that it dequantised itself from the same file."""
    return Judge(as_transformers_reads(checkpoint, request.getfixturevalue(f"{name}_folder")))
