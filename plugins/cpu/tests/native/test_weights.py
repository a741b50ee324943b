"""Weights: what the stored bytes mean, and where packing puts them."""

from __future__ import annotations

import numpy as np
import pytest
from native.kernels import TILE, KernelSet
from native.weights import BLOCK, FORMATS, GGML, INTEGERS, PLAIN, QUANTIZED, integers, random_weights, read, unit

from octavo.quant import WeightTensor, dequantise, format_named


@pytest.mark.parametrize("format", FORMATS)
def test_dequantising_equals_the_meaning_of_the_format_bit_for_bit(generic: KernelSet, format: str) -> None:
    weights = random_weights(np.random.default_rng(1), format, 40, 512)
    meaning = dequantise(WeightTensor(format_named(format), (40, 512), weights.data))
    assert generic.dequantise(weights).tobytes() == meaning.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_the_oracle_of_these_tests_reads_weights_as_the_format_means_them(format: str) -> None:
    weights = random_weights(np.random.default_rng(2), format, 40, 512)
    meaning = dequantise(WeightTensor(format_named(format), (40, 512), weights.data)).astype(np.float64)
    scale = np.abs(weights.scale * weights.codes) + np.abs(weights.minimum)
    assert (np.abs(weights.values - meaning) <= 2.0**-23 * scale).all()
    assert weights.values.std() > 0


@pytest.mark.parametrize("format", QUANTIZED)
def test_every_code_of_a_format_is_read(generic: KernelSet, format: str) -> None:
    weights = random_weights(np.random.default_rng(3), format, 16, 2048, scale=1.0)
    bits = format_named(format).bits
    assert np.unique(weights.codes).tolist() == list(range(2**bits))
    if format in ("q4_0", "q5_0", "q8_0", "int8") or format.startswith("int4"):
        assert (generic.dequantise(weights) == weights.codes - 2 ** (bits - 1)).all()


@pytest.mark.parametrize("format", GGML)
@pytest.mark.parametrize("bits", [0x0001, 0x03FF, 0x8400, 0x0000, 0x8000])
def test_subnormal_and_zero_scales_keep_their_value(generic: KernelSet, format: str, bits: int) -> None:
    weights = random_weights(np.random.default_rng(4), format, 4, 512, scale=1.0)
    size = BLOCK[format][1]
    blocks = weights.data.reshape(4, -1, size).copy()
    at = 208 if format == "q6_k" else 0
    blocks[:, :, at : at + 2] = np.array([bits], "<u2").view(np.uint8)
    weights = read(format, blocks.reshape(4, -1))
    assert np.array_equal(generic.dequantise(weights), weights.values.astype(np.float32))


@pytest.mark.parametrize("format", INTEGERS)
@pytest.mark.parametrize("scale", [0.0, 1e-38, 2.0**-24, 3.0517578e-05, 0.1, 1.0 + 2.0**-23, 70000.0])
def test_scales_that_no_16_bit_float_holds_keep_their_value(generic: KernelSet, format: str, scale: float) -> None:
    """What a scale means, and what the kernels multiply with: nothing between is rounded."""
    rng = np.random.default_rng(4)
    groups = 1 if format == "int8" else 512 // unit(format)
    scales, zeros = np.full((4, groups), scale, np.float32), rng.integers(0, 17, (4, groups))
    weights = integers(format, rng.integers(0, 256 if format == "int8" else 16, (4, 512)), scales, zeros)
    centred = weights.codes - np.repeat(
        zeros if format.startswith("uint4") else np.full_like(zeros, 128 if format == "int8" else 8), 512 // groups, 1
    )
    assert np.array_equal(generic.dequantise(weights), np.float32(scale) * centred.astype(np.float32))
    assert (_unpack(format, generic.pack(weights))[1][:4] == np.float32(scale)).all()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 40])
