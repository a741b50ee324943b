"""scripts/all_tests.sh runs every test."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_every_path_of_tests_is_run_once(pytestconfig: pytest.Config) -> None:
    words = (ROOT / "scripts" / "all_tests.sh").read_text().split()
    paths = pytestconfig.getini("testpaths")
    assert len(paths) > 3
    for path in paths:
        assert words.count(path) == 1, path
