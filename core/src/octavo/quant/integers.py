"""What rows of ``int8``, ``int4_g…`` and ``uint4_g…`` weights mean.

    int8        a row: its scale, then one int8 a weight                       weight = scale * code
    int4_gN     a block: its scale, then codes of N weights                    weight = scale * (code - 8)
    uint4_gN    a block: its scale, its zero point (uint8), then the codes     weight = scale * (code - zero)

A scale is a float32, little endian, which holds the float16 or bfloat16 of any checkpoint exactly. Of two 4-bit codes
in a byte the low one comes first. Codes are whole numbers, so that a weight is rounded once, by the multiplication.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.quant.formats import WeightFormat

SCALE_BYTES = 4
CENTRE = 8
"""The code that is zero in ``int4_g…``."""


def decode_int8(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Rows [R, bytes] as float32."""
    codes = rows[:, SCALE_BYTES:].view(np.int8).astype(np.float32)
    codes *= _scales(rows)
    return codes


def decode_int4(form: WeightFormat, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Rows [R, bytes] as float32."""
    blocks = rows.reshape(-1, form.block_bytes)
    packed = blocks[:, form.block_bytes - form.block_elements // 2 :]
    values = np.empty((len(blocks), form.block_elements), np.float32)
    values[:, 0::2] = packed & 15
    values[:, 1::2] = packed >> 4
    values -= blocks[:, SCALE_BYTES, None] if form.has_zero_point else np.float32(CENTRE)
    values *= _scales(blocks)
    return values.reshape(len(rows), -1)


def _scales(parts: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """The scale at the start of each part, [parts, 1]."""
    return np.ascontiguousarray(parts[:, :SCALE_BYTES]).view("<f4")
