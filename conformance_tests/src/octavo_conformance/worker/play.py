"""One device's life, as the engine leads it: open, load, compile, memory, allocate, act, close."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import from_json
from octavo.platform import Bucket, Device, KVStore, Platform, StepInput
from octavo.runner.sampler import HostSampler
from octavo_conformance.worker import values
from octavo_conformance.worker.candidate import candidate
from octavo_conformance.worker.kept import Keeping, keeping

SCRIBBLE = 0x55555555
"""What the arrays of a step hold once it was submitted; no token, slot or block has such a number."""


def play(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a script. ``request``: rank, graph, weights, buckets, layout, blocks, poison, actions, keep; see
    `Target.play`.
    """
    with keeping(request["keep"], request["rank"]) as kept:
        with candidate("open"):
            device = platform.open(kept.rank)
        try:
            lived = _live(device, request, kept, on_host=platform.info.kind != "accelerator")
        finally:
            with candidate("close"):
                device.close()
        return {**lived, "kept": kept.told()}


def _live(device: Device, request: Mapping[str, Any], kept: Keeping, *, on_host: bool) -> dict[str, Any]:
    graph = from_json(request["graph"])
    weights = {name: values.weight_in(raw) for name, raw in request["weights"].items()}
    memory = [_memory(device)]
    with candidate("load"):
        handle = device.load(graph, weights, lambda what, done, total: None, kept.files)
    layout = values.layout_in(request["layout"])
    executables = {}
    for raw in request["buckets"]:
        bucket = Bucket(*raw)
        with candidate("compile"):
            executables[bucket] = device.compile(graph, bucket, handle, layout)
    if kept.rank.target is not None:
        return {"results": [], "memory": memory}
    kept.ready()
    memory.append(_memory(device))
    with candidate("allocate_kv"):
        store = device.allocate_kv(layout, request["blocks"])
    memory.append(_memory(device))
    hands = Hands(executables, store, device, on_host)
    try:
        if request["poison"]:
            poison(store, request["blocks"])
        results = [hands.act(action) for action in request["actions"]]
    finally:
        with candidate("KVStore.close"):
            store.close()
    return {"results": results, "memory": memory}


def poison(store: KVStore, blocks: int) -> None:
    """Fill the pool with NaN: what was never written must not matter."""
    layout = store.layout
    shape = (2, layout.slots, layout.block_size, layout.kv_heads, layout.head_dim)
    if layout.dtype != "int8" and np.prod(shape):
        nothing = np.full(shape, np.nan, np.float32)
        for block in range(blocks):
            with candidate("write_block"):
                store.write_block(block, nothing)


def _memory(device: Device) -> dict[str, int]:
    with candidate("memory"):
        report = device.memory()
        return {"total": int(report.total), "free": int(report.free)}


class Hands:
    """Does the actions of a script.

    As core may, it uses the arrays of a step again for the next one of the same shapes, and overwrites them between
    `submit` and `collect`: from then on they are the caller's.
    """

    def __init__(self, executables: Mapping[Bucket, Any], store: KVStore, device: Device, on_host: bool) -> None:
        self._executables, self._store, self._device, self._on_host = executables, store, device, on_host
        self._arrays: dict[tuple[str, tuple[int, ...]], npt.NDArray[np.int32]] = {}

    def act(self, action: Mapping[str, Any]) -> Any:
        """One action's result."""
        match action["do"]:
            case "step":
                return self._step(values.step_in(action["step"]), action["sample"])
            case "read_block":
                with candidate("read_block"):
                    return np.asarray(self._store.read_block(action["block"]), np.float32)
            case "write_block":
                with candidate("write_block"):
                    self._store.write_block(action["block"], action["data"])
                return None
            case "health":
                with candidate("health"):
                    return self._device.health()
            case other:
                raise ValueError(f"there is no action {other!r}")

    def _step(self, given: StepInput, sample: bool) -> dict[str, Any]:
        placed: dict[str, Any] = {name: self._placed(name, array) for name, array in given.graph_inputs().items()}
        step = replace(given, **placed)
        held = step.graph_inputs()
        executable = self._executables[step.bucket]
        started = time.perf_counter()
        with candidate("submit"):
            ticket = executable.submit(step, self._store)
        changed = {name for name, array in given.graph_inputs().items() if not np.array_equal(held[name], array)}
        for array in held.values():
            array.fill(SCRIBBLE)
        with candidate("collect"):
            output = executable.collect(ticket)
            logits = None if output.logits is None else np.array(output.logits, np.float32)
            drawn = output.samples
            if drawn is None and sample:
                drawn = (self._device.sampler() or HostSampler()).sample(np.array(logits), given.sampling)
            samples = values.samples_out(drawn)
        seconds = time.perf_counter() - started
        changed |= {name for name, array in held.items() if (array != SCRIBBLE).any()}
        return {
            "logits": logits, "samples": samples, "changed": sorted(changed), "seconds": seconds,
            "taken": _resident() if self._on_host else _taken(self._device),
        }  # fmt: skip

    def _placed(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        place = self._arrays.setdefault((name, array.shape), np.empty(array.shape, np.int32))
        place[...] = array
        return place


def _taken(device: Device) -> int:
    report = _memory(device)
    return report["total"] - report["free"]


def _resident() -> int:
    """Bytes of this process in memory; where the system does not say, the most that it ever had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
