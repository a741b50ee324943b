"""Whatever a config says, a model loads or the error is one on purpose. A sample of `fuzzed`; the rest runs by hand."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from models.fuzzed import drive, sources


def test_a_mutated_description_is_refused_by_name_or_right(
    tmp_path: Path, minilm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    found = drive(200, int(os.environ.get("OCTAVO_TEST_SEED", "2")), sources(tmp_path, {"minilm": minilm}), tmp_path)
    for kind in ("folder", "gguf", "tokenizer"):
        assert found[f"{kind} right"] and found[f"{kind} CheckpointError"], found