def test_packed_tiles_lie_as_described_with_zeros_beyond_the_last_output(
    generic: KernelSet, format: str, outputs: int
) -> None:
    """Read back by pack.h's description of a tile."""
    weights = random_weights(np.random.default_rng(5), format, outputs, 512)
    packed = generic.pack(weights)
    assert len(packed) == -(-outputs // TILE)
    if format in PLAIN:
        lanes = {"f32": (1, "<f4"), "f16": (1, "<f2"), "bf16": (2, "<u2")}[format]
        stored = (
            np.ascontiguousarray(packed).view(lanes[1]).reshape(len(packed), -1, TILE, lanes[0]).transpose(0, 2, 1, 3)
        )
        expected = np.zeros((len(packed) * TILE, 512), lanes[1])
        expected[:outputs] = weights.data.view(lanes[1])
        assert stored.tobytes() == expected.tobytes()
        return
    codes, scale, minimum = _unpack(format, packed)
    for found, wanted in ((codes, weights.codes), (scale, weights.scale), (minimum, weights.minimum)):
        assert np.array_equal(found[:outputs], wanted)
        assert not found[outputs:].any()


def _unpack(format: str, packed: np.ndarray) -> tuple[np.ndarray, ...]:
    """[16 * tiles, 512]: codes, scales and minimums of tiles of 512 inputs."""
    tiles, size = len(packed), 256 if "4_" in format else 512
    if format in INTEGERS:
        spans = 1 if format == "int8" else 512 // unit(format)
        head = -(-spans * (80 if format.startswith("uint4") else 64) // 64) * 64
        assert packed.shape[1] == head + 16 * size
        codes = packed[:, head:].reshape(tiles, 16, size)
        scale = np.ascontiguousarray(packed[:, : 64 * spans]).view("<f4").astype(np.float64).reshape(tiles, spans, TILE)
        zeros = packed[:, 64 * spans :][:, : TILE * spans].reshape(tiles, spans, TILE).astype(np.float64)
        if not format.startswith("uint4"):
            zeros = np.full_like(scale, 128.0 if format == "int8" else 8.0)
        scale, minimum = (np.repeat(a, 512 // spans, 1) for a in (scale, -scale * zeros))
    elif format == "q4_0":
        scale = np.repeat(_halves(packed[:, :512].reshape(tiles, 16, 32)), 32, 1)
        codes, minimum = packed[:, 512:].reshape(tiles, 16, size), -8.0 * scale
    elif format[-1] == "k":
        whole = packed.reshape(tiles, 2, 320 + 8 * size)
        header, codes = whole[:, :, :320], whole[:, :, 320:].reshape(tiles, 16, size)
        d, dmin = (_halves(header[:, :, at : at + 32]) for at in (0, 32))  # [tiles, super-blocks, columns]
        own = header[:, :, 64:].reshape(tiles, 2, 8, 2, TILE)
        if format == "q6_k":
            scale = np.repeat(d[:, :, None, None] * own.view(np.int8), 16, 3).reshape(tiles, 512, TILE)
            minimum = -32 * scale
        else:
            scale, minimum = (
                np.repeat(h[:, :, None] * own[:, :, :, i] * sign, 32, 2).reshape(tiles, 512, TILE)
                for i, (h, sign) in enumerate(((d, 1.0), (dmin, -1.0)))
            )
    else:
        whole = packed.reshape(tiles, 16, size + 64)
        codes = whole[:, :, :size]
        scale, minimum = (np.repeat(_halves(whole[:, :, size + at : size + at + 32]), 32, 1) for at in (0, 32))
    planes = codes.reshape(tiles, 16, -1, TILE, 4)
    if size == 256:
        planes = np.concatenate([planes & 15, planes >> 4], 2)
    by_column = planes.transpose(0, 3, 1, 2, 4).reshape(tiles * TILE, 512)
    return by_column, *(a.transpose(0, 2, 1).reshape(tiles * TILE, 512) for a in (scale, minimum))


def _halves(at: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(at).view("<f2").astype(np.float64)


@pytest.mark.parametrize("format", FORMATS)
def test_tiles_packed_apart_are_those_packed_together(generic: KernelSet, format: str) -> None:
    weights = random_weights(np.random.default_rng(6), format, 90, 256)
    together = generic.pack(weights)
    apart = [generic.pack(weights, first, last) for first, last in ((0, 1), (1, 4), (4, 6))]
    assert np.concatenate(apart).tobytes() == together.tobytes()
    assert generic.pack(weights).tobytes() == together.tobytes()
