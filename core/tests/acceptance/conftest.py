"""The checkpoints, and the judge of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.judge import Judge


@pytest.fixture(scope="module", params=["smollm2_gguf", "gemma3_gguf"])
def checkpoint(request: pytest.FixtureRequest) -> Path:
    """Each of the two real checkpoints."""
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="module")
def judge(checkpoint: Path) -> Judge:
    """transformers, float32."""
    return Judge(checkpoint)
