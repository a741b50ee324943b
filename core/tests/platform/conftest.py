"""Plugins as distributions: a module and its metadata in a folder on the path, which is all that an installer
leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., None]

PLATFORM = """
from octavo.platform import (
    REFERENCE_CAPABILITIES, Limits, MemoryReport, PlatformInfo, Probe, ReferenceDevice, hookimpl,
    negotiate_by_declaration,
)

class Platform:
    info = PlatformInfo("{name}", "Test", "1.0", "{kind}", {contract})

    def probe(self):
        {probe}

    def capabilities(self):
        return REFERENCE_CAPABILITIES

    def negotiate(self, request):
        return negotiate_by_declaration(request, "{name}", REFERENCE_CAPABILITIES, Limits())

    def open(self, rank):
        return ReferenceDevice(lambda: MemoryReport(2**30, 2**30))

@hookimpl
def octavo_platforms():
    return [Platform()]
"""

CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}


def platform_source(
    name: str = "acme",
    *,
    kind: str = "accelerator",
    contract: dict[str, str] | None = None,
    probe: str = 'return Probe(True, "one Acme One")',
) -> str:
    """The source of a plugin that keeps the contract, but for what the arguments change."""
    return PLATFORM.format(name=name, kind=kind, contract=CONTRACT if contract is None else contract, probe=probe)


@pytest.fixture
def source() -> Callable[..., str]:
    """See `platform_source`."""
    return platform_source


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install(entry, source, distribution="octavo-ENTRY")`` puts a plugin of version 1.0 where discovery finds it."""
    site = tmp_path / "site"
    site.mkdir()
    before = set(sys.modules)

    def install(entry: str, source: str, distribution: str | None = None) -> None:
        distribution = distribution or f"octavo-{entry}"
        module = distribution.replace("-", "_")
        (site / f"{module}.py").write_text(source, encoding="utf-8")
        metadata = site / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
        )
        (metadata / "entry_points.txt").write_text(f"[octavo.platforms]\n{entry} = {module}\n", encoding="utf-8")
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))

    yield install
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(site)):
            del sys.modules[name]
