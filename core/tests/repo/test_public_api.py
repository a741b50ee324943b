"""The public API changes on purpose only."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "api_snapshot.py"


@pytest.fixture(scope="module")
def api() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_snapshot", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_public_api_is_the_committed_one(api: ModuleType) -> None:
    changes = api.difference(api.load(), api.collect())
    assert not changes, f"the public API changed; if that is meant: python scripts/api_snapshot.py --write\n{changes}"


@dataclass(frozen=True)
class Before:
    """Two things that a caller can rely on."""

    size: int = 1

    def grow(self, by: int, /, *, twice: bool = False) -> int: ...


@dataclass(frozen=True)
class After:
    size: int = 2

    def grow(self, by: int, /, *, twice: bool = True) -> int: ...


def test_a_changed_default_or_parameter_is_a_change(api: ModuleType) -> None:
    before, after = list(api._describe(Before)), list(api._describe(After))
    assert before == [
        "class",
        "dataclass(frozen=True)",
        "size: int = 1",
        "def grow(self, by: int, /, *, twice: bool = False) -> int",
    ]
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [2, 3]


def test_a_versioned_package_must_not_change_under_its_version(api: ModuleType) -> None:
    package, constant = next((p, c) for p, c in api.PUBLIC.items() if c)
    current = api.collect()
    older = {**current, package: {**current[package], "gone": ["def gone() -> None"]}}
    assert api.unversioned_changes(current, current) == []
    assert api.unversioned_changes(older, current) == [f"{package}.{constant}"]
    older[package][constant] = ["= '0.9'"]
    assert api.unversioned_changes(older, current) == []
    assert constant in current[package], f"{package} must export {constant}"
