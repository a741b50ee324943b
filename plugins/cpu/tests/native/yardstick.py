"""The kernels' arithmetic in numpy at their own precision, and the same in float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from native.kernels import Quantised
from native.numbers16 import F32, F64, from_bf16
from native.weights import INTEGERS, Weights

ULP = 2.0**-23
"""Of a float32 near 1; half of it is the largest relative error of one rounding."""


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """a * b + c of float32, rounded once (but for the rare case that rounding twice shows)."""
    return (np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)).astype(np.float32)


# -- quantized matrices ---------------------------------------------------------------------------


def exact_product(weights: Weights, x: Quantised) -> F64:
    """[rows, outputs], of the very codes and scales."""
    return (np.repeat(x.scales.astype(np.float64), 32, 1) * x.numbers) @ weights.values.T


def magnitude(weights: Weights, x: Quantised) -> F64:
    """What the terms that the kernel adds amount to without their signs: its rounding errors grow with it."""
    scales = np.repeat(x.scales.astype(np.float64), 32, 1)
    size = np.abs(scales * x.numbers) @ np.abs(weights.scale * weights.codes).T
    return size + np.abs(x.sums.astype(np.float64)) @ np.abs(weights.minimum[:, ::32]).T


def product(weights: Weights, x: Quantised) -> F32:
    """The same in float32, by pack.h's formula: group after group, y += (scale * own) * dot; y += minimum * sum.

    Codes less a zero point are whole numbers, and so is their dot product; a scale of the whole row comes last.
    """
    rows, groups = x.scales.shape
    y = np.zeros((rows, weights.outputs), np.float32)
    codes = x.numbers.reshape(rows, groups, 32)
    packed = weights.codes.astype(np.float64).reshape(-1, groups, 32)
    scale = weights.scale.astype(np.float32).reshape(-1, groups, 32)
    minimum = weights.minimum.astype(np.float32).reshape(-1, groups, 32)
    for g in range(groups):
        own = x.scales[:, g, None]
        if weights.format in INTEGERS:
            size = weights.scale.reshape(-1, groups, 32)[:, g]
            centred = packed[:, g] + weights.minimum.reshape(-1, groups, 32)[:, g] / size
            y = fma(codes[:, g] @ centred.T, own if weights.format == "int8" else scale[:, g, 0] * own, y)
            continue
        if weights.format == "q6_k":
            for half in (slice(0, 16), slice(16, 32)):
                dot = codes[:, g, half] @ (packed[:, g, half] - 32).T
                y = fma(dot, scale[:, g, half.start] * own, y)
            continue
        y = fma(codes[:, g] @ packed[:, g].T, scale[:, g, 0] * own, y)
        y = fma(minimum[:, g, 0], x.sums[:, g, None], y)
    return y * scale[:, 0, 0] if weights.format == "int8" else y


# -- plain matrices -------------------------------------------------------------------------------


def plain_product(weights: Weights, x: F32) -> F32:
    """float32, one input after another."""
    y = np.zeros((len(x), weights.outputs), np.float32)
    values = weights.values
    for k in range(weights.inputs):
        y = fma(x[:, k, None], values[:, k], y)
    return y


def activations(x: F32 | npt.NDArray[np.uint16]) -> F64:
    """Plain activations as float64, whichever their type."""
    return (from_bf16(x) if x.dtype == np.uint16 else x).astype(np.float64)
