"""Faults that show when something else goes wrong, or after a long time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import CheckpointError
from octavo.graph import Graph
from octavo.platform import Device, Executable, KVStore, Progress, StepInput, StepOutput
from octavo.quant import WeightTensor, format_named
from octavo.scheduler import Scheduler
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Altered, Wrapped

_kept: list[Any] = []


@mutant("R.no_rerun", "counts the tokens of a row itself", killed_by=("flt.kernel_exception", "flt.oom_mid_decode"))
class CountsItself(Wrapped):
    """A step that is run again is counted twice. Rows are known by their first block."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._counted: dict[int, int] = {}

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        contexts, counts = step.context_lens.copy(), np.diff(step.query_starts)
        most = step.block_tables.shape[-1] * store.layout.block_size
        for row in np.flatnonzero(counts > 0).tolist():
            block, count = int(step.block_tables[0, row, 0]), int(counts[row])
            begun = contexts[row] == count or block not in self._counted
            self._counted[block] = int(contexts[row]) if begun else self._counted[block] + count
            contexts[row] = min(self._counted[block], most)
        return super().submit(executable, replace(step, context_lens=contexts), store)


@mutant("R.hides_nan", "takes NaN for 0", killed_by=("flt.nan_weights",))
class HidesNan(Wrapped):
    """So that a broken model answers, with nonsense."""

    def output(self, output: StepOutput) -> StepOutput:
        if output.samples is not None:
            samples = output.samples
            output = replace(output, samples=replace(samples, failed=np.zeros_like(samples.failed)))
        if output.logits is not None:
            output = replace(output, logits=np.nan_to_num(output.logits))
        return output


class _Lenient(Mapping[str, WeightTensor]):
    """Zeros for what cannot be read."""

    def __init__(self, graph: Graph, weights: Mapping[str, WeightTensor]) -> None:
        self._graph, self._weights = graph, weights

    def __getitem__(self, name: str) -> WeightTensor:
        try:
            return self._weights[name]
        except CheckpointError:
            spec = self._graph.weights[name]
            stored = format_named(spec.format)
            shape = (*spec.shape[:-1], stored.row_bytes(spec.shape[-1]))
            return WeightTensor(stored, spec.shape, np.zeros(shape, np.uint8))

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


@mutant("R.swallows", "loads zeros for a weight that cannot be read", killed_by=("flt.corrupt_weights",))
class Swallows(Wrapped):
    """And says nothing."""

    def device(self, device: Device) -> Device:
        class Lenient(Altered):
            def load(
                self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
            ) -> object:
                return self.inner.load(graph, _Lenient(graph, weights), progress, files)

        return Lenient(device)  # the rest of it is the inner one's


@mutant("R.deaf", "does not end when it is told to", killed_by=("flt.sigterm_drain",))
class Deaf(Wrapped):
    """An SDK that takes the signals of its process, and forgets to give them back."""

    def device(self, device: Device) -> Device:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return device


@mutant("M40.request", "keeps 64 KiB of every request", killed_by=("soak.leak",))
class KeepsRequests(Wrapped):
    """Of every prompt, that is."""

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        prompts = int((np.diff(step.query_starts) > 1).sum())
        _kept.extend(np.ones(64 << 10, np.uint8) for _ in range(prompts))
        return super().submit(executable, step, store)


@mutant("M40.block", "an abort leaves a block behind", killed_by=("soak.leak",))
class KeepsBlocks(Wrapped):
    """A fault of core's, which the platform brings in with it."""

    def device(self, device: Device) -> Device:
        _after_abort(_keep_one)
        return device


def _keep_one(scheduler: Scheduler) -> None:
    if scheduler.kv.pool.free > 8:
        scheduler.kv.pool.take()


def _after_abort(then: Any) -> None:
    """Let every scheduler of this process do something more after it has aborted a request."""
    right = Scheduler.abort

    def abort(self: Scheduler, request_id: str, index: int | None = None) -> bool:
        done = right(self, request_id, index)
        then(self)
        return done

    Scheduler.abort = abort  # type: ignore[method-assign]
