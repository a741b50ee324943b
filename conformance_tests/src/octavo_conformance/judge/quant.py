"""Quantized weights: bytes made from codes and scales, and what they mean, independently of any library.

A format's weights are made from chosen codes rather than by rounding floats: then the truth is known exactly, and
nobody's quantiser is part of the test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F64
from octavo_conformance.judge.rng import Rng


@dataclass(frozen=True)
class Quantized:
    """A matrix in a format: its bytes as a checkpoint stores them [rows, row bytes], and its exact values."""

    format: str
    data: npt.NDArray[np.uint8]
    values: F64


def q8_0(rng: Rng, rows: int, columns: int) -> Quantized:
    """Blocks of 32: a float16 scale, then 32 signed bytes; value = scale * code."""
    codes = rng.integers(-127, 128, rows, columns // 32, 32).astype(np.int8)
    scales = (rng.uniform(rows, columns // 32, low=0.5, high=2.0) / 127).astype("<f2")
    data = np.concatenate([scales[..., None].view(np.uint8), codes.view(np.uint8)], axis=-1)
    values = scales.astype(np.float64)[..., None] * codes
    return Quantized("q8_0", np.ascontiguousarray(data.reshape(rows, -1)), values.reshape(rows, columns))


FORMATS = {"q8_0": q8_0}
"""Makers of random matrices, by the format's name: (rng, rows, columns) to a `Quantized`."""
