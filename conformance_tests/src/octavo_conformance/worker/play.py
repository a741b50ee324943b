"""One device's life, as the engine leads it: open, load, compile, memory, allocate, act, close."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.graph import Graph, from_json
from octavo.platform import Bucket, Device, KVLayout, KVStore, Platform, StepInput
from octavo.runner.masks import as_bias
from octavo.runner.sampler import HostSampler
from octavo_conformance.worker import values
from octavo_conformance.worker.candidate import candidate
from octavo_conformance.worker.kept import Keeping, keeping
from octavo_conformance.worker.reused import Reused, arrays_of

SCRIBBLE = 0x55555555
"""What the arrays of a step hold once it was submitted; no token, slot or block has such a number."""


@dataclass
class Life:
    """A device that is ready to step: what it made, what `memory` said on the way, and what a block takes.

    ``on_host``: its memory is the machine's. ``plain_vocabulary`` is the model's, if the platform takes no masks.
    """

    device: Device
    executables: dict[Bucket, Any]
    store: KVStore
    memory: list[dict[str, int]]
    block_bytes: int
    on_host: bool
    plain_vocabulary: int | None
    arrays: Reused = field(default_factory=Reused)


def play(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script. ``request``: rank, graph, weights, buckets, layout, blocks, poison, actions, keep; see
    `Target.play`.
    """
    with keeping(request["keep"], request["rank"]) as kept:
        if kept.rank.target is not None:
            with _opened(platform, kept) as device:
                _compiled(device, request, kept)
            return {"results": [], "memory": [], "block_bytes": 0, "kept": kept.told()}
        with _life(platform, request, kept) as alive:
            results = [act(alive, action) for action in request["actions"]]
        return {"results": results, "memory": alive.memory, "block_bytes": alive.block_bytes, "kept": kept.told()}


@contextmanager
def life(platform: Platform, request: Mapping[str, Any]) -> Iterator[Life]:
    """A device's life up to its first step, and its end; ``request`` as for `play`, its actions left alone."""
    with keeping(request["keep"], request["rank"]) as kept, _life(platform, request, kept) as alive:
        yield alive


@contextmanager
def _opened(platform: Platform, kept: Keeping) -> Iterator[Device]:
    with candidate("open"):
        device = platform.open(kept.rank)
    try:
        yield device
    finally:
        with candidate("close"):
            device.close()


@contextmanager
def _life(platform: Platform, request: Mapping[str, Any], kept: Keeping) -> Iterator[Life]:
    with _opened(platform, kept) as device:
        memory = [memory_of(device)]
        executables, layout = _compiled(device, request, kept)
        kept.ready()
        memory.append(memory_of(device))
        with candidate("kv_block_bytes"):
            block_bytes = int(device.kv_block_bytes(layout))
        with candidate("allocate_kv"):
            store = device.allocate_kv(layout, request["blocks"])
        try:
            memory.append(memory_of(device))
            if request["poison"]:
                poison(store, request["blocks"])
            yield Life(
                device, executables, store, memory, block_bytes, platform.info.kind != "accelerator",
                _plain_vocabulary(platform, device, from_json(request["graph"])),
            )  # fmt: skip
        finally:
            with candidate("KVStore.close"):
                store.close()


def _plain_vocabulary(platform: Platform, device: Device, graph: Graph) -> int | None:
    """As the engine decides whether masks are written as biases."""
    can = platform.capabilities()
    if can.masks or (not can.sampling and device.sampler() is None) or "logits" not in graph.outputs:
        return None
    return graph.types[graph.outputs["logits"]].width


def _compiled(device: Device, request: Mapping[str, Any], kept: Keeping) -> tuple[dict[Bucket, Any], KVLayout]:
    graph = from_json(request["graph"])
    weights = {name: values.weight_in(raw) for name, raw in request["weights"].items()}
    with candidate("load"):
        handle = device.load(graph, weights, lambda what, done, total: None, kept.files)
    layout = values.layout_in(request["layout"])
    executables = {}
    for raw in request["buckets"]:
        bucket = Bucket(*raw)
        with candidate("compile"):
            executables[bucket] = device.compile(graph, bucket, handle, layout)
    return executables, layout


def poison(store: KVStore, blocks: int) -> None:
    """Fill the pool with NaN: what was never written must not matter."""
    layout = store.layout
    shape = (2, layout.slots, layout.block_size, layout.kv_heads, layout.head_dim)
    if layout.dtype != "int8" and np.prod(shape):
        nothing = np.full(shape, np.nan, np.float32)
        for block in range(blocks):
            with candidate("write_block"):
                store.write_block(block, nothing)


def memory_of(device: Device) -> dict[str, int]:
    """What `Device.memory` says."""
    with candidate("memory"):
        report = device.memory()
        return {"total": int(report.total), "free": int(report.free)}


def act(alive: Life, action: Mapping[str, Any]) -> Any:
    """One action of a script, and its result."""
    store = alive.store
    match action["do"]:
        case "step":
            return _step(alive, values.step_in(action["step"]), action["sample"])
        case "read_block":
            with candidate("read_block"):
                return np.asarray(store.read_block(action["block"]), np.float32)
        case "write_block":
            with candidate("write_block"):
                store.write_block(action["block"], action["data"])
            return None
        case "move_block":
            with candidate("read_block"):
                held = np.array(store.read_block(action["source"]), np.float32)
            with candidate("write_block"):
                store.write_block(action["target"], held)
            return None
        case "health":
            with candidate("health"):
                return alive.device.health()
        case other:
            raise ValueError(f"there is no action {other!r}")


def _step(alive: Life, given: StepInput, sample: bool) -> dict[str, Any]:
    """Submit and collect. As core may, this uses the arrays of a step again for the next one of the same shapes, and
    overwrites them between the two: from `submit` on they are the caller's.
    """
    if alive.plain_vocabulary is not None:
        given = replace(given, sampling=as_bias(given.sampling, alive.plain_vocabulary))
    step = alive.arrays.filled(given)
    held, executable = arrays_of(step), alive.executables[step.bucket]
    started = time.perf_counter()
    with candidate("submit"):
        ticket = executable.submit(step, alive.store)
    changed = {name for name, array in arrays_of(given).items() if (held[name] != array).any()}
    for array in held.values():
        array.fill(SCRIBBLE)
    with candidate("collect"):
        output = executable.collect(ticket)
        # A copy: the array is the device's again with the next collect. Of a graph that pools, its vectors.
        brought = output.pooled if output.logits is None else output.logits
        logits = None if brought is None else np.array(brought, np.float32)
        drawn = output.samples
        if drawn is None and sample and logits is not None:
            drawn = (alive.device.sampler() or HostSampler()).sample(logits.copy(), given.sampling)
        samples = values.samples_out(drawn)
    seconds = time.perf_counter() - started
    changed |= {name for name, array in held.items() if (array != SCRIBBLE).any()}
    return {
        "logits": logits, "samples": samples, "changed": sorted(changed), "seconds": seconds,
        "taken": _resident() if alive.on_host else _taken(alive.device),
    }  # fmt: skip


def _taken(device: Device) -> int:
    report = memory_of(device)
    return report["total"] - report["free"]


def _resident() -> int:
    """Bytes of this process in memory; where the system does not say, the most that it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
