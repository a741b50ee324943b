"""Kernels, measured one by one as plans run them: ``octavo bench kernels``.

The native clock tells the time of each step of a small plan (`octavo_cpu.bench_cases`), the wait for the slowest thread
included. Before each run every thread reads a buffer larger than the caches, so that weights, keys and values come from
memory, as in a model whose layers take turns.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph, WeightSpec
from octavo.platform import KernelTime
from octavo.platform.host import host_memory
from octavo.quant import FORMATS as WEIGHT_FORMATS
from octavo.quant import WeightTensor, int4_weight, int8_weight
from octavo_cpu.bench_cases import TABLE_ROWS, Case, cases
from octavo_cpu.bench_shapes import Shapes
from octavo_cpu.binding import FORMATS, aligned, pointer
from octavo_cpu.cost import Load, Work, step_work
from octavo_cpu.executable import NativeExecutable
from octavo_cpu.kv_store import NativeKVStore
from octavo_cpu.machine import Ceilings, last_level_bytes, measure_ceilings
from octavo_cpu.threads import ForkGuard
from octavo_cpu.weights import NativeWeights

SECONDS = 0.1
"""Of each case at least, the emptying of the caches included."""
RUNS = 2
"""Of each case at least."""
_SMALLEST = 64 << 20  # bytes to read that empty the caches, where the system does not tell their size
_PART = 256  # outputs of a matrix that are made up; the others repeat them
_LOGITS = 1 << 17  # for argmax alone: few enough for a core's own cache

_HALVES = {"q6_k": (208,), "q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2)}
"""Where a block of a GGML format holds its f16 scale and minimum; the others of them have one scale, at 0."""
_SCALE = 0.01


@dataclass(frozen=True)
class Bench:
    """Where to measure: the device's pool, whose ceilings are known."""

    library: ctypes.CDLL
    pool: Any
    forks: ForkGuard
    ceilings: Ceilings


