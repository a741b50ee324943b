"""Plugins for tests, as pip would leave them: a module and the metadata of its distribution, in a folder on the
path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

TINY = Path(__file__).parents[2] / "core" / "tests" / "plugins" / "octavo-tiny" / "octavo_tiny.py"


def install(folder: Path, platform: str, module: str, source: str | Path) -> None:
    """Put a plugin module and its entry point into ``folder``."""
    folder.mkdir(exist_ok=True, parents=True)
    if isinstance(source, Path):
        shutil.copy(source, folder / f"{module}.py")
    else:
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
    about = folder / f"octavo_{platform}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: octavo-{platform}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[octavo.platforms]\n{platform} = {module}\n", encoding="utf-8")


def on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let workers that start from now on find what is in ``folder``."""
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)


WILD = '''
"""A platform that does what its name says; the name comes from the environment."""
import os, sys, time
from octavo import platform as api

HOW = os.environ.get("WILD", "")

class Executable(api.ReferenceExecutable):
    def submit(self, step, kv):
        if HOW == "dies":
            os.write(2, b"segmentation fault, so to speak\\n")
            os._exit(139)
        if HOW == "hangs":
            time.sleep(600)
        if HOW == "raises":
            raise RuntimeError("the chip is on fire")
        if HOW == "exits":
            sys.exit(3)
        if HOW == "scribbles":
            step.positions[:] = 7
        if HOW == "prints":
            print("a line on standard output, " * 1000)
        return super().submit(step, kv)

class Device(api.ReferenceDevice):
    def compile(self, graph, bucket, weights, layout):
        return Executable(graph, weights)

class Platform:
    info = api.PlatformInfo("wild", "Nobody", "1.0", "accelerator",
                            {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"})
    def probe(self):
        return api.Probe(True, "here", (api.DeviceInfo("wild"),))
    def capabilities(self):
        return api.REFERENCE_CAPABILITIES
    def negotiate(self, request):
        if HOW == "lies":
            from dataclasses import replace
            can = replace(api.REFERENCE_CAPABILITIES, attention=frozenset())
            return api.negotiate_by_declaration(request, "wild", can, api.Limits())
        if HOW == "takes all":
            return api.Plan("f32", "f32", 16, 1024, 16, 1024, 0.9, api.Limits())
        return api.negotiate_by_declaration(request, "wild", api.REFERENCE_CAPABILITIES, api.Limits())
    def open(self, rank):
        return Device(lambda: api.MemoryReport(1 << 30, 1 << 29))

@api.hookimpl
def octavo_platforms():
    return [Platform()]
'''
"""One module for every way in which a plugin can misbehave."""
