"""Weights as checkpoints store them (the GGML project's blocks, octavo.quant's rows of integers), made up, and read
by numpy into exact float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from native.numbers16 import F32, F64, from_bf16, to_bf16

PLAIN = ("f32", "f16", "bf16")
GGML = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
INTEGERS = ("int8", "int4_g128", "int4_g64", "int4_g32", "uint4_g128", "uint4_g64", "uint4_g32")
QUANTIZED = GGML + INTEGERS
FORMATS = PLAIN + QUANTIZED
"""In the order of the library's own numbering."""

BLOCK = {"f32": (1, 4), "f16": (1, 2), "bf16": (1, 2), "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22),
         "q5_1": (32, 24), "q8_0": (32, 34), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210)}  # fmt: skip
"""Weights and bytes of a block of a plain format or GGML's."""

HALVES = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
"""Where a block holds its f16 scale and minimum."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Weights:
    """weight = scale * code + minimum, by groups of 32 along the inputs; Q6_K has a scale for each 16.

    With zero points the minimum is -scale * zero: scales have few enough bits here that float64 holds that.
    """

    format: str
    data: Bytes  # [outputs, row bytes]
    codes: npt.NDArray[np.int64]  # [outputs, inputs], as the library packs them: not below 0
    scale: F64  # [outputs, inputs]
    minimum: F64  # [outputs, inputs]

    @property
    def values(self) -> F64:
        return self.scale * self.codes + self.minimum

    @property
    def outputs(self) -> int:
        return len(self.data)

    @property
    def inputs(self) -> int:
        return self.codes.shape[1]


def random_weights(
    rng: np.random.Generator, format: str, outputs: int, inputs: int, *, scale: float | None = None
) -> Weights:
    """Weights of any codes; `scale` (a power of two) in place of random scales leaves out stored minimums."""
    if format in PLAIN:
        return plain_weights(format, rng.standard_normal((outputs, inputs)).astype(np.float32))
    if format in INTEGERS:
        return _random_integers(rng, format, outputs, inputs, scale)
    elements, size = BLOCK[format]
    blocks = rng.integers(0, 256, (outputs, inputs // elements, size), dtype=np.uint8)
    for at in HALVES[format]:
        if scale is not None:
            halves = np.full(blocks.shape[:2], scale if at != 2 else 0.0)
        else:
            halves = rng.uniform(0.002, 0.02, blocks.shape[:2]) * rng.choice([-1.0, 1.0], blocks.shape[:2])
        blocks[:, :, at : at + 2] = halves.astype("<f2")[..., None].view(np.uint8)
    return read(format, blocks.reshape(outputs, -1))


def plain_weights(format: str, values: F32) -> Weights:
    """Values stored as f32, f16 or bf16; they become what the format can hold."""
    stored = {"f32": values.astype("<f4"), "f16": values.astype("<f2"), "bf16": to_bf16(values).astype("<u2")}[format]
    held = from_bf16(to_bf16(values)) if format == "bf16" else stored
    exact = held.astype(np.float64)
    data = np.ascontiguousarray(stored).view(np.uint8).reshape(len(values), -1)
    return Weights(format, data, np.zeros(exact.shape, np.int64), np.zeros(exact.shape), exact)


def unit(format: str) -> int:
    """Rows must be a multiple of this many weights."""
    return int(format.partition("_g")[2] or 32) if format in INTEGERS else max(32, BLOCK[format][0])


def _random_integers(rng: np.random.Generator, format: str, outputs: int, inputs: int, scale: float | None) -> Weights:
    shape = (outputs, inputs // (inputs if format == "int8" else unit(format)))
    scales = (
        rng.uniform(0.002, 0.02, shape) * rng.choice([-1.0, 1.0], shape) if scale is None else np.full(shape, scale)
    )
    highest = 256 if format == "int8" else 16
    return integers(
        format, rng.integers(0, highest, (outputs, inputs)), scales.astype(np.float32), rng.integers(0, 17, shape)
    )


def integers(format: str, codes: npt.NDArray[np.int64], scales: F32, zeros: npt.NDArray[np.int64]) -> Weights:
    """Rows of ``int8`` (codes less 128), ``int4_g…`` (less 8) or ``uint4_g…`` (less their zero points).

    Codes are from 0 up; scales and zero points are [outputs, groups].
    """
    outputs, groups = scales.shape
    heads = np.ascontiguousarray(scales, "<f4").view(np.uint8).reshape(outputs, groups, 4)
    if format == "int8":
        zeros, stored = np.full_like(zeros, 128), (codes - 128).astype(np.int8).view(np.uint8)
    else:
        stored = (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
        if format.startswith("uint4"):
            heads = np.concatenate([heads, zeros[..., None].astype(np.uint8)], 2)
        else:
            zeros = np.full_like(zeros, 8)
    data = np.concatenate([heads, stored.reshape(outputs, groups, -1)], 2).reshape(outputs, -1)
    scale = np.repeat(scales.astype(np.float64), codes.shape[1] // groups, 1)
    return Weights(format, data, codes, scale, -scale * np.repeat(zeros, codes.shape[1] // groups, 1))


def read(format: str, data: Bytes) -> Weights:
    """What GGML's rows mean."""
    elements, size = BLOCK[format]
    blocks = data.reshape(len(data), -1, size)
    halves = [np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2").astype(np.float64) for at in HALVES[format]]
    shape = (*blocks.shape[:2], elements)
    if format == "q8_0":
        codes = np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8).astype(np.int64) + 128
        scale, minimum = halves[0], -128 * halves[0]
    elif format in ("q4_0", "q4_1", "q5_0", "q5_1"):
        codes = _nibbles(blocks[:, :, -16:])
        if format.startswith("q5"):
            codes += np.unpackbits(blocks[:, :, -20:-16], axis=2, bitorder="little").astype(np.int64) << 4
        scale = halves[0]
        minimum = halves[1] if format.endswith("1") else -(8 if format == "q4_0" else 16) * halves[0]
    elif format == "q6_k":
        codes = _six_bits(blocks)
        own = np.ascontiguousarray(blocks[:, :, 192:208]).view(np.int8).astype(np.float64)
        scale = halves[0] * np.repeat(own, 16, 2)
        minimum = -32 * scale
    else:
        codes = np.concatenate(
            [_nibbles(blocks[:, :, -128 + 32 * i : (-96 + 32 * i) or None], 32) for i in range(4)], 2
        )
        if format == "q5_k":
            fifth = np.unpackbits(blocks[:, :, 16:48, None], axis=3, bitorder="little").astype(np.int64)
            codes += fifth.transpose(0, 1, 3, 2).reshape(codes.shape) << 4
        scales, minimums = _six_bit_pairs(blocks[:, :, 4:16])
        scale = halves[0] * np.repeat(scales, 32, 2)
        minimum = -halves[1] * np.repeat(minimums, 32, 2)
    rows = (len(data), -1)
    return Weights(
        format,
        data,
        codes.reshape(rows),
        np.broadcast_to(scale, shape).reshape(rows),
        np.broadcast_to(minimum, shape).reshape(rows),
    )