def kernel_times(bench: Bench, graph: Graph | None, only: str) -> Iterator[KernelTime]:
    """See `BenchDevice.kernel_times`: each case on one thread and then on all of the pool."""
    with _pools(bench) as pools:
        matrices = Matrices(bench)
        evict = aligned(min(max(_SMALLEST, 2 * last_level_bytes()), host_memory().free // 4))
        evict.fill(1)
        for case in cases(Shapes.of(graph) if graph else Shapes.common()):
            if only in case.kernel:
                weights = matrices.weights(case)
                yield from (
                    _measure(part, case, weights, evict)
                    for part in pools
                    if part.ceilings.threads == 1 or not case.one_row
                )
    if only in "argmax":
        yield _argmax(pools[0])


@contextmanager
def _pools(bench: Bench) -> Iterator[list[Bench]]:
    """One thread, measured anew, and all of them where there are more."""
    if bench.ceilings.threads == 1:
        yield [bench]
        return
    library, kernels = bench.library, bench.ceilings.kernels
    one = library.octavo_pool_new(1, None, 0)
    try:
        yield [Bench(library, one, bench.forks, measure_ceilings(library, one, 1, kernels)), bench]
    finally:
        library.octavo_pool_free(one)


def _measure(bench: Bench, case: Case, weights: NativeWeights, evict: npt.NDArray[np.uint8]) -> KernelTime:
    graph = Graph("kernels", "f32", {}, case.specs, (), {}, {}, ())
    executable = NativeExecutable(
        bench.library,
        bench.pool,
        bench.ceilings.kernels,
        graph,
        case.program,
        weights,
        bench.forks,
        lambda: bench.ceilings,
    )
    store = NativeKVStore(bench.library, case.layout, case.blocks)
    try:
        _fill(store)
        samples = _samples(bench, case, executable, store, evict)
    finally:
        store.close()
    packed = {name: array.nbytes for name, array in weights.packed.items()}
    work = step_work(case.program.steps[case.measured[0]], case.specs, packed, Load.of(case.step, case.layout.dtype))
    return _record(case.kernel, case.label, samples, work, bench.ceilings)


def _samples(
    bench: Bench, case: Case, executable: NativeExecutable, store: NativeKVStore, evict: npt.NDArray[np.uint8]
) -> list[float]:
    """Seconds of every measured step of as many runs as `SECONDS` holds, after one to warm up."""
    executable.submit(case.step, store)
    samples: list[float] = []
    begun, runs = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS or runs < RUNS:
        bench.library.octavo_ceiling_read(bench.pool, pointer(evict), evict.nbytes, 0.0)
        with executable.profile() as profile:
            executable.submit(case.step, store)
        runs += 1
        samples += [profile.times[i].seconds for i in case.measured]
    return samples


def _record(kernel: str, label: str, samples: list[float], work: Work, ceilings: Ceilings) -> KernelTime:
    return KernelTime(
        kernel,
        label,
        ceilings.threads,
        statistics.median(samples),
        min(samples),
        work.bytes,
        work.operations,
        work.arithmetic,
        ceilings.read_bytes if work.from_memory else None,
        ceilings.peak(work.arithmetic) if work.operations else None,
    )


def _argmax(bench: Bench) -> KernelTime:
    """The search for the best logit alone, called often enough to forget what a call costs."""
    values = np.random.default_rng(0).standard_normal(_LOGITS).astype(np.float32)
    value, index, nan = np.full(1, -np.inf, np.float32), np.zeros(1, np.int32), np.zeros(1, np.uint8)
    kernel_set, argmax = bench.library["octavo_kernel_set"], bench.library["octavo_kernel_argmax"]
    kernel_set.restype, argmax.restype = ctypes.c_void_p, None
    kernels = kernel_set(bench.ceilings.kernels.encode())
    addresses = [ctypes.c_void_p(pointer(array)) for array in (values, value, index, nan)]
    arguments = ctypes.c_void_p(kernels), addresses[0], ctypes.c_int64(_LOGITS), ctypes.c_int64(0), *addresses[1:]
    argmax(*arguments)
    samples: list[float] = []
    until = time.perf_counter() + SECONDS
    while not samples or time.perf_counter() < until:
        begun = time.perf_counter()
        argmax(*arguments)
        samples.append(time.perf_counter() - begun)
    work = Work(float(values.nbytes), float(_LOGITS))
    return _record("argmax", f"{_LOGITS}, 1 row", samples, work, bench.ceilings)


def _fill(store: NativeKVStore) -> None:
    """Random keys and values in every block: memory that was never written is not memory yet."""
    layout = store.layout
    shape = (2, layout.slots, layout.block_size, layout.kv_heads, layout.head_dim)
    block = np.random.default_rng(0).standard_normal(shape, np.float32)
    for index in range(store.blocks):
        store.write_block(index, block)


class Matrices:
    """Made-up weights for the cases, kept as long as cases with the same come."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._specs: Mapping[str, WeightSpec] = {}
        self._packed: dict[str, npt.NDArray[np.uint8]] = {}

    def weights(self, case: Case) -> NativeWeights:
        """The case's matrices, tables and vectors."""
        if case.specs != self._specs:
            self._packed.clear()  # the old ones go before the new ones come
            self._specs, self._packed = case.specs, {n: self._pack(spec) for n, spec in case.specs.items()}
        rng = np.random.default_rng(0)
        tables = {}
        for name, width in case.tables.items():
            rows = rng.standard_normal((TABLE_ROWS, width), np.float32)
            tables[name] = WeightTensor(WEIGHT_FORMATS["f32"], rows.shape, rows.view(np.uint8))
        vectors = {name: np.ones(width, np.float32) for name, width in case.vectors.items()}
        return NativeWeights(dict(self._packed), tables, vectors)

    def _pack(self, spec: WeightSpec) -> npt.NDArray[np.uint8]:
        outputs, inputs = spec.shape
        library, code = self._bench.library, FORMATS.index(spec.format)
        rows = random_rows(spec.format, min(outputs, _PART), inputs)
        part = aligned(library.octavo_packed_bytes(code, len(rows), inputs))
        library.octavo_pack(self._bench.pool, code, pointer(rows), rows.shape[1], len(rows), inputs, pointer(part))
        whole = aligned(library.octavo_packed_bytes(code, outputs, inputs))
        for start in range(0, len(whole), len(part)):
            piece = whole[start : start + len(part)]
            piece[:] = part[: len(piece)]
        return whole


def random_rows(form: str, outputs: int, inputs: int) -> npt.NDArray[np.uint8]:
    """Rows of weights as a checkpoint stores them, [outputs, row bytes]: any codes, small scales, no NaN."""
    rng = np.random.default_rng(0)
    stored = WEIGHT_FORMATS[form]
    if form == "int8":
        codes = rng.integers(-128, 128, (outputs, inputs), np.int8)
        return int8_weight(codes, np.full(outputs, _SCALE, np.float32)).data
    if form.startswith(("int4", "uint4")):
        pairs = rng.integers(0, 256, (outputs, inputs // 2), np.uint8)
        groups = (outputs, inputs // stored.group_elements)
        zeros = rng.integers(0, 16, groups, np.uint8) if stored.has_zero_point else None
        return int4_weight(pairs, np.full(groups, _SCALE, np.float32), zeros).data
    if stored.quantized:
        blocks = rng.integers(0, 256, (outputs, inputs // stored.block_elements, stored.block_bytes), np.uint8)
        for at in _HALVES.get(form, (0,)):
            blocks[:, :, at : at + 2] = np.array([_SCALE], "<f2").view(np.uint8)
        return blocks.reshape(outputs, -1)
    values = rng.standard_normal((outputs, inputs), np.float32)
    if form == "bf16":
        return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
    return values.astype("<f2" if form == "f16" else "<f4").view(np.uint8)
