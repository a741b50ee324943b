"""The distributions: one version, every import declared, and no torch on the way."""

from __future__ import annotations

import ast
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from octavo._version import version

ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = {
    "octavo": ROOT / "core",
    "octavo-cpu": ROOT / "plugins" / "cpu",
    "octavo-conformance": ROOT / "conformance_tests",
    "octavo-fakechip": ROOT / "conformance_tests" / "fakechip",
}

# Declared, and imported by another library on our behalf.
USED_BY_OTHERS = {"httptools": "uvicorn's HTTP parser", "python-multipart": "starlette's parser of uploads"}


def requirements(distribution: str) -> set[str]:
    """What installing ``distribution`` without extras asks for directly, on this machine."""
    found = (Requirement(text) for text in metadata.requires(distribution) or [])
    return {canonicalize_name(r.name) for r in found if r.marker is None or r.marker.evaluate({"extra": ""})}


def imported_distributions(source: Path) -> set[str]:
    owners = metadata.packages_distributions()
    modules: set[str] = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.partition(".")[0])
    own = {path.name for path in source.iterdir()}
    third_party = modules - own - set(sys.stdlib_module_names)
    return {canonicalize_name(owners[module][0]) if module in owners else module for module in third_party}


def test_all_distributions_have_one_version() -> None:
    versions = {
        name: re.findall(r'^version = "([^"]+)"', (folder / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
        for name, folder in DISTRIBUTIONS.items()
    }
    assert {text for found in versions.values() for text in found} == {version()}, versions


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_import_is_a_declared_dependency_and_the_reverse(distribution: str) -> None:
    imported = imported_distributions(DISTRIBUTIONS[distribution] / "src")
    assert imported == requirements(distribution) - set(USED_BY_OTHERS)


def test_installing_core_and_the_host_platform_brings_no_torch() -> None:
    seen: set[str] = set()
    waiting = list(DISTRIBUTIONS)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += requirements(name)
    assert {"numpy", "transformers", "tokenizers"} <= seen
    assert "torch" not in seen
