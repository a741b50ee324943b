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
        return Device(api.host_memory)

@api.hookimpl
def octavo_platforms():
    return [Platform()]
'''
"""One module for every way in which a plugin can misbehave."""


HALF = '''
"""A platform that computes in bfloat16: every value stored in it, sums in float32, weights and cache in it too."""
import numpy as np
from octavo import platform as api
from octavo.graph import OPS, Call, KVArrays
from octavo.quant import dequantise

def half(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    up = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32)
    return np.where(np.isnan(x), x, up.view(np.float32)).astype(np.float32)

CAN = api.Capabilities(ops=frozenset(OPS), weight_formats=frozenset({"bf16"}), dtypes=("bf16",), kv_dtypes=("bf16",),
                       block_sizes=(16, 8), attention=frozenset({"window", "softcap", "sinks"}))

class Store(api.ReferenceKVStore):
    def __init__(self, layout, blocks):
        super().__init__(api.KVLayout(layout.block_size, layout.slots, layout.kv_heads, layout.head_dim, "f32"), blocks)
    def write_block(self, block, data):
        super().write_block(block, half(data))

class Executable:
    def __init__(self, graph, weights):
        self.graph, self.weights = graph, weights
    def submit(self, step, kv):
        cache = KVArrays.over(self.graph, kv.keys, kv.values, kv.layout.block_size)
        cache.copy_blocks(step.copies.tolist())
        values = dict(step.graph_inputs())
        for node in self.graph.nodes:
            call = Call([values[v] for v in node.inputs], [self.weights[w] for w in node.weights], node.attrs,
                        np.float32, cache)
            with np.errstate(all="ignore"):
                made = OPS[node.op].reference(call)
            values.update(zip(node.outputs, map(half, made)))
        return api.StepOutput(**{name: values[value] for name, value in self.graph.outputs.items()})
    def collect(self, ticket):
        return ticket

class Device(api.ReferenceDevice):
    def load(self, graph, weights, progress, files=()):
        return {name: dequantise(weights[name]) for name in graph.weights}
    def compile(self, graph, bucket, weights, layout):
        for node in graph.nodes:
            if node.op not in OPS:
                raise api.UnsupportedFeature(f"half: there is no op {node.op}", feature=f"op {node.op}")
        return Executable(graph, weights)
    def allocate_kv(self, layout, blocks):
        return Store(layout, blocks)

class Platform:
    info = api.PlatformInfo("half", "Nobody", "1.0", "accelerator",
                            {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"})
    def probe(self):
        return api.Probe(True, "here", (api.DeviceInfo("half"),))
    def capabilities(self):
        return CAN
    def negotiate(self, request):
        return api.negotiate_by_declaration(request, "half", CAN, api.Limits())
    def open(self, rank):
        return Device(api.host_memory)

@api.hookimpl
def octavo_platforms():
    return [Platform()]
'''
"""What most accelerators do, and none of the platforms here: the budgets must be right for it too."""


KEEPS = '''
"""The reference platform, keeping the graphs that it compiles: what the faults of m_artifacts are planted in."""
from octavo import platform as api
from octavo.platform.reference_plugin import ReferencePlatform
from octavo_conformance.mutants.m_artifacts import Keeps

class Platform(Keeps):
    info = api.PlatformInfo("keeps", "Nobody", "1.0", "accelerator",
                            {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"})

@api.hookimpl
def octavo_platforms():
    return [Platform(ReferencePlatform())]
'''
"""A platform that has an artifact store's every use, and no fault: the checks must pass it."""
