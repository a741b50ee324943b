"""One device's life, as the engine leads it: open, load, compile, memory, allocate, act, close."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.graph import from_json
from octavo.platform import Bucket, Device, KVStore, Platform, Rank
from octavo.runner.sampler import HostSampler
from octavo_conformance.worker import values
from octavo_conformance.worker.candidate import candidate


@dataclass
class Life:
    """A device that is ready to step: what it made, what `memory` said on the way, and what a block takes."""

    device: Device
    executables: dict[Bucket, Any]
    store: KVStore
    memory: list[dict[str, int]]
    block_bytes: int


def play(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script. ``request``: rank, graph, weights, buckets, layout, blocks, poison, actions; see `Target.play`."""
    with life(platform, request) as alive:
        results = [act(alive, action) for action in request["actions"]]
    return {"results": results, "memory": alive.memory, "block_bytes": alive.block_bytes}


@contextmanager
def life(platform: Platform, request: Mapping[str, Any]) -> Iterator[Life]:
    """A device's life up to its first step, and its end."""
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        alive = _born(device, request)
        try:
            if request["poison"]:
                poison(alive.store, request["blocks"])
            yield alive
        finally:
            with candidate("KVStore.close"):
                alive.store.close()
    finally:
        with candidate("close"):
            device.close()


def _born(device: Device, request: Mapping[str, Any]) -> Life:
    graph = from_json(request["graph"])
    weights = {name: values.weight_in(raw) for name, raw in request["weights"].items()}
    memory = [memory_of(device)]
    with candidate("load"):
        handle = device.load(graph, weights, lambda what, done, total: None)
    layout = values.layout_in(request["layout"])
    executables = {}
    for raw in request["buckets"]:
        bucket = Bucket(*raw)
        with candidate("compile"):
            executables[bucket] = device.compile(graph, bucket, handle, layout)
    memory.append(memory_of(device))
    with candidate("kv_block_bytes"):
        block_bytes = int(device.kv_block_bytes(layout))
    with candidate("allocate_kv"):
        store = device.allocate_kv(layout, request["blocks"])
    memory.append(memory_of(device))
    return Life(device, executables, store, memory, block_bytes)


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
    executables, store, device = alive.executables, alive.store, alive.device
    match action["do"]:
        case "step":
            step = values.step_in(action["step"])
            before = {name: array.tobytes() for name, array in step.graph_inputs().items()}
            started = time.perf_counter()
            with candidate("submit"):
                ticket = executables[step.bucket].submit(step, store)
            with candidate("collect"):
                output = executables[step.bucket].collect(ticket)
                # A copy: the array is the device's again with the next collect.
                logits = None if output.logits is None else np.array(output.logits, np.float32)
                drawn = output.samples
                if drawn is None and action["sample"] and logits is not None:
                    drawn = (device.sampler() or HostSampler()).sample(logits.copy(), step.sampling)
                samples = values.samples_out(drawn)
            changed = [name for name, array in step.graph_inputs().items() if array.tobytes() != before[name]]
            return {"logits": logits, "samples": samples, "changed": changed, "seconds": time.perf_counter() - started}
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
                return device.health()
        case other:
            raise ValueError(f"there is no action {other!r}")