def _nibbles(packed: Bytes, count: int = 16) -> npt.NDArray[np.int64]:
    """`count` low nibbles, then the high ones."""
    assert packed.shape[2] == count
    return np.concatenate([packed & 15, packed >> 4], 2).astype(np.int64)


def _six_bits(blocks: Bytes) -> npt.NDArray[np.int64]:
    """Q6_K: two halves of 128 weights, each 64 bytes of nibbles and 32 of bit pairs."""
    parts = []
    for half in range(2):
        low = blocks[:, :, 64 * half : 64 * half + 64].astype(np.int64)
        high = blocks[:, :, 128 + 32 * half : 160 + 32 * half].astype(np.int64)
        for quarter in range(4):
            nibbles = low[:, :, 32 * (quarter % 2) :][:, :, :32] >> (4 * (quarter // 2)) & 15
            parts.append(nibbles | (high >> (2 * quarter) & 3) << 4)
    return np.concatenate(parts, 2)


def _six_bit_pairs(packed: Bytes) -> tuple[F64, F64]:
    """Q4_K and Q5_K: eight scales and eight minimums of six bits in twelve bytes."""
    p = packed.astype(np.int64)
    low, high, mixed = p[:, :, :4], p[:, :, 4:8], p[:, :, 8:]
    scales = np.concatenate([low & 63, mixed & 15 | low >> 6 << 4], 2)
    minimums = np.concatenate([high & 63, mixed >> 4 | high >> 6 << 4], 2)
    return scales.astype(np.float64), minimums.astype(np.float64)
