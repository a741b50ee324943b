"""16-bit floats in numpy, and the distance between floats in units of the last place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def to_bf16(values: F32) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), (bits >> 16).astype(np.uint16) | 0x40, rounded)


def from_bf16(bits: npt.NDArray[np.uint16]) -> F32:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def through_bf16(values: F32) -> F32:
    return from_bf16(to_bf16(values))


def ulps(values: F32, exact: F64, floor: float = 2.0**-126) -> F64:
    """How far `values` lie from `exact`, in units of the last place of a float32 of that size.

    Below `floor` a unit is that of `floor`: there a kernel may fall short of the last bits, or flush to zero.
    """
    size = np.maximum(np.abs(exact), floor)
    unit = 2.0 ** (np.floor(np.log2(size)) - 23)
    return np.abs(values.astype(np.float64) - exact) / unit
