"""Faults of programs: what they captured, what padding does, what they run although they cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.graph import Graph, Node
from octavo.graph.ir import freeze
from octavo.platform import (
    ArtifactKey,
    BucketPolicy,
    Device,
    Executable,
    KVLayout,
    KVStore,
    Plan,
    PlanRequest,
    Platform,
    Rank,
    StepInput,
    Unsupported,
    powers_up_to,
)
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.m_engine import Remembers
from octavo_conformance.mutants.wrapped import Wrapped


@mutant("M34", "a program keeps the context lengths of its first run", killed_by=("gph.no_capture_of_host_values",))
class CapturesLengths(Wrapped):
    """For decodes, shape by shape."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self._captured: dict[Any, Any] = {}

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        if (np.diff(step.query_starts) > 1).any():
            return step
        shape = (step.bucket, step.block_tables.shape)
        return replace(step, context_lens=self._captured.setdefault(shape, step.context_lens.copy()))


class _Frozen:
    """A block pool that takes no more writes once a step has run."""

    def __init__(self, inner: KVStore, mutant: StalePool) -> None:
        self.inner, self._mutant = inner, mutant

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def write_block(self, block: int, data: Any) -> None:
        if not self._mutant.ran:
            self.inner.write_block(block, data)


@mutant("M34.pool", "a program reads a copy of the pool that it made before", killed_by=("gph.pointer_stability",))
class StalePool(Wrapped):
    """Blocks written from outside after the first step are not seen."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self.ran = False

    def store(self, store: KVStore) -> KVStore:
        self.ran = False
        return _Frozen(store, self)

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        self.ran = True
        return super().submit(executable, step, store)


@mutant("M34.edge", "a step that is exactly as large as a shape loses its last row", killed_by=("gph.bucket_edges",))
class LosesLast(Remembers):
    """At every power of two from four tokens on."""

    def noted(self, step: StepInput) -> int:
        return int(step.query_starts[-1])

    def changed(self, logits: np.ndarray[Any, Any], noted: int) -> np.ndarray[Any, Any]:
        if noted >= 4 and noted & (noted - 1) == 0:
            logits[-1] = logits[0]
        return logits


@mutant("M34.switch", "the first result after a change of shape is the old one", killed_by=("gph.bucket_interleave",))
class SlowToSwitch(Remembers):
    """The first row of it."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self._last: np.ndarray[Any, Any] | None = None

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        last, self._last = self._last, logits.copy()
        if last is not None and last.shape != logits.shape and len(last) and len(logits):
            logits[0] = last[0]
        return logits


@mutant("M34.lazy", "something is compiled when the first step comes", killed_by=("gph.recompile_bound",))
class Lazy(Wrapped):
    """It goes through the store, as it should, and too late."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self._rank: Rank | None = None

    def open(self, rank: Rank) -> Device:
        self._rank = rank
        return super().open(rank)

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        if self._rank is not None:
            key = ArtifactKey("late", self.info.name, "any", "1", graph="", dialect="1.0")
            self._rank.artifacts.open(key, lambda writer: writer.add("nothing", np.zeros(1)))
            self._rank = None
        return super().submit(executable, step, store)


@mutant("M43.early", "a result is handed over before it is there", killed_by=("gph.replay_1000",))
class TooEarly(Remembers):
    """What the last step of the same size left in the buffer."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self._buffers: dict[tuple[int, ...], np.ndarray[Any, Any]] = {}

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        before = self._buffers.get(logits.shape, logits)
        self._buffers[logits.shape] = logits
        return before


class Static(Wrapped):
    """A platform that lists shapes: powers of two, all sizes fixed."""

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        plan = super().negotiate(request)
        if isinstance(plan, Unsupported) or plan.limits.buckets.static:
            return plan
        blocks = -(-plan.max_model_len // plan.block_size)
        tokens, rows = min(plan.max_num_batched_tokens, 256), min(plan.max_num_seqs, 16)
        sizes = powers_up_to(tokens)
        policy = BucketPolicy(tokens=sizes, rows=powers_up_to(rows), samples=sizes, blocks=powers_up_to(blocks))
        return replace(
            plan, max_num_seqs=rows, max_num_batched_tokens=tokens, limits=replace(plan.limits, buckets=policy)
        )


@mutant(
    "M49.open", "shapes are listed, and one that leaves sizes open is compiled", killed_by=("gph.dynamic_dim_refuse",)
)
class ListsShapes(Static):
    """The platform below takes any size, and nobody checks."""


@mutant("M35", "padding leaks into real rows", killed_by=("gph.padding_inert", "gph.every_bucket"))
class Leaks(Static, Remembers):
    """A tenth of what the last padding token brings is added to every row."""

    def noted(self, step: StepInput) -> bool:
        return self._padded(step)

    @staticmethod
    def _padded(step: StepInput) -> bool:
        return len(step.tokens) > step.query_starts[-1] and len(step.sample_rows) > 1 and step.sample_rows[-1] == 0

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        if not self._padded(step):
            return step
        rows = step.sample_rows.copy()
        rows[-1] = len(step.tokens) - 1
        return replace(step, sample_rows=rows)

    def changed(self, logits: np.ndarray[Any, Any], noted: bool) -> np.ndarray[Any, Any]:
        return logits + 0.1 * logits[-1] if noted else logits


@mutant("M49.lower", "an op that nobody knows is left out", killed_by=("gph.lower_unsupported_op",))
class LeavesOut(Wrapped):
    """Its input takes the place of its result."""

    def graph(self, graph: Graph) -> Graph:
        def known(node: Node) -> Node:
            return replace(node, op="scale", attrs=_ONE) if node.op == "no_such_op" else node

        return replace(graph, nodes=tuple(map(known, graph.nodes)))


_ONE: Mapping[str, Any] = {"factor": freeze(1.0)}
