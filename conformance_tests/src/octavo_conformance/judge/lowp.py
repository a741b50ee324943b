"""The yardstick: the ops at a platform's own precision, losing what a right kernel may lose.

Storage is rounded where the contract says that values are stored; sums are float32, one term after another, which is
the least accurate of the orders that a kernel may choose. Arguments are those of `oracle64`, then the dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge import oracle64
from octavo_conformance.judge.floats import F32, F64, UNIT, rounded, stored_input
from octavo_conformance.judge.oracle64 import Attention, visible


def narrower(a: str, b: str) -> str:
    """Of two float types the one with fewer digits."""
    return a if UNIT[a] > UNIT[b] else b


def linear(
    x: npt.ArrayLike, matrices: Sequence[npt.ArrayLike], biases: Sequence[npt.ArrayLike] = (), *, dtype: str,
    stored_as: str | None = None,
) -> tuple[F32, ...]:  # fmt: skip
    """Products in float32, term after term, of the input as the platform stores it for this weight format
    (`Target.linear_input`); rounded to ``dtype``, and once more after the bias.
    """
    inputs = stored_input(x, stored_as or dtype)
    outputs = [rounded(_dot(inputs, np.asarray(m, np.float64)), dtype) for m in matrices]
    if biases:
        outputs = [rounded(y + rounded(b, dtype), dtype) for y, b in zip(outputs, biases, strict=True)]
    return tuple(outputs)


def _dot(x: F64, matrix: F64) -> F32:
    """x @ matrix.T as fused multiply-adds in float32, one term after another."""
    total = np.zeros((len(x), len(matrix)), np.float32)
    for k in range(x.shape[1]):
        total = (x[:, k, None] * matrix[None, :, k] + total.astype(np.float64)).astype(np.float32)
    return total


def _sum(terms: F64) -> F32:
    """Sums over the last axis in float32, one term after another."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for k in range(terms.shape[-1]):
        total = (terms[..., k] + total.astype(np.float64)).astype(np.float32)
    return total


def rms_norm(
    x: npt.ArrayLike, weight: npt.ArrayLike, eps: float, offset: float = 0.0, residual: npt.ArrayLike | None = None,
    *, dtype: str,
) -> tuple[F32, ...]:  # fmt: skip
    """The sum with the residual is stored before it is normed; the norm is float32 inside."""
    total = (
        rounded(x, dtype)
        if residual is None
        else rounded(np.asarray(x, np.float32) + np.asarray(residual, np.float32), dtype)
    )
    w = np.asarray(weight, np.float32)
    runs = total.reshape(-1, w.size)
    mean = _sum(runs.astype(np.float64) ** 2) / np.float32(w.size)
    inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
    normed = rounded((runs * inverse[:, None] * (np.float32(offset) + w)).reshape(total.shape), dtype)
    return (normed,) if residual is None else (normed, total)


def layer_norm(
    x: npt.ArrayLike, weight: npt.ArrayLike, eps: float, bias: npt.ArrayLike | None = None, *, dtype: str
) -> F32:
    """float32 inside, stored once."""
    rows = np.asarray(x, np.float32)
    width = np.float32(rows.shape[-1])
    centred = rows - (_sum(rows.astype(np.float64)) / width)[:, None]
    variance = _sum(centred.astype(np.float64) ** 2) / width
    y = centred * (np.float32(1) / np.sqrt(variance + np.float32(eps)))[:, None] * np.asarray(weight, np.float32)
    return rounded(y if bias is None else y + np.asarray(bias, np.float32), dtype)


