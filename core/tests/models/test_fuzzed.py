"""Whatever a config says, the model is right or the error is one on purpose: a sample of `fuzzed`, run whole by hand."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from models.fuzzed import drive, sources


@pytest.mark.parametrize("seed", [1, int(os.environ.get("OCTAVO_TEST_SEED", "2"))])
def test_a_mutated_description_is_refused_by_name_or_right(
    seed: int, tmp_path: Path, minilm: Path, smollm2_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    found = drive(300, seed, sources(tmp_path, {"minilm": minilm, "smollm2": smollm2_folder}), tmp_path)
    assert found["right"] > 30 and found["CheckpointError"] > 100, found
