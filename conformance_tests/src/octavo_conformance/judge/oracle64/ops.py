"""Every op but rope and attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F64

erfc = np.vectorize(math.erfc, otypes=[np.float64])
"""1 - erf, element by element."""


def _exact(values: npt.ArrayLike) -> F64:
    return np.asarray(values, np.float64)


def _silu(x: F64) -> F64:
    """x / (1 + e^-x); where e^-x overflows the quotient is 0, as its limit is."""
    with np.errstate(over="ignore", invalid="ignore"):
        y = x / (1 + np.exp(-x))
    return np.where(np.isneginf(x), -0.0, y)


def _gelu(x: F64) -> F64:
    """x times the standard normal distribution function, which erfc gives without cancellation on the left."""
    with np.errstate(invalid="ignore"):
        y = x * 0.5 * erfc(-x / math.sqrt(2.0))
    return np.where(np.isneginf(x), -0.0, y)


def _gelu_tanh(x: F64) -> F64:
    """x (1 + tanh(z)) / 2, z = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 + e^-2z) so that nothing cancels."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)
        y = x / (1 + np.exp(-2 * z))
    return np.where(np.isneginf(x), -0.0, y)


def _relu(x: F64) -> F64:
    return np.where(np.isnan(x), x, np.where(x > 0, x, 0.0))


ACTIVATIONS: dict[str, Callable[[F64], F64]] = {
    "silu": _silu, "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": _relu,
}  # fmt: skip


def activation(x: npt.ArrayLike, kind: str) -> F64:
    """``kind`` of each element."""
    return ACTIVATIONS[kind](_exact(x))


def gated_activation(gate: npt.ArrayLike, up: npt.ArrayLike, kind: str) -> F64:
    """activation(gate) * up."""
    return ACTIVATIONS[kind](_exact(gate)) * _exact(up)


def add(a: npt.ArrayLike, b: npt.ArrayLike) -> F64:
    """The sum."""
    return _exact(a) + _exact(b)


def mul(a: npt.ArrayLike, b: npt.ArrayLike) -> F64:
    """The product."""
    return _exact(a) * _exact(b)


def scale(x: npt.ArrayLike, factor: float) -> F64:
    """x * factor."""
    return _exact(x) * factor


def softcap(x: npt.ArrayLike, cap: float) -> F64:
    """cap * tanh(x / cap)."""
    return cap * np.tanh(_exact(x) / cap)


def map_ids(ids: npt.ArrayLike, divide: int = 1, modulo: int | None = None, add: int = 0) -> F64:
    """Each id divided, rounded down; the rest by modulo, if there is one; plus add."""
    quotients = [math.floor(i / divide) for i in np.asarray(ids).tolist()]
    return _exact([(q if modulo is None else q - modulo * math.floor(q / modulo)) + add for q in quotients])


def embed(ids: npt.ArrayLike, table: npt.ArrayLike) -> F64:
    """Rows of the table."""
    return np.stack([_exact(table)[i] for i in np.asarray(ids).tolist()])


def take_rows(x: npt.ArrayLike, rows: npt.ArrayLike) -> F64:
    """Rows of x."""
    return embed(rows, x)


def pool(x: npt.ArrayLike, starts: npt.ArrayLike, kind: str) -> F64:
    """Mean, first or last of each run of rows ``starts[i] : starts[i + 1]``."""
    rows, edges = _exact(x), np.asarray(starts).tolist()
    runs = [rows[a:b] for a, b in pairwise(edges)]
    if kind == "mean":
        return np.stack([run.sum(0) / len(run) for run in runs])
    return np.stack([run[{"first": 0, "last": -1}[kind]] for run in runs])


def linear(
    x: npt.ArrayLike, matrices: Sequence[npt.ArrayLike], biases: Sequence[npt.ArrayLike] = ()
) -> tuple[F64, ...]:
    """x times each matrix transposed, plus its bias."""
    outputs = [np.einsum("nk,mk->nm", _exact(x), _exact(m)) for m in matrices]
    return tuple(y + _exact(b) for y, b in zip(outputs, biases, strict=True)) if biases else tuple(outputs)


def rms_norm(
    x: npt.ArrayLike, weight: npt.ArrayLike, eps: float, offset: float = 0.0, residual: npt.ArrayLike | None = None
) -> tuple[F64, ...]:
    """Each run of len(weight) elements over its root mean square, times (offset + weight); with a residual the sum
    comes out as well.
    """
    total = _exact(x) if residual is None else _exact(x) + _exact(residual)
    w = _exact(weight)
    runs = total.reshape(-1, w.size)
    roots = np.sqrt(np.einsum("nw,nw->n", runs, runs) / w.size + eps)
    normed = (runs / roots[:, None] * (offset + w)).reshape(total.shape)
    return (normed,) if residual is None else (normed, total)


def layer_norm(x: npt.ArrayLike, weight: npt.ArrayLike, eps: float, bias: npt.ArrayLike | None = None) -> F64:
    """Each row less its mean, over its standard deviation, times weight, plus bias."""
    rows = _exact(x)
    centred = rows - (rows.sum(-1) / rows.shape[-1])[:, None]
    variance = np.einsum("nw,nw->n", centred, centred) / rows.shape[-1]
    y: F64 = centred / np.sqrt(variance + eps)[:, None] * _exact(weight)
    return y if bias is None else y + _exact(bias)
