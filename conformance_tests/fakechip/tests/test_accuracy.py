"""`octavo bench accuracy` judges a platform that takes no shape but its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.cli.bench.accuracy import WINDOW, measure


@pytest.mark.parametrize("platform", ["fakechip", "reference"])
def test_the_logits_of_a_text_are_compared_whatever_shapes_the_platform_has(
    checkpoint: Path, tmp_path: Path, platform: str
) -> None:
    words = np.random.default_rng(1).integers(30, 100, 2 * WINDOW + 9)  # no word begins like t1 or t2, the special ones
    (tmp_path / "text").write_text(" ".join(f"t{word}" for word in words), encoding="utf-8")
    found = measure(str(checkpoint), [tmp_path / "text"], 4096, platform)
    assert found.positions == 2 * WINDOW == found.same_best
    assert abs(found.divergence) < 1e-3
