"""Kernels as they may be, and as they must not be: what the tiers are calibrated with.

A right kernel sums in float32, in any order; here are eight orders that real ones use. A wrong one is off by something
that has been seen: sums in 16 bits, a scale, a term left out, a mask by one. Arguments are those of `lowp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from octavo_conformance.judge import floats, lowp, measure, oracle64, vacuity
from octavo_conformance.judge.floats import F32, F64, rounded, stored_input
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.verdict import Verdict

Sum = Callable[[F64], F32]
"""Terms [K, ...], exact in float64, to their sum in float32."""


def _after(terms: F64, kept: str = "f32") -> F32:
    """One after another; with ``kept`` the sum is rounded to that type every time."""
    total = np.zeros(terms.shape[1:], np.float32)
    for term in terms:
        total = rounded(term + total.astype(np.float64), kept)
    return total


def _tree(terms: F64) -> F32:
    """Halves, halves of halves, and so on."""
    sums = terms.astype(np.float32)
    while len(sums) > 1:
        half = len(sums) // 2
        rest = sums[2 * half :]
        sums = np.concatenate([sums[:half] + sums[half : 2 * half], rest])
    total: F32 = sums[0]
    return total


def _parts(terms: F64, count: int) -> F64:
    """[count, K / count, ...]: contiguous parts, filled up with zeros."""
    lacking = -len(terms) % count
    filled = np.concatenate([terms, np.zeros((lacking, *terms.shape[1:]))])
    return filled.reshape(count, -1, *terms.shape[1:])


def _split(terms: F64, count: int) -> F32:
    """``count`` parts summed apart, then their sums."""
    return _after(_after(_parts(terms, count).swapaxes(0, 1)).astype(np.float64))


def _lanes(terms: F64, count: int) -> F32:
    """``count`` running sums over every ``count``-th term, then a tree."""
    return _tree(_after(_parts(terms, -(-len(terms) // count))).astype(np.float64))


ORDERS: Mapping[str, Sum] = {
    "one after another": _after,
    "backwards": lambda terms: _after(terms[::-1]),
    "products rounded": lambda terms: _after(terms.astype(np.float32).astype(np.float64)),
    "8 lanes": partial(_lanes, count=8),
    "16 lanes": partial(_lanes, count=16),
    "tiles of 32": lambda terms: _split(terms, -(-len(terms) // 32)),
    "split in 4": partial(_split, count=4),
    "tree": _tree,
}
_HALF = partial(_after, kept="bf16")


@dataclass(frozen=True)
class Kernel:
    """One calibrated case: the truth, the yardstick, and outputs right and wrong, by name."""

    truth: F64
    own: F32
    dtype: str
    right: Mapping[str, F32]
    wrong: Mapping[str, F64 | F32]
    bound: F64 | None = None

    def measured(self) -> Iterator[tuple[str, bool, Verdict]]:
        """(name, whether it is right, the measurements) of every variant."""
        for good, outputs in ((True, self.right), (False, self.wrong)):
            for name, y in outputs.items():
                yield name, good, measure.budget(name, y, self.truth, self.own, self.dtype, bound=self.bound)


def _dot(x: F64, matrix: F64, order: Sum) -> F32:
    """x @ matrix.T, one row of x at a time, so that the terms stay small."""
    return np.stack([order(row[:, None] * matrix.T) for row in x])


def linear(rng: Rng, dtype: str, rows: int, inputs: int, outputs: int, stored_as: str | None = None) -> Kernel:
    """A linear map, its input stored as ``stored_as``; where that is codes there are no outliers, beside which codes
    lose so much that 2 % would not show.
    """
    x = rounded(rng.normal(rows, inputs) if stored_as else rng.outliers(rows, inputs), dtype)
    matrix = rounded(rng.normal(outputs, inputs) / np.sqrt(inputs), dtype)
    stored, m = stored_input(x, stored_as or dtype), matrix.astype(np.float64)
    (truth,) = oracle64.linear(x, [matrix])
    (own,) = lowp.linear(x, [matrix], dtype=dtype, stored_as=stored_as)
    return Kernel(
        truth, own, dtype,
        {name: rounded(_dot(stored, m, order), dtype) for name, order in ORDERS.items()},
        {"sums in bf16": rounded(_dot(stored, m, _HALF), dtype), "scaled": truth * vacuity.SCALED,
         "eight inputs dropped": truth - x[:, -8:].astype(np.float64) @ m[:, -8:].T},
    )  # fmt: skip


def rms_norm(rng: Rng, dtype: str, rows: int, width: int) -> Kernel:
    """A norm of small numbers, so that eps counts."""
    x, weight, eps = rounded(rng.outliers(rows, width) * 1e-2, dtype), rounded(rng.normal(width), dtype), 1e-5

    def normed(order: Sum) -> F32:
        mean = order(x.T.astype(np.float64) ** 2) / np.float32(width)
        inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
        return rounded(x * inverse[:, None] * weight, dtype)

    (truth,) = oracle64.rms_norm(x, weight, eps)
    size = np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1))[:, None]
    return Kernel(
        truth, lowp.rms_norm(x, weight, eps, dtype=dtype)[0], dtype,
        {name: normed(order) for name, order in ORDERS.items()},
        {"sums in bf16": normed(_HALF), "scaled": truth * vacuity.SCALED, "eps outside the root":
         x / (size + eps) * weight, "no eps": x / size * weight},
    )  # fmt: skip


def layer_norm(rng: Rng, dtype: str, rows: int, width: int) -> Kernel:
    """A norm with a mean that is not zero."""
    x, weight, eps = rounded(rng.outliers(rows, width) + 0.5, dtype), rounded(rng.normal(width), dtype), 1e-5

    def normed(order: Sum) -> F32:
        centred = x - (order(x.T.astype(np.float64)) / np.float32(width))[:, None]
        variance = order(centred.T.astype(np.float64) ** 2) / np.float32(width)
        return rounded(centred * (np.float32(1) / np.sqrt(variance + np.float32(eps)))[:, None] * weight, dtype)

    truth = oracle64.layer_norm(x, weight, eps)
    return Kernel(
        truth, lowp.layer_norm(x, weight, eps, dtype=dtype), dtype,
        {name: normed(order) for name, order in ORDERS.items()},
        {"sums in bf16": normed(_HALF), "scaled": truth * vacuity.SCALED,
         "mean not taken off": oracle64.rms_norm(x, weight, eps)[0]},
    )  # fmt: skip


def attention(rng: Rng, dtype: str, length: int, queries: int, size: float = 1.0) -> Kernel:
    """The last ``queries`` positions of a sequence, two query heads over one KV head.

    Queries are ``size`` times as large as keys. Where scores are small a wrong mask shows best; where they are large,
    whether they were kept in 16 bits.
    """
    spec = Attention(heads=2, kv_heads=1, head_dim=64, scale=0.125)
    q, k = rounded(rng.normal(length, 128) * size, dtype), rounded(rng.normal(length, 64), dtype)
    v = rounded(rng.outliers(length, 64), dtype)
    at = np.arange(length - queries, length)
    seen = oracle64.visible(spec, at, length)
    later, older = seen.copy(), seen.copy()
    later[np.arange(queries), np.minimum(at + 1, length - 1)] = True
    older[:, 0] = False
    truth = oracle64.attention(q, k, v, spec, at)
    wrong: dict[str, F64 | F32] = {
        "sums in bf16": _attended(q, k, v, at, dtype, _HALF),
        "scale 2 % too large": oracle64.attention(q * np.float32(1.02), k, v, spec, at),
        "scaled": truth * vacuity.SCALED,
    }
    if size > 1:
        wrong["scores in bf16"] = _attended(q, k, v, at, dtype, _after, scores="bf16")
    else:
        wrong["next token seen"] = oracle64.attention(q, k, v, spec, at, later)
        wrong["oldest token missed"] = oracle64.attention(q, k, v, spec, at, older)
    return Kernel(
        truth, lowp.attention(q, k, v, spec, at, dtype=dtype, kv_dtype=dtype), dtype,
        {name: _attended(q, k, v, at, dtype, order) for name, order in ORDERS.items()}, wrong,
        oracle64.attention_bound(q, k, v, spec, dtype, dtype, at),
    )  # fmt: skip


def _attended(q: F32, k: F32, v: F32, at: np.ndarray, dtype: str, order: Sum, scores: str = "f32") -> F32:
    keys, values, length = k.astype(np.float64), v.astype(np.float64), len(k)
    rows = []
    for p in at.tolist():
        heads = []
        for head in range(2):
            query = q[p, head * 64 : head * 64 + 64].astype(np.float64)
            products = rounded(order(query[:, None] * keys.T) * np.float32(0.125), scores)[: min(p + 1, length)]
            shares = np.exp(products - products.max())
            total = order(shares.astype(np.float64)[:, None])
            weights = rounded(shares, dtype).astype(np.float64)
            heads.append(order(weights[:, None] * values[: len(weights)]) / total)
        rows.append(np.concatenate(heads))
    return rounded(np.stack(rows), dtype)


Make = Callable[..., Kernel]
_KERNELS: tuple[tuple[str, Make, tuple[dict[str, int], ...], dict[str, object]], ...] = (
    ("linear", linear, (
        {"rows": 7, "inputs": 80, "outputs": 37}, {"rows": 16, "inputs": 256, "outputs": 96},
        {"rows": 4, "inputs": 4096, "outputs": 24},
    ), {}),
    ("linear of int8 codes", linear, (
        {"rows": 16, "inputs": 256, "outputs": 96}, {"rows": 4, "inputs": 2048, "outputs": 24},
    ), {"stored_as": "int8x32"}),
    ("rms_norm", rms_norm, ({"rows": 64, "width": 512}, {"rows": 16, "width": 4096}), {}),
    ("layer_norm", layer_norm, ({"rows": 64, "width": 512}, {"rows": 16, "width": 4096}), {}),
    ("attention", attention, tuple({"length": n, "queries": 32} for n in (64, 150, 300)), {}),
    ("attention, large scores", attention, tuple({"length": n, "queries": 32} for n in (64, 150)), {"size": 6.0}),
)  # fmt: skip
"""Name, how it is made, shapes from the smallest up, and what is the same for all of them."""
_IN_16_BITS = frozenset({"attention, large scores"})
"""In float32 whatever is kept in 16 bits shows anyway."""


def kernels(seed: int, *, quick: bool) -> Iterator[tuple[str, str, Kernel]]:
    """(name, dtype, case) of everything that is calibrated. ``quick`` takes the smallest shape of each alone."""
    for dtype in floats.UNIT:
        for name, make, shapes, more in _KERNELS:
            if dtype == "f32" and name in _IN_16_BITS:
                continue
            for shape in shapes[:1] if quick else shapes:
                rng = Rng("calibrate", name, dtype, *shape.values(), seed)
                yield name, dtype, make(rng, dtype, **shape, **more)
