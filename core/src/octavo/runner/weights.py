"""Sampling weights: ``e**((l - peak) / temperature)``, defined to the last bit, with sums that are exact.

Every operation is one of IEEE 754 in float64, rounded to nearest even and never fused with another, so that any
processor can produce the same bits:

    y = max((l - peak) * (LOG2E / temperature), -64)
    n = y rounded to an integer; f = y - n, at most 1/2
    p = (((C[7] * f + C[6]) * f + … + C[0]) * f + 1): 2**f, within 1.1e-12 of it
    w = ((p * 2**n) + s) - s, s the smallest power of two that is not below the size of the vocabulary

The last line rounds to a multiple of s * 2**-52. Weights are at most 1, so any sum of them is at most s and has no
rounding error: it is the same in every order, in blocks, on any number of threads. What is rounded off comes, over a
whole vocabulary of 2**16 tokens, to less than a millionth of the most probable one; float32 logits know no better.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.platform.step import Floats

Weights = npt.NDArray[np.float64]

LOG2E = 1.4426950408889634
COEFFICIENTS = (
    0.6931471805412327, 0.2402265069474259, 0.05550410959228811, 0.009618129558838935,
    0.0013333434157560176, 0.0001540309828656179, 1.5314209223349525e-05, 1.3344183484134179e-06,
)  # fmt: skip
"""Minimax for the relative error over [-1/2, 1/2] (Remez), with a constant of exactly 1."""

_LEAST = -64.0  # 2**-64 is far below any grid: such a weight is 0, and 2**n stays a normal number
_CHUNK = 8192  # elements: 64 KiB, which stay in a second-level cache and which malloc does not give back


def spread(vocab: int) -> float:
    """``s`` for a vocabulary of this size."""
    return float(1 << (vocab - 1).bit_length())


def weigh(logits: Floats, peak: np.float32, temperature: np.float32, s: float) -> Weights:
    """The weights of ``logits``, none above ``peak`` and no NaN, at a temperature above 0."""
    weights = np.empty(len(logits))
    rate, high = LOG2E / np.float64(temperature), np.float64(peak)
    for start in range(0, len(logits), _CHUNK):
        w = weights[start : start + _CHUNK]
        f = logits[start : start + _CHUNK] - high
        f *= rate
        np.maximum(f, _LEAST, out=f)
        n = np.rint(f)
        f -= n
        np.multiply(f, COEFFICIENTS[-1], out=w)
        for coefficient in COEFFICIENTS[-2::-1]:
            w += coefficient
            w *= f
        w += 1.0
        w *= ((n.astype(np.int64) + 1023) << 52).view(np.float64)  # 2**n, as its bits
        w += s
        w -= s
    return weights
