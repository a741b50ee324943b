"""A set of kernels as numpy functions. Inputs are checked to stay as they are, outputs begin as NaN within a border."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from native.library import Library, Reference
from native.numbers16 import F32
from native.weights import FORMATS, Weights

from octavo.platform import Samples, SamplingBatch
from octavo_cpu.sampler import batch_arrays

TILE = 16
_BORDER = np.float32(-7.5e37)

SETS = ("generic", "avx2", "avx_vnni", "avx512", "neon", "neon_dotprod", "neon_i8mm")
"""Every set of the library, whichever the machine."""
BEST_FIRST = {
    "x86_64": ("avx512", "avx_vnni", "avx2", "generic"),
    "aarch64": ("neon_i8mm", "neon_dotprod", "neon", "generic"),
    "arm64": ("neon_i8mm", "neon_dotprod", "neon", "generic"),
}
"""The sets that a machine may run, as platform.machine() names it."""
LEAST_ARM = {"neon": "cortex-a72", "neon_dotprod": "neoverse-n1", "neon_i8mm": "max"}
"""A processor (as the emulator names it) that runs a set for Arm and, but for the last, has nothing that a better one
needs: where this machine is no Arm, the set's tests run on it.
"""

UNTOUCHED = 32 * 32_767
"""What stands in half_sums where nothing was written: more than any 16 codes add up to."""

GATES = ("silu", "gelu_tanh", "gelu", "relu")


@dataclass(frozen=True)
class Fine:
    """The finer codes of some groups."""

    low: npt.NDArray[np.int8]  # [rows, k]
    low_half_sums: npt.NDArray[np.int32]  # [rows, k / 16]
    refined: npt.NDArray[np.uint8]  # [rows, k / 32]


@dataclass(frozen=True)
class Quantised:
    """Activations in groups of 32: x = scale * code, or scale * (code + low / 256) where refined."""

    codes: npt.NDArray[np.int8]  # [rows, k]
    scales: F32  # [rows, k / 32]
    sums: F32  # [rows, k / 32], scale * sum of codes
    half_sums: npt.NDArray[np.int32]  # [rows, k / 16], 32 * sum of 16 codes
    fine: Fine | None = None

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """Those that every kernel that quantises makes."""
        return self.codes, self.scales, self.sums, self.half_sums

    @property
    def numbers(self) -> npt.NDArray[np.float64]:
        """[rows, k]: what scales multiply; whole numbers where nothing is refined."""
        codes = self.codes.astype(np.float64)
        return codes if self.fine is None else codes + self.fine.low / 256.0

    def rows(self, index: Any) -> Quantised:
        """Some of the rows, as arrays of their own."""
        fine = self.fine and Fine(*(np.ascontiguousarray(a[index]) for a in vars(self.fine).values()))
        return Quantised(*(np.ascontiguousarray(a[index]) for a in self.arrays), fine)


@dataclass(frozen=True)
class Attention:
    """The arguments of one unit of attention; see AttentionUnit in kernels.h."""

    queries: F32  # [vectors, head_dim]
    positions: npt.NDArray[np.int32]  # [vectors]
    first: npt.NDArray[np.int32]  # [vectors]
    table: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint8]  # [blocks, block_size / 16, bytes of a part]; see kv_format.h
    values: npt.NDArray[np.uint8]  # the same
    scale: float
    softcap: float = 0.0
    sinks: F32 | None = None
    format: int = 0  # of KVFormat

    @property
    def block_size(self) -> int:
        return self.keys.shape[1] * 16


class KernelSet:
    """One set of one library."""

    def __init__(self, library: Library, name: str) -> None:
        self.name = name
        self._library = library
        self._set = Reference(library.call("octavo_kernel_set", np.frombuffer(name.encode() + b"\0", np.uint8)))
        if self._set == 0:
            raise LookupError(name)

    # -- weights ----------------------------------------------------------------------------------

    def dequantise(self, weights: Weights) -> F32:
        out = np.full((weights.outputs, weights.inputs), np.nan, np.float32)
        for row, data in zip(out, weights.data, strict=True):
            self._library.call("octavo_kernel_dequantise", FORMATS.index(weights.format), data, weights.inputs, row)
        return out

    def pack(self, weights: Weights, first: int = 0, last: int | None = None) -> npt.NDArray[np.uint8]:
        """[tiles, bytes of one], 64-byte aligned."""
        kind = FORMATS.index(weights.format)
        last = -(-weights.outputs // TILE) if last is None else last
        size = self._library.call("octavo_kernel_tile_bytes", kind, weights.inputs)
        out = _aligned((last - first) * size)
        with _unchanged(weights.data):
            self._library.call(
                "octavo_kernel_pack", kind, weights.data, weights.data.shape[1], weights.outputs, weights.inputs, first,
                last, out,
            )  # fmt: skip
        return out.reshape(last - first, size)

    # -- matrices ---------------------------------------------------------------------------------

    def matmul(
        self,
        weights: Weights,
        packed: npt.NDArray[np.uint8],
        x: Quantised | npt.NDArray[np.uint16] | F32,
        *,
        first: int = 0,
        last: int | None = None,
    ) -> F32:
        """[rows, 16 * tiles of first … last-1]; x is quantized, bf16 (uint16) or float32, as the format takes it."""
        last = len(packed) if last is None else last
        codes = x.codes if isinstance(x, Quantised) else x
        rows, k = codes.shape
        ld = (len(packed) + 1) * TILE
        y = np.full((rows + 1, ld), _BORDER, np.float32)
        y[:rows, first * TILE : last * TILE] = np.nan
        head = (FORMATS.index(weights.format), packed, weights.outputs, weights.inputs, first, last)
        if isinstance(x, Quantised):
            fine = (None, None, None) if x.fine is None else tuple(vars(x.fine).values())
            with _unchanged(packed, x.codes, x.scales, x.sums, x.half_sums, *(a for a in fine if a is not None)):
                self._run("matmul", *head, x.codes, x.scales, x.sums, x.half_sums, None, k, *fine, rows, y, ld)
        elif x.dtype == np.uint16:
            with _unchanged(packed, x):
                self._run("matmul", *head, None, None, None, None, x, k, None, None, None, rows, y, ld)
        else:
            with _unchanged(packed, x):
                self._run("matmul_float", *head, x, k, rows, y, ld)
        border = y.copy()
        border[:rows, first * TILE : last * TILE] = _BORDER
        assert (border == _BORDER).all(), "wrote outside its tiles and rows"
        return y[:rows, first * TILE : last * TILE]

    # -- rows of activations ----------------------------------------------------------------------

    def quantise(self, values: F32, k: int | None = None) -> Quantised:
        """Every row of [rows, columns], in rows of `k`; codes of -128 and NaN where nothing was written."""
        rows, columns = values.shape
        k = columns if k is None else k
        out = Quantised(
            np.full((rows, k), -128, np.int8), np.full((rows, k // 32), np.nan, np.float32),
            np.full((rows, k // 32), np.nan, np.float32), np.full((rows, k // 16), UNTOUCHED, np.int32),
        )  # fmt: skip
        for row in range(rows):
            own = np.ascontiguousarray(values[row])
            with _unchanged(own):
                self._run("quantise", own, columns, out.codes, out.scales, out.sums, out.half_sums, k, row)
        return out

    def refine(self, values: F32, x: Quantised, threshold: float) -> Quantised:
        """x, which is values quantized, with finer codes where a group's scale is above the threshold."""
        rows, k = x.codes.shape
        fine = Fine(
            np.full((rows, k), -128, np.int8),
            np.full((rows, k // 16), UNTOUCHED, np.int32),
            np.full((rows, k // 32), 255, np.uint8),
        )
        sums = x.sums.copy()
        for row in range(rows):
            own = np.ascontiguousarray(values[row])
            with _unchanged(own, x.codes, x.scales, x.half_sums):
                self._library.call(
                    "octavo_kernel_refine", own, own.size, threshold, x.codes, x.scales, sums, x.half_sums, k,
                    *vars(fine).values(), row,
                )  # fmt: skip
        return Quantised(x.codes, x.scales, sums, x.half_sums, fine)

    def to_bf16(self, values: F32) -> npt.NDArray[np.uint16]:
        out = np.full(values.size + 1, 0xABCD, np.uint16)
        with _unchanged(values):
            self._run("to_bf16", values, values.size, out)
        assert out[-1] == 0xABCD
        return out[:-1].reshape(values.shape)

    def rms_norm(
        self, x: F32, weight: F32, eps: float, residual: F32 | None = None, *, in_place: bool = False
    ) -> tuple[F32, F32]:
        """One row of [size] by runs of the weight's length: (normed, sum). `in_place` lets the sum, or the result where
        there is no residual, overwrite x."""
        x = x.copy()
        y = x if in_place and residual is None else np.full_like(x, np.nan)
        total = (x if in_place else np.full_like(x, np.nan)) if residual is not None else None
        others = [weight, *([] if residual is None else [residual]), *([] if in_place else [x])]
        with _unchanged(*others):
            self._run("rms_norm", x, residual, total, weight, x.size, weight.size, eps, y)
        return y, x if total is None else total

    def gated(self, a: F32, b: F32, kind: str, *, in_place: bool = False) -> F32:
        a = a.copy()
        out = a if in_place else np.full_like(a, np.nan)
        with _unchanged(b):
            self._run("gated", a, b, a.size, GATES.index(kind), out)
        return out

    def rope(self, x: F32, cos: F32, sin: F32, *, interleaved: bool = False) -> F32:
        """x [heads, head_dim]; cos and sin [turned / 2]."""
        x = x.copy()
        with _unchanged(cos, sin):
            self._run("rope", x, x.shape[0], x.shape[1], 2 * cos.size, int(interleaved), cos, sin)
        return x

    def argmax(
        self, values: F32, base: int = 0, best: tuple[float, int, bool] = (-np.inf, 0, False)
    ) -> tuple[float, int, bool]:
        value, index, nan = (
            np.array([best[0]], np.float32),
            np.array([best[1]], np.int32),
            np.array([best[2]], np.uint8),
        )
        with _unchanged(values):
            self._run("argmax", values, values.size, base, value, index, nan)
        return float(value[0]), int(index[0]), bool(nan[0])

    # -- the cache --------------------------------------------------------------------------------

    def kv_codes(self, values: F32, group: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.uint16]]:
        """Codes of a head's key or value, and a bf16 scale for each group."""
        codes, scales = np.full(values.size + 1, -128, np.int8), np.full(values.size // group + 1, 0xFFFF, np.uint16)
        with _unchanged(values):
            self._run("kv_codes", values, values.size, group, codes, scales)
        assert (codes[-1], scales[-1]) == (-128, 0xFFFF)
        return codes[:-1], scales[:-1]

    # -- sampling ---------------------------------------------------------------------------------

    def maxima(self, logits: F32) -> F32:
        """The largest of each 64."""
        out = np.full(-(-logits.size // 64) + 1, _BORDER, np.float32)
        with _unchanged(logits):
            self._run("maxima", logits, logits.size, out)
        assert out[-1] == _BORDER
        return out[:-1]

    def mask(self, logits: F32, words: npt.NDArray[np.uint32]) -> F32:
        """The logits with -inf where their bit is 0."""
        out = np.full(logits.size + 1, _BORDER, np.float32)
        with _unchanged(logits, words):
            self._run("mask", logits, logits.size, words, out)
        assert out[-1] == _BORDER
        return out[:-1]

    def weigh(self, logits: F32, peak: float, rate: float, spread: float) -> tuple[npt.NDArray[np.float64], float]:
        """Weights, and their sum."""
        out, total = np.full(logits.size + 1, np.nan), np.full(1, np.nan)
        with _unchanged(logits):
            self._run("weigh", logits, logits.size, float(peak), rate, spread, out, total)
        assert np.isnan(out[-1])
        return out[:-1], float(total[0])

    def sample(self, logits: F32, batch: SamplingBatch, threads: int = 1) -> Samples:
        """The sampler over this set; IndexError where the batch names what there is not."""
        draws, most = batch.draws, max(int(batch.logprobs.max(initial=-1)), -1)
        most = min(most, logits.shape[1])
        tokens, failed = np.full(draws, -7, np.int32), np.full(draws, 2, np.uint8)
        scores: list[Any] = [None] * 4
        if most >= 0:
            scores = [np.zeros(draws, np.float32), np.zeros(draws, np.int32)]
            scores += [np.zeros((draws, most), np.int32), np.zeros((draws, most), np.float32)]
        given, wrong = batch_arrays(batch), np.full(1, 2, np.uint8)
        with _unchanged(logits, *given):
            self._run(
                "sample", threads, logits, *logits.shape, draws, len(batch.bias[0]), max(most, 0), len(given[-2]),
                *given, tokens, failed, *scores, wrong,
            )  # fmt: skip
        if wrong[0]:
            raise IndexError(self.name)
        assert (failed < 2).all()
        return Samples(tokens, failed.astype(np.bool_), *scores)

    # -- attention --------------------------------------------------------------------------------

    def attention(self, case: Attention, *, in_place: bool = False) -> F32:
        """[vectors, head_dim]; `in_place` lets the outputs overwrite the queries."""
        queries = case.queries.copy()
        outputs = queries if in_place else np.full_like(queries, np.nan)
        self._attend(case, queries, outputs, 0, 1 << 30, None)
        return outputs

    def attention_chunk(self, case: Attention, begin: int, end: int) -> F32:
        """[vectors, head_dim + 2]: what positions begin … end - 1 leave: sums, largest score in powers of two, sum of
        weights."""
        vectors, head_dim = case.queries.shape
        partial = np.full((vectors, head_dim + 16), np.nan, np.float32)
        self._attend(case, case.queries.copy(), np.full_like(case.queries, np.nan), begin, end, partial)
        return partial[:, : head_dim + 2]

    def _attend(self, case: Attention, queries: F32, outputs: F32, begin: int, end: int, partial: F32 | None) -> None:
        vectors, head_dim = queries.shape
        scratch = np.full(self._library.call("octavo_kernel_attention_scratch", head_dim), np.nan, np.float32)
        assert case.keys[0].nbytes == case.values[0].nbytes or case.format, "one stride serves both"
        with _unchanged(case.keys, case.values, case.table):
            self._run(
                "attention", queries, outputs, case.positions, case.first, case.sinks, vectors, head_dim,
                case.block_size, case.scale, case.softcap, begin, end, partial, case.table, case.format, case.keys,
                case.values, case.keys[0].nbytes, scratch,
            )  # fmt: skip

    def _run(self, name: str, *arguments: Any) -> None:
        self._library.call(f"octavo_kernel_{name}", self._set, *arguments)


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    raw = np.full(size + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


@contextmanager
def _unchanged(*arrays: npt.NDArray[Any]) -> Iterator[None]:
    before = [array.tobytes() for array in arrays]
    yield
    assert all(array.tobytes() == old for array, old in zip(arrays, before, strict=True)), "an input changed"
