"""Whether counts fit a distribution: the G-test. Seeds are fixed, so each test always sees the same numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

ALPHA = 0.001
"""A sampler that is right fails one new seed in a thousand."""

_Z = 3.0902  # the normal quantile of 1 - ALPHA


def quantile(df: int) -> float:
    """Wilson and Hilferty's approximation of the chi-square quantile of 1 - ALPHA, within 1 % from df = 3 on."""
    return df * (1 - 2 / (9 * df) + _Z * math.sqrt(2 / (9 * df))) ** 3


def g_statistic(counts: npt.NDArray[np.integer], expected: npt.NDArray[np.float64]) -> float:
    """Near chi-square where each expected count is above 5 or so."""
    seen = counts > 0
    return float(2 * (counts[seen] * np.log(counts[seen] / expected[seen])).sum())
