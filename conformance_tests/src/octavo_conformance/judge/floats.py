"""The number types that platforms store, in numpy: rounding to them, their unit roundoff, int8 codes.

Values stay float32 or float64 arrays that hold only numbers of the type; the bits are made where they are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating]

UNIT = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
"""Half a unit in the last place, relative: the most that one rounding changes a normal number by."""

SMALLEST = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}
"""The smallest normal number; a device may flush what is below to zero."""


def bf16_bits(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest bf16, ties to even; a NaN stays one."""
    x = np.ascontiguousarray(values, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    quiet = ((bits >> np.uint64(16)).astype(np.uint16)) | np.uint16(0x40)
    return np.where(np.isnan(x), quiet, rounded)


def bf16_values(bits: npt.NDArray[np.uint16]) -> F32:
    """What the bits mean."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(values: npt.ArrayLike, dtype: str) -> F32:
    """``values`` rounded to ``dtype`` (f32, bf16, f16), as float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(values).astype(np.float32)
        if dtype == "f32":
            return x
        if dtype == "f16":
            return x.astype(np.float16).astype(np.float32)
        if dtype == "bf16":
            return bf16_values(bf16_bits(x)).reshape(x.shape)
    raise ValueError(f"there is no float type {dtype!r}; there are {', '.join(UNIT)}")


@dataclass(frozen=True)
class Codes:
    """int8 codes of groups along the last axis, each group with one float32 scale: value = scale * code."""

    codes: npt.NDArray[np.int8]
    scales: F32
    group: int

    @property
    def values(self) -> F64:
        """What they mean, exactly."""
        return self.codes.astype(np.float64) * np.repeat(self.scales.astype(np.float64), self.group, axis=-1)


def int8_groups(values: npt.ArrayLike, group: int) -> Codes:
    """``values`` [..., K] as int8: per group the scale largest/127, codes rounded to the nearest, ties to even.

    K is a multiple of ``group``. A group of zeros has a scale of 0, one with a NaN or an infinity a scale of NaN.
    """
    x = np.asarray(values, np.float32)
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // group, group)
    largest = np.abs(groups).max(-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0)).astype(np.float32)
        codes = np.rint(np.where(np.isfinite(largest)[..., None], groups * inverse[..., None], 0))
    scales = np.where(np.isfinite(largest), largest / np.float32(127), np.float32(np.nan)).astype(np.float32)
    return Codes(np.clip(codes, -127, 127).astype(np.int8).reshape(x.shape), scales, group)


def stored_input(values: npt.ArrayLike, kind: str) -> F64:
    """What a linear multiplies after it has stored its input as ``kind``: a float type, or ``int8x32``."""
    if kind.startswith("int8x"):
        return int8_groups(values, int(kind.removeprefix("int8x"))).values
    return rounded(values, kind).astype(np.float64)


def ulps(values: npt.ArrayLike, exact: npt.ArrayLike, dtype: str) -> F64:
    """How far apart, in units in the last place of ``dtype`` at the exact value; below the smallest normal number the
    unit is that number's.
    """
    truth = np.asarray(exact, np.float64)
    size = np.maximum(np.abs(truth), SMALLEST[dtype])
    unit = 2.0 ** np.floor(np.log2(size)) * UNIT[dtype] * 2
    return np.abs(np.asarray(values, np.float64) - truth) / unit


Rounding = Callable[[npt.ArrayLike], F32]


def rounding(dtype: str) -> Rounding:
    """`rounded` to one type."""
    return lambda values: rounded(values, dtype)
