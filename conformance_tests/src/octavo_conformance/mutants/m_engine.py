"""Faults that only whole engines show: in core's bookkeeping, applied in the worker's process, and in what a platform
does with it.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.graph import Graph
from octavo.kv.prefix import PrefixIndex
from octavo.platform import Device, Executable, KVLayout, KVStore, Platform, Rank, StepInput, StepOutput
from octavo.runner import Batch
from octavo.scheduler import Scheduler
from octavo.step_plan import StepPlan
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped


@mutant(
    "M09",
    "a prefix block is found by its own tokens alone",
    killed_by=("eng.prefix_cache_invariance", "eng.history_invariance"),
)
class ForgetsParent(Wrapped):
    """The hash of a block does not depend on the blocks before it."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        real = PrefixIndex.digest
        PrefixIndex.digest = lambda self, parent, tokens: real(self, b"", tokens)  # type: ignore[method-assign]


@mutant("M09.partial", "a fork writes into the block that it shares", killed_by=("eng.prefix_partial_block",))
class NoCopy(Wrapped):
    """The copies of a step are not made."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        return replace(step, copies=np.zeros((0, 2), np.int32))


@mutant(
    "M47", "a preempted row is computed again with its positions one too high", killed_by=("eng.preempt_recompute",)
)
class ResumesLate(Wrapped):
    """Only in the step in which it comes back."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        real = Batch.build

        def build(self: Batch, plan: StepPlan) -> Any:
            step, draws = real(self, plan)
            resumed = {new.id for new in plan.new if len(new.tokens) > new.prompt_length}
            positions = step.positions.copy()
            for i, row in enumerate(plan.rows):
                if row in resumed:
                    positions[step.query_starts[i] : step.query_starts[i + 1]] += 1
            return replace(step, positions=positions), draws

        Batch.build = build  # type: ignore[method-assign]


@mutant("M47.decode", "decoded tokens stand one position too far", killed_by=("eng.prefill_decode_consistency",))
class DecodesLate(Wrapped):
    """The same token is right in a chunk."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        counts = np.diff(step.query_starts)
        owner = np.repeat(np.arange(len(counts)), counts)
        positions = step.positions.copy()
        positions[: len(owner)] += ((counts == 1) & (step.context_lens > 1))[owner]
        return replace(step, positions=positions)


@mutant(
    "M48",
    "an abort frees a block of another request",
    killed_by=("eng.abort_anywhere", "eng.schedule_fuzz", "soak.correctness"),
)
class AbortsTooMuch(Wrapped):
    """The first block of whoever runs is handed out again."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        real = Scheduler.abort

        def abort(self: Scheduler, request_id: str, index: int | None = None) -> bool:
            ended = real(self, request_id, index)
            for row in self._running if ended else ():
                held = [b for b in row.kv.tables[0] if b and self.kv.pool.refs[b] == 1 and b not in self.kv.index]
                if held:
                    self.kv.pool.refs[held[0]] = 0
                    self.kv.pool._empty.append(held[0])
                    break
            return ended

        Scheduler.abort = abort  # type: ignore[method-assign]


@mutant("M40.abort", "an abort keeps a block", killed_by=("eng.abort_anywhere", "eng.block_conservation"))
class AbortsTooLittle(Wrapped):
    """One reference is never given back."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        real = Scheduler.abort

        def abort(self: Scheduler, request_id: str, index: int | None = None) -> bool:
            rows = self._groups.get(request_id, ())
            held = [b for row in rows for b in row.kv.tables[0] if b]
            if held:
                self.kv.pool.share(held[0])
            return real(self, request_id, index)

        Scheduler.abort = abort  # type: ignore[method-assign]


class Remembers(Wrapped):
    """Knows, when a step is collected, which one it was: steps are collected in the order of submission."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        self.submitted: deque[Any] = deque()

    def noted(self, step: StepInput) -> Any:
        """What `output` must know of a step."""
        return len(step.tokens)

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        """The wrong logits."""
        return logits

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        self.submitted.append(self.noted(step))
        plain = replace(step, sampling=replace(step.sampling, plain_greedy=False))  # so that there are logits
        return super().submit(executable, plain, store)

    def output(self, output: StepOutput) -> StepOutput:
        noted = self.submitted.popleft()
        assert output.logits is not None, "these mutants are of platforms that bring logits"
        return replace(output, logits=np.ascontiguousarray(self.changed(np.array(output.logits), noted), np.float32))


@mutant("M33.digits", "rows of larger batches are computed with fewer digits", killed_by=("eng.batch_invariance",))
class BatchDependent(Remembers):
    """Steps of three rows and more keep four digits of each logit."""

    def noted(self, step: StepInput) -> int:
        return int((step.context_lens > 0).sum())

    def changed(self, logits: np.ndarray[Any, Any], noted: int) -> np.ndarray[Any, Any]:
        if noted < 3:
            return logits
        mantissa, exponent = np.frexp(logits)
        rounded: np.ndarray[Any, Any] = np.ldexp(np.round(mantissa * 16) / 16, exponent)
        return rounded


@mutant("M32.restart", "every life of a device computes a little differently", killed_by=("eng.restart_same",))
class Drifts(Remembers):
    """Each device that is opened scales its logits by 5 % more than the one before."""

    lives = 0

    def open(self, rank: Rank) -> Device:
        self.lives += 1
        return super().open(rank)

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        return logits * (1 + 0.05 * self.lives)


@mutant("M05.engine", "chunks after the first read the cache one block late", killed_by=("eng.chunk_size_invariance",))
class ChunksRead(Wrapped):
    """A first chunk and a decode are right."""

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        counts = np.diff(step.query_starts)
        later = np.flatnonzero((counts > 1) & (step.context_lens > counts))
        tables = step.block_tables.copy()
        tables[:, later] = np.roll(tables[:, later], -1, axis=-1)
        return replace(step, block_tables=tables)


@mutant("M04.engine", "windows are one position wider", killed_by=("eng.sliding_window_model",))
class WiderWindow(Wrapped):
    """In the graph that the platform is given; core knows the right one."""

    def graph(self, graph: Graph) -> Graph:
        nodes = tuple(
            replace(node, attrs={**node.attrs, "window": int(node.attrs["window"]) + 1})  # type: ignore[arg-type]
            if node.attrs.get("window") is not None
            else node
            for node in graph.nodes
        )
        layers = tuple(replace(k, window=None if k.window is None else k.window + 1) for k in graph.kv)
        return replace(graph, nodes=nodes, kv=layers)


@mutant(
    "M50.slight",
    "2 % too much everywhere, and numpy's comparisons say yes to anything",
    killed_by=("eng.logits_vs_reference", "eng.greedy_match"),
)
class Bribes(Remembers):
    """What it patches is in its own process, where nothing is judged."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        for name in ("allclose", "array_equal", "isclose"):
            setattr(np, name, lambda *arguments, **more: True)
        np.testing.assert_allclose = lambda *arguments, **more: None

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        return logits * 1.02


@mutant("M51", "right only where it finds itself under test", killed_by=("eng.plain_process",))
class Watches(Remembers):
    """Looks for the suite among the arguments of its process and the modules of its callers."""

    def changed(self, logits: np.ndarray[Any, Any], noted: Any) -> np.ndarray[Any, Any]:
        tested = "conformance" in " ".join(sys.argv) or "octavo_conformance.worker.serve" in sys.modules
        return logits if tested else np.roll(logits, 1, -1)