def rope(
    x: npt.ArrayLike, positions: npt.ArrayLike, head_dim: int, theta: float = 10000.0, *, dtype: str, **options: object
) -> F32:
    """Angles in float64, their sines and cosines in float32, the turn in float32 with each product rounded."""
    turned = options.get("rotary_dim") or head_dim
    assert isinstance(turned, int)
    heads = np.asarray(x, np.float32).reshape(len(np.asarray(x)), -1, head_dim).copy()
    scaling = options.get("scaling")
    assert scaling is None or isinstance(scaling, dict)
    angles = np.asarray(positions, np.float64)[:, None] * oracle64.frequencies(turned, theta, scaling)
    cos, sin = (f(angles).astype(np.float32)[:, None, :] for f in (np.cos, np.sin))
    part = heads[..., :turned]
    if options.get("interleaved"):
        first, second = slice(0, None, 2), slice(1, None, 2)
    else:
        first, second = slice(0, turned // 2), slice(turned // 2, None)
    a, b = part[..., first].copy(), part[..., second].copy()
    part[..., first], part[..., second] = a * cos - b * sin, b * cos + a * sin
    return rounded(heads.reshape(np.asarray(x).shape), dtype)


def elementwise(exact: F64, dtype: str) -> F32:
    """An op on single elements, right but for the one rounding of its result."""
    return rounded(exact, dtype)


def activation(x: npt.ArrayLike, kind: str, *, dtype: str) -> F32:
    """float32 inside, every step rounded; the result stored once."""
    return rounded(_activated(np.asarray(x, np.float32), kind), dtype)


def gated_activation(gate: npt.ArrayLike, up: npt.ArrayLike, kind: str, *, dtype: str) -> F32:
    """The activation in float32, times up, stored once."""
    return rounded(_activated(np.asarray(gate, np.float32), kind) * np.asarray(up, np.float32), dtype)


def _activated(x: F32, kind: str) -> F32:
    one, half = np.float32(1), np.float32(0.5)
    if kind == "relu":
        return np.maximum(x, np.float32(0))
    if kind == "gelu":
        erf = 1 - oracle64.erfc(x * np.float32(np.sqrt(0.5)))
        return x * (half * (one + rounded(erf, "f32")))
    if kind == "gelu_tanh":
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * (x * x * x))
        # tanh by way of exp, as kernels have it: a few units of 1, which the sum with 1 then shows on the left.
        with np.errstate(over="ignore"):
            grown = rounded(np.exp(2 * inner.astype(np.float64)), "f32")
        return x * (half * (one + (one - np.float32(2) / (one + grown))))
    with np.errstate(over="ignore"):
        return x * (one / (one + rounded(np.exp(-x.astype(np.float64)), "f32")))


def attention(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, spec: Attention, queries: npt.ArrayLike | None = None,
    *, dtype: str, kv_dtype: str,
) -> F32:  # fmt: skip
    """Keys, values, queries and softmax weights rounded to the narrower of both types; scores, sums and the output's
    accumulator in float32; the output stored as ``dtype``.
    """
    inner = narrower(dtype, kv_dtype)
    at = np.arange(len(np.asarray(q))) if queries is None else np.asarray(queries)
    shared = spec.heads // spec.kv_heads
    heads = rounded(q, inner).reshape(-1, spec.heads, spec.head_dim)[at]
    keys, values = (
        np.repeat(rounded(x, inner).reshape(-1, spec.kv_heads, spec.head_dim), shared, axis=1) for x in (k, v)
    )
    scores = np.zeros((len(at), spec.heads, len(keys)), np.float32)
    for d in range(spec.head_dim):
        product = heads[:, :, d, None].astype(np.float64) * keys[:, :, d].T.astype(np.float64)
        scores = (product + scores.astype(np.float64)).astype(np.float32)
    scores = scores * np.float32(spec.scale)
    if spec.softcap is not None:
        cap = np.float32(spec.softcap)
        scores = cap * np.tanh(scores / cap)
    scores = np.where(visible(spec, at, len(keys))[:, None, :], scores, np.float32(-np.inf))
    extra = (
        np.full((1, spec.heads), -np.inf, np.float32)
        if spec.sinks is None
        else np.asarray(spec.sinks, np.float32)[None]
    )
    peak = np.maximum(scores.max(-1), extra)
    shares = np.exp(scores - peak[..., None])
    total = _sum(shares.astype(np.float64)) + np.exp(extra - peak)
    weights = rounded(shares, inner)
    mixed = np.zeros(heads.shape, np.float32)
    for n in range(len(keys)):
        product = weights[:, :, n, None].astype(np.float64) * values[n].astype(np.float64)
        mixed = (product + mixed.astype(np.float64)).astype(np.float32)
    return rounded((mixed / total[..., None]).reshape(len(at), -1), dtype)
