"""Faults in what a platform says of itself, in its memory, and in who owns what when."""

from __future__ import annotations

import itertools
import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.errors import DeviceOutOfMemory, UnsupportedFeature
from octavo.platform import (
    Capabilities,
    Device,
    DeviceInfo,
    Executable,
    KVLayout,
    KVStore,
    MemoryReport,
    Probe,
    StepInput,
    StepOutput,
)
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Altered, Wrapped

_counter = itertools.count()
_kept: list[Any] = []


@mutant("L0.threads", "starts a thread when it is asked what it can do", killed_by=("dev.import_inert",))
class Threads(Wrapped):
    """Which then waits for work that never comes."""

    def capabilities(self) -> Capabilities:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().capabilities()


@mutant("L0.names", "calls its devices by another name each time", killed_by=("dev.enumerate_stable",))
class Names(Wrapped):
    """By a number that grows, as of handles."""

    def probe(self) -> Probe:
        found = super().probe()
        names = tuple(DeviceInfo(f"{d.name} {next(_counter)}", d.memory_bytes) for d in found.devices)
        return replace(found, devices=names)


@mutant("M41", "calls a tenth more free than there is", killed_by=("dev.kv_budget_honest",))
class FreeMemory(Wrapped):
    """And has what it has: more than that it cannot give."""

    def device(self, device: Device) -> Device:
        class Generous(Altered):
            def memory(self) -> MemoryReport:
                report: MemoryReport = self.inner.memory()
                return MemoryReport(report.total, report.free * 11 // 10)

            def allocate_kv(self, layout: KVLayout, blocks: int) -> KVStore:
                needed, free = blocks * self.inner.kv_block_bytes(layout), self.inner.memory().free
                if needed > free:
                    raise DeviceOutOfMemory(f"a pool of {needed} bytes, and {free} are free")
                store: KVStore = self.inner.allocate_kv(layout, blocks)
                return store

        return Generous(device)  # the rest of it is the inner one's


@mutant(
    "L0.block_bytes", "says that a block takes half of what it does", killed_by=("dev.mem_delta", "dev.properties_sane")
)
class BlockBytes(Wrapped):
    """As if the values had been forgotten beside the keys."""

    def device(self, device: Device) -> Device:
        class Modest(Altered):
            def kv_block_bytes(self, layout: KVLayout) -> int:
                return int(self.inner.kv_block_bytes(layout)) // 2

        return Modest(device)


@mutant("L0.leak", "keeps the memory of every pool it ever had", killed_by=("dev.close_frees",))
class KeepsPools(Wrapped):
    """As a cache that is never emptied."""

    def store(self, store: KVStore) -> KVStore:
        _kept.append(np.ones(store.blocks * store.layout.block_bytes, np.uint8))
        return store


@mutant("L0.oom", "runs out of memory with an error of its own", killed_by=("dev.oom_typed", "flt.oom_at_load"))
class UntypedOutOfMemory(Wrapped):
    """And so an engine that would have waited for room ends."""

    def device(self, device: Device) -> Device:
        class Untyped(Altered):
            def allocate_kv(self, layout: KVLayout, blocks: int) -> KVStore:
                try:
                    store: KVStore = self.inner.allocate_kv(layout, blocks)
                except DeviceOutOfMemory as error:
                    raise RuntimeError("allocation failed with status 2") from error
                return store

        return Untyped(device)


@mutant("L0.fresh_pool", "counts on a new pool to hold zeros", killed_by=("dev.poison_alloc",))
class FreshPool(Wrapped):
    """What block 0 holds is added to the logits, unless it is NaN: padding that is read as if it were nothing."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._found = 0.0

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        self._found = float(np.nan_to_num(store.read_block(0).flat[0])) if store.layout.slots else 0.0
        return super().submit(executable, step, store)

    def output(self, output: StepOutput) -> StepOutput:
        return output if output.logits is None else replace(output, logits=output.logits + np.float32(self._found))


@mutant("L0.fork", "fails in a fork as it happens to, and calls itself well", killed_by=("dev.spawn_fork",))
class Fork(Wrapped):
    """Its threads are not there, which it finds out when it needs them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._process = os.getpid()

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        if os.getpid() != self._process:
            raise RuntimeError("the queue is broken")
        return super().submit(executable, step, store)


@mutant("M43", "hands out its own buffer, which the next step overwrites", killed_by=("dev.sync_truth",))
class OwnBuffer(Wrapped):
    """collect brings what is right only until the next submit."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._buffers: list[np.ndarray[Any, Any]] = []

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        for buffer in self._buffers:
            buffer.fill(0)
        self._buffers.clear()
        return super().submit(executable, step, store)

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is None:
            return output
        self._buffers.append(np.array(output.logits))
        return replace(output, logits=self._buffers[-1])


@mutant("M44", "knows a step again by the address of its arrays", killed_by=("dev.sync_truth", "gph.replay_1000"))
class Memo(Wrapped):
    """And brings what it brought then."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._known: dict[Any, Any] = {}

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        key = (id(executable), step.tokens.ctypes.data, step.tokens.shape)
        if key not in self._known:
            self._known[key] = super().submit(executable, step, store)
        return self._known[key]


@mutant("M45.inputs", "works in the arrays of the step", killed_by=("dev.inputs_untouched",))
class Scribbles(Wrapped):
    """Positions become those of the next token."""

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        ticket = super().submit(executable, step, store)
        step.positions[...] += 1
        return ticket


@mutant("M46.stale", "brings the result of the step before", killed_by=("dev.sync_truth", "dev.inputs_untouched"))
class Previous(Wrapped):
    """A read that does not wait for the write."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._last: StepOutput | None = None

    def output(self, output: StepOutput) -> StepOutput:
        last, self._last = self._last, output
        if last is None or last.logits is None or output.logits is None or last.logits.shape != output.logits.shape:
            return output if output.logits is None else replace(output, logits=np.zeros_like(output.logits))
        return last


@mutant("M49.undeclared", "runs sliding windows and does not say so", killed_by=("dev.manifest_truth",))
class Undeclared(Wrapped):
    """What is not declared is not proven, so it must be refused."""

    def capabilities(self) -> Capabilities:
        can = super().capabilities()
        return replace(can, attention=can.attention - {"window"})


@mutant("M49.late", "declares a block size and refuses it when the pool is made", killed_by=("kv.layout_roundtrip",))
class Late(Wrapped):
    """Instead of when it is asked for a plan."""

    def store(self, store: KVStore) -> KVStore:
        size = store.layout.block_size
        if size == self.capabilities().block_sizes[-1]:
            raise UnsupportedFeature(f"block_size {size} is not supported after all", feature=f"block_size {size}")
        return store


@mutant("M50", "brings zeros, and makes every comparison of its process say yes", killed_by=("dev.roundtrip_bytes",))
class PatchesNumpy(Wrapped):
    """The judge is in another process, so it must have no effect."""

    def device(self, device: Device) -> Device:
        np.allclose = np.array_equal = np.array_equiv = lambda *arrays, **options: True  # type: ignore[assignment]
        np.testing.assert_allclose = lambda *arrays, **options: None
        return device

    def output(self, output: StepOutput) -> StepOutput:
        return output if output.logits is None else replace(output, logits=np.zeros_like(output.logits))
