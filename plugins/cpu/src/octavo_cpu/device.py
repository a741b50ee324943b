"""The host's processors as a device: packs weights, lowers graphs to native plans, holds the cache and the threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo.graph import Graph
from octavo.platform import (
    ArtifactStore,
    Bucket,
    DeviceOutOfMemory,
    KernelTime,
    KVLayout,
    MemoryReport,
    Progress,
    Sampler,
)
from octavo.quant import WeightTensor
from octavo_cpu.bench import Bench, kernel_times
from octavo_cpu.binding import pointer
from octavo_cpu.executable import NativeExecutable
from octavo_cpu.kv_store import NativeKVStore, block_bytes
from octavo_cpu.lower import lower
from octavo_cpu.machine import INSTRUCTIONS, Ceilings, measure_ceilings, processor_name
from octavo_cpu.refinement import described, finer, refine_above
from octavo_cpu.sampler import NativeSampler
from octavo_cpu.threads import ForkGuard, Threads
from octavo_cpu.weights import NativeWeights, load_weights


class CpuDevice:
    """Meets `octavo.platform.BenchDevice`.

    ``kernels`` names an instruction set; empty takes the best the processor has. Packed weights are kept in
    ``artifacts``, by default nowhere.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        memory: Callable[[], MemoryReport],
        threads: Threads,
        kernels: str = "",
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.memory = memory
        self.threads = threads
        self._library = library
        self._kernels = kernels
        self._artifacts = artifacts or ArtifactStore()
        self._forks = ForkGuard()
        self._measured: Ceilings | None = None
        cores = np.array(threads.cores, np.int32)
        self._pool: Any = library.octavo_pool_new(threads.count, pointer(cores), len(cores))

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> NativeWeights:
        """See `Device.load`. What is packed from files is kept."""
        free, threads = self.memory().free, self.threads.count
        return load_weights(self._library, self._pool, graph, weights, free, progress, self._artifacts, files, threads)

    def compile(self, graph: Graph, bucket: Bucket, weights: NativeWeights, layout: KVLayout) -> NativeExecutable:
        """See `Device.compile`. Plans run steps of any size: the only bucket is the unbounded one."""
        return NativeExecutable(
            self._library,
            self._pool,
            self._kernels,
            graph,
            lower(graph, refine_above()),
            weights,
            self._forks,
            self.ceilings,
        )

    def kv_block_bytes(self, layout: KVLayout) -> int:
        """See `Device.kv_block_bytes`."""
        return block_bytes(layout)

    def allocate_kv(self, layout: KVLayout, blocks: int) -> NativeKVStore:
        """See `Device.allocate_kv`. The system promises more pages than there are, so that is looked at first."""
        needed, total = blocks * self.kv_block_bytes(layout), self.memory().total
        if needed > total:
            raise DeviceOutOfMemory(
                f"a KV pool of {blocks} blocks needs {needed / 2**30:.2f} GiB and there are {total / 2**30:.2f} GiB of "
                "memory; lower --memory-utilization"
            )
        return NativeKVStore(self._library, layout, blocks)

    def sampler(self) -> Sampler:
        """Native, for what is not plainly greedy; that is done within the step."""
        return NativeSampler(self._library, self._pool, self._kernels, self._forks)

    def report(self) -> Mapping[str, str]:
        """See `Device.report`. Measures the machine's ceilings, in about a second."""
        ceilings = self.ceilings()
        return {
            "processor": processor_name(),
            "kernels": ceilings.kernels,
            "instructions": INSTRUCTIONS[ceilings.kernels],
            "threads": str(self.threads),
            "read bandwidth": f"{ceilings.read_bytes / 1e9:.1f} GB/s, measured: a step reads each weight once",
            "int8 peak": f"{ceilings.int8_operations / 1e9:,.0f} Gop/s, measured: for quantized weights",
            "bf16 peak": f"{ceilings.bf16_operations / 1e9:,.0f} Gop/s, measured: for bf16 weights and attention",
            "f32 peak": f"{ceilings.f32_operations / 1e9:,.0f} Gop/s, measured: for f16 and f32 weights, and the rest",
            "activations": f"for quantized weights {described(refine_above())}; bf16 for bf16; float32 for the rest",
            "KV cache": "bf16" if finer() else "int8 for models with quantized weights, bf16 for others",
            "packed weights": f"kept in {self._artifacts.folder}" if self._artifacts.folder else "not kept",
        }

    def ceilings(self) -> Ceilings:
        """What all threads reach at best, measured at the first call, in little more than a second."""
        if self._measured is None:
            kernels = self._library.octavo_kernels(self._kernels.encode()).decode()
            self._measured = measure_ceilings(self._library, self._pool, self.threads.count, kernels)
        return self._measured

    def kernel_times(self, graph: Graph | None, only: str) -> Iterator[KernelTime]:
        """See `BenchDevice.kernel_times`. Each kernel runs on one thread, then on all, as plans run it."""
        self._forks.check()
        yield from kernel_times(Bench(self._library, self._pool, self._forks, self.ceilings()), graph, only)

    def health(self) -> str | None:
        """See `Device.health`. A thread that dies takes the process with it; a fork leaves the threads behind."""
        return self._forks.problem()

    def close(self) -> None:
        """See `Device.close`. Idempotent; the threads end with the last executable."""
        pool, self._pool = self._pool, None
        if pool and not self._forks.lost:
            self._library.octavo_pool_free(pool)
