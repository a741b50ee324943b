"""A platform around another: every call goes through, and a mutant changes the one that it wants wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform import (
    Bucket,
    Capabilities,
    Device,
    Executable,
    KVLayout,
    KVStore,
    Plan,
    PlanRequest,
    Platform,
    PlatformInfo,
    Probe,
    Progress,
    Rank,
    Sampler,
    Samples,
    SamplingBatch,
    StepInput,
    StepOutput,
    Unsupported,
)  # fmt: skip
from octavo.quant import WeightTensor
from octavo.runner.sampler import HostSampler


class Wrapped:
    """Meets `Platform`. Override the members from ``graph`` on, which see everything that passes.

    A fault that lives in what a step is given overrides ``step``; one in what it brings, ``output``.
    """

    def __init__(self, inner: Platform) -> None:
        self.inner = inner

    @property
    def info(self) -> PlatformInfo:
        return self.inner.info

    def probe(self) -> Probe:
        return self.inner.probe()

    def capabilities(self) -> Capabilities:
        return self.inner.capabilities()

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        return self.inner.negotiate(request)

    def open(self, rank: Rank) -> Device:
        return _Device(self.device(self.inner.open(rank)), self)

    # -- what mutants override ------------------------------------------------------------------

    def device(self, device: Device) -> Device:
        """The device below all that follows; see `Altered`."""
        return device

    def graph(self, graph: Graph) -> Graph:
        """The graph that is loaded and compiled."""
        return graph

    def weights(self, weights: Mapping[str, WeightTensor]) -> Mapping[str, WeightTensor]:
        """What is loaded."""
        return weights

    def store(self, store: KVStore) -> KVStore:
        """The block pool that the suite reads and writes; steps run on the one inside."""
        return store

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        """A whole step."""
        return executable.submit(self.step(step, store.layout), store)

    def collect(self, executable: Executable, ticket: Any) -> StepOutput:
        """The end of a step."""
        return self.output(executable.collect(ticket))

    def step(self, step: StepInput, layout: KVLayout) -> StepInput:
        """What a step is given."""
        return step

    def sample(self, sampler: Sampler, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
        """Tokens from logits, by the device's sampler or the host's."""
        return sampler.sample(logits, batch)

    def output(self, output: StepOutput) -> StepOutput:
        """What a step brings."""
        return output


class Altered:
    """A device, or a store, or anything else, some of whose members a mutant replaces in a subclass."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Device:
    def __init__(self, inner: Device, mutant: Wrapped) -> None:
        self._inner, self._mutant = inner, mutant

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> object:
        return self._inner.load(self._mutant.graph(graph), self._mutant.weights(weights), progress, files)

    def compile(self, graph: Graph, bucket: Bucket, weights: Any, layout: KVLayout) -> Executable:
        return _Executable(self._inner.compile(self._mutant.graph(graph), bucket, weights, layout), self._mutant)

    def sampler(self) -> Sampler | None:
        inner = self._inner.sampler()
        changed = type(self._mutant).sample is not Wrapped.sample
        return _Sampler(inner or HostSampler(), self._mutant) if changed else inner

    def allocate_kv(self, layout: KVLayout, blocks: int) -> KVStore:
        return self._mutant.store(self._inner.allocate_kv(layout, blocks))


class _Sampler:
    def __init__(self, inner: Sampler, mutant: Wrapped) -> None:
        self._inner, self._mutant = inner, mutant

    def sample(self, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
        return self._mutant.sample(self._inner, logits, batch)


class _Executable:
    def __init__(self, inner: Executable, mutant: Wrapped) -> None:
        self._inner, self._mutant = inner, mutant

    def submit(self, step: StepInput, kv: Any) -> object:
        return self._mutant.submit(self._inner, step, getattr(kv, "inner", kv))

    def collect(self, ticket: Any) -> StepOutput:
        return self._mutant.collect(self._inner, ticket)
