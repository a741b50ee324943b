"""A native plan, ready to run: one native call per engine step, with the interpreter lock released."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from octavo.graph import Graph, RopeSpec, inverse_frequencies
from octavo.platform import Samples, StepInput, StepOutput, StepTimes
from octavo_cpu.binding import FORMATS, native_error, pointer
from octavo_cpu.kv_store import NativeKVStore
from octavo_cpu.lower import DOMAINS, GATES, OPS, POOLINGS, Program, Step
from octavo_cpu.machine import Ceilings
from octavo_cpu.profile import Facts, Profile, clocked_steps, measure_step
from octavo_cpu.threads import ForkGuard
from octavo_cpu.weights import NativeWeights


class NativeExecutable:
    """Meets `octavo.platform.BenchExecutable`. The work is done in `submit`.

    Where every draw of a step is plainly greedy the output matrix keeps each row's best token and no logits leave it;
    otherwise the logits come out, for `NativeSampler`. ``ceilings`` is asked for what `step_times` holds times against.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        pool: Any,
        kernels: str,
        graph: Graph,
        program: Program,
        weights: NativeWeights,
        forks: ForkGuard,
        ceilings: Callable[[], Ceilings],
    ) -> None:
        self._forks = forks
        self._ceilings = ceilings
        self._specs = graph.weights
        self._library = library
        self._vocab, self._scored, self._pooled = program.vocab, program.scored, program.pooled
        self.program = program
        self._weights = weights  # the native model points into them
        self._handle = library.octavo_model_new(pool, kernels.encode(), program.vocab)
        _Instantiation(library, self._handle, graph, weights).add(program)

    def __del__(self) -> None:
        if not self._forks.lost:  # in a fork there are no threads to join
            self._library.octavo_model_free(self._handle)

    def submit(self, step: StepInput, kv: NativeKVStore) -> StepOutput:
        """See `Executable.submit`. PlatformUnavailable in a fork of the process that loaded the model."""
        self._forks.check()
        if not kv.handle:
            raise RuntimeError("the KV store was closed before the step that uses it")
        arrays = [
            np.ascontiguousarray(array, np.int32)
            for array in (
                step.tokens, step.positions, step.query_starts, step.context_lens,
                step.slots, step.block_tables, step.sample_rows, step.copies,
            )
        ]  # fmt: skip
        samples = len(step.sample_rows)
        groups, rows, width = step.block_tables.shape
        sizes = np.array([len(step.tokens), rows, samples, groups, width, len(step.copies)], np.int32)
        addresses = (ctypes.c_void_p * len(arrays))(*map(pointer, arrays))
        if self._pooled:
            pooled = np.empty((rows, self._pooled), np.float32)
            self._run(kv, sizes, addresses, None, None, None, None, pointer(pooled))
            return StepOutput(pooled=pooled)
        if step.sampling.plain_greedy:
            value, index = np.empty(samples, np.float32), np.empty(samples, np.int32)
            nan = np.empty(samples, np.bool_)
            self._run(kv, sizes, addresses, None, pointer(value), pointer(index), pointer(nan), None)
            row = step.sampling.row
            return StepOutput(samples=Samples(index[row], (nan | ~np.isfinite(value))[row]))
        logits = np.empty((rows if self._scored == "R" else samples, self._vocab), np.float32)
        self._run(kv, sizes, addresses, pointer(logits), None, None, None, None)
        return StepOutput(logits=logits)

    def _run(self, kv: NativeKVStore, sizes: Any, addresses: Any, *results: int | None) -> None:
        status = self._library.octavo_run(
            self._handle, kv.handle, pointer(sizes), ctypes.addressof(addresses), *results
        )
        if status != 0:
            raise native_error(self._library)

    def collect(self, ticket: StepOutput) -> StepOutput:
        """See `Executable.collect`."""
        return ticket

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Clock every native step that runs inside; the profile is filled when the block ends.

        Profiles do not nest. Clocking costs two clock reads for each native step and thread.
        """
        if self._library.octavo_clock(self._handle, 1) != 0:
            raise native_error(self._library)
        profile = Profile()
        try:
            yield profile
            seconds = np.zeros((len(self.program.steps) + 1, 2))
            self._library.octavo_clock_read(self._handle, pointer(seconds))
            profile.times = clocked_steps(self.program, seconds)
        finally:
            self._library.octavo_clock(self._handle, 0)

    def step_times(self, step: StepInput, kv: NativeKVStore, rounds: int) -> StepTimes:
        """See `BenchExecutable.step_times`."""
        packed = {name: array.nbytes for name, array in self._weights.packed.items()}
        facts = Facts(self.program, self._specs, packed, kv.layout.dtype, self._ceilings())
        return measure_step(facts, step, lambda: self.submit(step, kv), self.profile, rounds)


class _Instantiation:
    """Hands a program to the library, which numbers what it is given."""

    def __init__(self, library: ctypes.CDLL, handle: Any, graph: Graph, weights: NativeWeights) -> None:
        self._library, self._handle, self._graph, self._weights = library, handle, graph, weights
        self._ids: dict[object, int] = {}

    def add(self, program: Program) -> None:
        """Everything, in the order in which it refers to one another."""
        for width in program.buffers:
            self._library.octavo_add_buffer(self._handle, width)
        for step in program.steps:
            integers = np.array(self._integers(step), np.int32)
            floats = np.array([step.eps, step.scale, step.softcap, step.refine], np.float32)
            self._library.octavo_add_step(self._handle, pointer(integers), pointer(floats))
        self._library.octavo_finish(self._handle)

    def _integers(self, step: Step) -> list[int]:
        """A step's integers, in the order of the library's Step."""
        return [
            OPS.index(step.op),
            DOMAINS.index(step.domain),
            *_filled(step.inputs, 3),
            *_filled(step.outputs, 4),
            *_filled([self._matrix(name) for name in step.matrices], 4),
            len(step.matrices),
            self._vector(step),
            self._rope(step.rope),
            step.width,
            step.heads,
            step.kv_heads,
            step.head_dim,
            step.group,
            step.slot,
            step.window,
            step.run,
            GATES.index(step.gate),
            step.feed,
            step.logits,
            self._small(step.bias),
            step.bidirectional,
            POOLINGS.index(step.pooling),
            step.table.positions,
            step.table.divide,
            step.table.modulo,
            step.table.add,
        ]

    def _matrix(self, name: str) -> int:
        if name not in self._ids:
            spec = self._graph.weights[name]
            self._ids[name] = self._library.octavo_add_matrix(
                self._handle, FORMATS.index(spec.format), *spec.shape, pointer(self._weights.packed[name])
            )
        return self._ids[name]

    def _vector(self, step: Step) -> int:
        """An embedding table, or a small vector with the step's offset added; -1 for none."""
        if not step.vector:
            return -1
        if step.op == "embed":
            table = self._weights.tables[step.vector]
            width = table.shape[-1]
            code, row = FORMATS.index(table.format.name), table.format.row_bytes(width)
            return int(self._library.octavo_add_table(self._handle, code, pointer(table.data), row, width))
        return self._small(step.vector, step.offset)

    def _small(self, name: str, offset: float = 0.0) -> int:
        """A vector with ``offset`` added; -1 for none."""
        if not name:
            return -1
        values = np.ascontiguousarray(self._weights.vectors[name] + np.float32(offset))
        return int(self._library.octavo_add_vector(self._handle, pointer(values), values.size))

    def _rope(self, spec: RopeSpec | None) -> int:
        if spec is None:
            return -1
        if spec not in self._ids:
            table = np.ascontiguousarray(inverse_frequencies(spec))
            self._ids[spec] = self._library.octavo_add_rope(
                self._handle, pointer(table), len(table), spec.head_dim, spec.interleaved
            )
        return self._ids[spec]


def _filled(values: Sequence[int], size: int) -> list[int]:
    return [*values, *[-1] * (size - len(values))]
