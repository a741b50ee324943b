"""Faults in the block pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform import Executable, KVLayout, KVStore, StepInput, StepOutput
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Altered, Wrapped


@dataclass
class _Later:
    """A step that was submitted and not run. Its arrays are copies: the caller's are the caller's again."""

    executable: Executable
    run: Callable[[], Any]
    ticket: Any = None
    done: bool = False

    def finish(self) -> None:
        if not self.done:
            self.ticket, self.done = self.run(), True


def _copied(step: StepInput) -> StepInput:
    arrays: dict[str, Any] = {n: value.copy() for n, value in vars(step).items() if isinstance(value, np.ndarray)}
    return replace(step, **arrays)


@mutant(
    "M11",
    "runs what was submitted last before what was submitted first",
    killed_by=("kv.free_reuse", "dev.stream_order"),
)
class LastFirst(Wrapped):
    """A block is written for its next owner while a step that reads it is still to come."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._waiting: list[_Later] = []

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        own = _copied(step)
        later = _Later(executable, lambda: executable.submit(own, store))
        self._waiting.append(later)
        return later

    def collect(self, executable: Executable, ticket: Any) -> StepOutput:
        for later in reversed(self._waiting):
            later.finish()
        self._waiting.clear()
        return executable.collect(ticket.ticket)


@mutant("M43.read", "reads blocks without waiting for the steps in flight", killed_by=("kv.swap_async_order",))
class ReadsEarly(Wrapped):
    """Steps run when they are collected, or when a later one is, in order."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._waiting: list[_Later] = []

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        own = _copied(step)
        later = _Later(executable, lambda: executable.submit(own, store))
        self._waiting.append(later)
        return later

    def collect(self, executable: Executable, ticket: Any) -> StepOutput:
        while not ticket.done:
            self._waiting.pop(0).finish()
        return executable.collect(ticket.ticket)


@mutant("M12", "byte offsets into the pool wrap at 2^31", killed_by=("kv.index_int64",))
class Wraps(Wrapped):
    """A block beyond that is another one further down."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        most, size = 2**31 // max(layout.block_bytes, 1), layout.block_size
        slots = np.where(step.slots < 0, step.slots, step.slots // size % most * size + step.slots % size)
        return replace(step, slots=slots.astype(np.int32), block_tables=(step.block_tables % most).astype(np.int32))


@mutant("M20", "writes padding tokens to slot 0", killed_by=("kv.slot_pad_ignored",))
class PaddingWritten(Wrapped):
    """-1 is taken for 0."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        return replace(step, slots=np.maximum(step.slots, 0))


@mutant("M21", "makes block copies from the last to the first", killed_by=("kv.copy_blocks",))
class CopiesBackwards(Wrapped):
    """A chain then moves one step only."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        return replace(step, copies=np.ascontiguousarray(step.copies[::-1]))


@mutant(
    "M22",
    "writes a block that comes from the host to the wrong layer",
    killed_by=("kv.swap_out_in", "kv.export_import"),
)
class WrongLayer(Wrapped):
    """Each layer gets the next one's."""

    def store(self, store: KVStore) -> KVStore:
        class Store(Altered):
            def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
                self.inner.write_block(block, np.ascontiguousarray(np.roll(data, 1, 1)))

        return Store(store)


@mutant("M22.copies", "copies blocks in the first layer only", killed_by=("kv.copy_blocks",))
class FirstLayerCopied(Wrapped):
    """The copies are made before the step."""

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        for source, destination in step.copies.tolist():
            held = np.array(store.read_block(destination))
            held[:, :1] = store.read_block(source)[:, :1]
            store.write_block(destination, held)
        return executable.submit(replace(step, copies=step.copies[:0].copy()), store)


@mutant("M45.past", "writes one slot past the last", killed_by=("kv.write_locality", "kv.partial_tail"))
class OnePast(Wrapped):
    """Zeros, to whatever lies there."""

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        ticket = executable.submit(step, store)
        size = store.layout.block_size
        block, offset = divmod(int(step.slots.max(initial=-1)) + 1, size)
        if 0 < block < store.blocks:
            held = np.array(store.read_block(block))
            held[:, :, offset] = 0
            store.write_block(block, held)
        return ticket


@mutant("L0.layers", "every layer uses the tensor of the first", killed_by=("kv.layer_isolation",))
class OneLayer(Wrapped):
    """A graph in which all of attention is layer 0."""

    def graph(self, graph: Graph) -> Graph:
        nodes = tuple(
            replace(node, attrs={**node.attrs, "layer": 0}) if node.op == "attention" else node for node in graph.nodes
        )
        return replace(graph, nodes=nodes)


@mutant("L0.group", "every group uses the table of the first", killed_by=("kv.group_mixed",))
class OneGroup(Wrapped):
    """Slots too."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        tables, slots = (np.repeat(x[:1], len(x), 0) for x in (step.block_tables, step.slots))
        return replace(step, block_tables=tables, slots=slots)


@mutant("L0.stale", "sees the token after the last, unless it is NaN", killed_by=("kv.free_reuse",))
class SeesStale(Wrapped):
    """A fresh block hides it; in one that had another owner there is something to see."""

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        size, contexts = store.layout.block_size, step.context_lens.copy()
        for row, context in enumerate(contexts.tolist()):
            block = int(step.block_tables[0, row, context // size]) if context % size else 0
            if block and np.isfinite(store.read_block(block)[:, 0, context % size]).all():
                contexts[row] += 1
        return executable.submit(replace(step, context_lens=contexts), store)
