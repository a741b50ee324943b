"""Quantized weights: bytes made from codes and scales, and what they mean, independently of any library.

A format's weights are made from chosen codes rather than by rounding floats: then the truth is known exactly, and
nobody's quantiser is part of the test. `FORMATS` knows every quantized format; `Format.matrix` is random,
`Format.build` makes what a probe wants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F64
from octavo_conformance.judge.rng import Rng

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Quantized:
    """A matrix in a format: its bytes as a checkpoint stores them [rows, row bytes], and its exact values."""

    format: str
    data: Bytes
    values: F64


@dataclass(frozen=True)
class Parts:
    """What is stored: codes [rows, columns], and for each group of them a whole number of steps of the scale, and of
    the minimum or the zero point. ``unit`` is the size of a step: one for each row, its ``minimum`` likewise.
    """

    codes: Ints
    steps: Ints
    offsets: Ints
    unit: F64
    minimum: F64


@dataclass(frozen=True)
class Format:
    """One format. Codes lie within ``low`` … ``high``; ``group`` of them share a scale (0: the whole row); ``block`` is
    what a row is a multiple of. ``offset`` says what else a group has: nothing, a minimum (added or subtracted), or a
    zero point; ``largest`` is its largest number of steps.
    """

    name: str
    low: int
    high: int
    neutral: int
    """The code of zero, where there is no offset."""
    group: int
    block: int
    offset: str
    largest: int
    encode: Callable[[Parts], tuple[Bytes, F64, F64]]
    """The bytes of each row, and the scales and minimums (or zero points) of its groups, as they came to be stored."""

    def groups(self, columns: int) -> int:
        """Groups of a row."""
        return columns // self.group if self.group else 1

    def build(
        self, codes: Ints, steps: Ints | None = None, offsets: Ints | None = None, unit: npt.ArrayLike = 1.0,
        minimum: npt.ArrayLike = 1.0,
    ) -> Quantized:  # fmt: skip
        """A matrix of codes [rows, columns] with scales of ``steps`` [rows, groups] (1, if left out) times ``unit``,
        and minimums of ``offsets`` times ``minimum``; zero points are ``offsets``.
        """
        rows, columns = codes.shape
        count = self.groups(columns)
        ones, zeros = np.ones((rows, count), np.int64), np.zeros((rows, count), np.int64)
        parts = Parts(
            codes,
            ones if steps is None else steps,
            zeros if offsets is None else offsets,
            np.broadcast_to(np.asarray(unit, np.float64), (rows,)).copy(),
            np.broadcast_to(np.asarray(minimum, np.float64), (rows,)).copy(),
        )
        data, scales, shifts = self.encode(parts)
        each = columns // count
        spread_scales, spread_shifts = (np.repeat(x, each, axis=1) for x in (scales, shifts))
        match self.offset:
            case "zero point":
                values = spread_scales * (codes - spread_shifts)
            case "minimum added":
                values = spread_scales * codes + spread_shifts
            case "minimum subtracted":
                values = spread_scales * codes - spread_shifts
            case _:
                values = spread_scales * (codes - self.neutral)
        return Quantized(self.name, np.ascontiguousarray(data.reshape(rows, -1)), values)

    def matrix(self, rng: Rng, rows: int, columns: int, *, balanced: bool = False) -> Quantized:
        """Random codes, scales and offsets; values of about 1 and below. ``balanced`` makes minimums and zero
        points near those that bring the mean to zero: in a whole model a mean would outgrow everything else, and beside
        one what rounded inputs lose hangs on how their errors happen to add up.
        """
        count = self.groups(columns)
        codes = rng.integers(self.low, self.high + 1, rows, columns)
        steps = rng.integers(16, 64, rows, count)
        span = max(abs(self.low - self.neutral), self.high - self.neutral)
        unit = rng.uniform(rows, low=0.5, high=2.0) / (64 * span)
        centre = (self.low + self.high) / 2
        if self.offset.startswith("minimum") and balanced:
            offsets = np.clip(steps + rng.integers(-8, 9, rows, count), 0, self.largest)
            return self.build(codes, steps, offsets, unit, -centre * unit if "added" in self.offset else centre * unit)
        if self.offset == "zero point":
            near = math.floor(centre)
            low, high = (near - 1, near + 2) if balanced else (self.low, self.high)
            offsets = rng.integers(low, high + 1, rows, count)
        else:
            offsets = rng.integers(0, self.largest + 1, rows, count) if self.offset else steps * 0
        return self.build(codes, steps, offsets, unit, rng.uniform(rows, low=0.2, high=1.0) / (self.largest or 1))


# -- bytes --------------------------------------------------------------------------------------------


def _f16(values: F64) -> tuple[Bytes, F64]:
    """The two bytes of each value as float16 along a new axis, and what it became."""
    stored = values.astype("<f2")
    return stored[..., None].view(np.uint8), stored.astype(np.float64)


def _f32(values: F64) -> tuple[Bytes, F64]:
    # No more digits than the 16-bit types of checkpoints have.
    stored = values.astype("<f2").astype("<f4")
    return stored[..., None].view(np.uint8), stored.astype(np.float64)


def _nibbles(low: Ints, high: Ints) -> Bytes:
    return (low | (high << 4)).astype(np.uint8)


def _high_bits(codes: Ints) -> Bytes:
    """Bit 4 of 32 codes as four bytes, the first code lowest."""
    bits = ((codes >> 4) & 1).astype(np.uint32)
    packed = (bits << np.arange(32, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    raw: Bytes = packed.astype("<u4")[..., None].view(np.uint8)
    return raw


def _blocks(parts: Parts, group: int) -> tuple[Ints, F64, F64]:
    """Codes [rows, groups, group], the scale and the minimum that each group is to have."""
    codes = parts.codes.reshape(len(parts.codes), -1, group)
    return codes, parts.unit[:, None] * parts.steps, parts.minimum[:, None] * parts.offsets


def _plain_q(bits: int, minimum: bool) -> Callable[[Parts], tuple[Bytes, F64, F64]]:
    """q4_0, q4_1, q5_0, q5_1: per 32 a float16 scale, a float16 minimum if any, the fifth bits if any, then nibbles
    of which byte i holds the codes i and i + 16.
    """

    def encode(parts: Parts) -> tuple[Bytes, F64, F64]:
        codes, scales, shifts = _blocks(parts, 32)
        head, scales = _f16(scales)
        fields = [head]
        second, shifts = _f16(shifts)
        if minimum:
            fields.append(second)
        if bits == 5:
            fields.append(_high_bits(codes))
        fields.append(_nibbles(codes[..., :16] & 15, codes[..., 16:] & 15))
        return np.concatenate(fields, axis=-1), scales, shifts

    return encode


def _q8_0(parts: Parts) -> tuple[Bytes, F64, F64]:
    """Per 32 a float16 scale, then signed bytes."""
    codes, scales, shifts = _blocks(parts, 32)
    head, scales = _f16(scales)
    return np.concatenate([head, codes.astype(np.int8).view(np.uint8)], axis=-1), scales, shifts


def _k_scales(steps: Ints, offsets: Ints) -> Bytes:
    """Eight 6-bit scales and minimums in twelve bytes: four of each whole, whose top two bits hold those of the other
    four, whose low nibbles share the last four bytes.
    """
    packed = np.zeros((*steps.shape[:-1], 12), np.int64)
    packed[..., 0:4] = (steps[..., :4] & 63) | ((steps[..., 4:] >> 4) << 6)
    packed[..., 4:8] = (offsets[..., :4] & 63) | ((offsets[..., 4:] >> 4) << 6)
    packed[..., 8:12] = (steps[..., 4:] & 15) | ((offsets[..., 4:] & 15) << 4)
    return packed.astype(np.uint8)


def _q45_k(bits: int) -> Callable[[Parts], tuple[Bytes, F64, F64]]:
    """q4_k, q5_k: per 256 two float16 units, twelve bytes of scales and minimums for eight groups, the fifth bits
    (bit g of byte i is that of code i of group g), then nibbles: of two groups, one low, one high.
    """

    def encode(parts: Parts) -> tuple[Bytes, F64, F64]:
        rows = len(parts.codes)
        codes = parts.codes.reshape(rows, -1, 8, 32)
        blocks = codes.shape[1]
        unit_bytes, unit = _f16(np.repeat(parts.unit[:, None], blocks, 1))
        minimum_bytes, minimum = _f16(np.repeat(parts.minimum[:, None], blocks, 1))
        steps, offsets = (x.reshape(rows, blocks, 8) for x in (parts.steps, parts.offsets))
        fields = [unit_bytes, minimum_bytes, _k_scales(steps, offsets)]
        if bits == 5:
            high = ((codes >> 4) & 1) << np.arange(8)[:, None]
            fields.append(high.sum(2).astype(np.uint8))
        fields.append(_nibbles(codes[:, :, 0::2] & 15, codes[:, :, 1::2] & 15).reshape(rows, blocks, 128))
        data = np.concatenate(fields, axis=-1)
        scales, shifts = (u[..., None] * n for u, n in ((unit, steps), (minimum, offsets)))
        return data, scales.reshape(rows, -1), shifts.reshape(rows, -1)

    return encode


def _q6_k(parts: Parts) -> tuple[Bytes, F64, F64]:
    """Per 256, in two halves of 128: low nibbles (of 64 bytes, byte i has the codes i and i + 64), then the top two
    bits (of 32 bytes, byte i has those of i, i + 32, i + 64, i + 96), sixteen signed scales, a float16 unit.
    """
    rows = len(parts.codes)
    codes = parts.codes.reshape(rows, -1, 2, 4, 32)
    blocks = codes.shape[1]
    low = codes & 15
    nibbles = _nibbles(low[:, :, :, :2], low[:, :, :, 2:]).reshape(rows, blocks, 128)
    high = ((codes >> 4) << (2 * np.arange(4))[:, None]).sum(3).astype(np.uint8).reshape(rows, blocks, 64)
    steps = parts.steps.reshape(rows, blocks, 16)
    unit_bytes, unit = _f16(np.repeat(parts.unit[:, None], blocks, 1))
    data = np.concatenate([nibbles, high, steps.astype(np.int8).view(np.uint8), unit_bytes], axis=-1)
    return data, (unit[..., None] * steps).reshape(rows, -1), np.zeros(parts.steps.shape)


def _int8(parts: Parts) -> tuple[Bytes, F64, F64]:
    """A row: a float32 scale, then signed bytes."""
    head, scales = _f32(parts.unit[:, None] * parts.steps)
    data = np.concatenate([head.reshape(len(head), 4), parts.codes.astype(np.int8).view(np.uint8)], axis=-1)
    return data, scales, np.zeros(scales.shape)


def _int4(group: int, zero: bool) -> Callable[[Parts], tuple[Bytes, F64, F64]]:
    """Per group a float32 scale, a zero point of one byte if any, then nibbles, the code of even index low."""

    def encode(parts: Parts) -> tuple[Bytes, F64, F64]:
        codes, scales, _ = _blocks(parts, group)
        head, scales = _f32(scales)
        fields = [head]
        if zero:
            fields.append(parts.offsets[..., None].astype(np.uint8))
        fields.append(_nibbles(codes[..., 0::2], codes[..., 1::2]))
        return np.concatenate(fields, axis=-1), scales, parts.offsets.astype(np.float64)

    return encode


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("q4_0", 0, 15, 8, 32, 32, "", 0, _plain_q(4, False)),
        Format("q4_1", 0, 15, 0, 32, 32, "minimum added", 63, _plain_q(4, True)),
        Format("q5_0", 0, 31, 16, 32, 32, "", 0, _plain_q(5, False)),
        Format("q5_1", 0, 31, 0, 32, 32, "minimum added", 63, _plain_q(5, True)),
        Format("q8_0", -127, 127, 0, 32, 32, "", 0, _q8_0),
        Format("q4_k", 0, 15, 0, 32, 256, "minimum subtracted", 63, _q45_k(4)),
        Format("q5_k", 0, 31, 0, 32, 256, "minimum subtracted", 63, _q45_k(5)),
        Format("q6_k", 0, 63, 32, 16, 256, "", 0, _q6_k),
        Format("int8", -127, 127, 0, 0, 32, "", 0, _int8),
        *(Format(f"int4_g{n}", 0, 15, 8, n, n, "", 0, _int4(n, False)) for n in (128, 64, 32)),
        *(Format(f"uint4_g{n}", 0, 15, 0, n, n, "zero point", 255, _int4(n, True)) for n in (128, 64, 32)),
    )
}
"""Every quantized format, by name."""
