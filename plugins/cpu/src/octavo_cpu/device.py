"""The host's processors as a device: packs weights, lowers graphs to native plans, holds the cache and the threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from octavo.graph import Graph
from octavo.platform import (
    Bucket,
    Communicator,
    KVLayout,
    LocalCommunicator,
    MemoryReport,
    Progress,
    Sampler,
    UnsupportedFeature,
)
from octavo.quant import WeightTensor
from octavo_cpu.binding import pointer
from octavo_cpu.executable import NativeExecutable
from octavo_cpu.kv_store import NativeKVStore
from octavo_cpu.lower import lower
from octavo_cpu.weights import NativeWeights, load_weights


class CpuDevice:
    """Meets `octavo.platform.Device`. ``kernels`` names an instruction set; empty takes the best the processor has."""

    def __init__(
        self, library: ctypes.CDLL, memory: Callable[[], MemoryReport], threads: int, kernels: str = ""
    ) -> None:
        self.memory = memory
        self.threads = threads
        self._library = library
        self._kernels = kernels
        unpinned = np.empty(0, np.int32)
        self._pool: Any = library.octavo_pool_new(threads, pointer(unpinned), 0)

    def load(self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress) -> NativeWeights:
        """See `Device.load`."""
        return load_weights(self._library, self._pool, graph, weights, self.memory().free, progress)

    def compile(self, graph: Graph, bucket: Bucket, weights: NativeWeights) -> NativeExecutable:
        """See `Device.compile`. Plans run steps of any size: the only bucket is the unbounded one."""
        return NativeExecutable(self._library, self._pool, self._kernels, graph, lower(graph), weights)

    def allocate_kv(self, layout: KVLayout, blocks: int) -> NativeKVStore:
        """See `Device.allocate_kv`."""
        return NativeKVStore(self._library, layout, blocks)

    def sampler(self) -> Sampler | None:
        """The host's sampler serves what is not plainly greedy."""
        return None

    def communicator(self, group: Sequence[int]) -> Communicator:
        """See `Device.communicator`."""
        if len(group) != 1:
            raise UnsupportedFeature(f"cpu: a model runs on 1 rank, not {len(group)}", feature="ranks")
        return LocalCommunicator()

    def health(self) -> str | None:
        """See `Device.health`. A thread that dies takes the process with it."""
        return None

    def close(self) -> None:
        """See `Device.close`. Idempotent; the threads end with the last executable."""
        pool, self._pool = self._pool, None
        if pool:
            self._library.octavo_pool_free(pool)
