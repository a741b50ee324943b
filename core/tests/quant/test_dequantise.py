"""`dequantise` against decoders written from each format's definition, one weight at a time.

Definitions: IEEE 754 for f16 and bf16; ggml's block structures for the others (ggml-common.h, and the layout
of codes in ggml-quants.c's reference functions).
"""

from __future__ import annotations

import math
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from quant.test_integers import INTEGERS

from octavo.quant import FORMATS, WeightTensor, dequantise, format_named

# A decoder yields, per weight, its exact terms: the weight is their sum.
Terms = tuple[float, ...]
Decoder = Callable[[bytes], Iterator[Terms]]


def half(code: bytes) -> float:
    """Binary16, by hand: sign, five bits of exponent, ten of fraction."""
    (bits,) = struct.unpack("<H", code)
    sign, exponent, fraction = -1.0 if bits >> 15 else 1.0, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * fraction * 2.0**-24
    return sign * (1 + fraction / 1024) * 2.0 ** (exponent - 15)


def bfloat(code: bytes) -> float:
    """Bfloat16: the upper half of a binary32; sign, eight bits of exponent, seven of fraction."""
    (bits,) = struct.unpack("<H", code)
    sign, exponent, fraction = -1.0 if bits >> 15 else 1.0, bits >> 7 & 255, bits & 127
    if exponent == 255:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * fraction * 2.0**-133
    return sign * (1 + fraction / 128) * 2.0 ** (exponent - 127)


def nibbles(codes: bytes) -> list[int]:
    """Sixteen bytes as 32 codes: all low halves, then all high halves."""
    return [byte & 15 for byte in codes] + [byte >> 4 for byte in codes]


def fifth_bits(word: bytes) -> list[int]:
    (bits,) = struct.unpack("<I", word)
    return [(bits >> i & 1) << 4 for i in range(32)]


def q4_0(block: bytes) -> Iterator[Terms]:
    d = half(block[:2])
    for code in nibbles(block[2:]):
        yield (d * (code - 8),)


def q4_1(block: bytes) -> Iterator[Terms]:
    d, m = half(block[:2]), half(block[2:4])
    for code in nibbles(block[4:]):
        yield d * code, m


def q5_0(block: bytes) -> Iterator[Terms]:
    d = half(block[:2])
    for low, high in zip(nibbles(block[6:]), fifth_bits(block[2:6]), strict=True):
        yield (d * ((low | high) - 16),)


def q5_1(block: bytes) -> Iterator[Terms]:
    d, m = half(block[:2]), half(block[2:4])
    for low, high in zip(nibbles(block[8:]), fifth_bits(block[4:8]), strict=True):
        yield d * (low | high), m


def q8_0(block: bytes) -> Iterator[Terms]:
    d = half(block[:2])
    for code in struct.unpack("<32b", block[2:]):
        yield (d * code,)


def scale_and_minimum(packed: bytes, group: int) -> tuple[int, int]:
    """Eight six-bit scales and eight six-bit minimums in twelve bytes."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    scale = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
    minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4
    return scale, minimum


def q4_k(block: bytes) -> Iterator[Terms]:
    d, dmin, packed, codes = half(block[:2]), half(block[2:4]), block[4:16], block[16:]
    for group in range(8):
        scale, minimum = scale_and_minimum(packed, group)
        for i in range(32):
            code = codes[group // 2 * 32 + i] >> 4 * (group % 2) & 15
            yield d * scale * code, -dmin * minimum


def q5_k(block: bytes) -> Iterator[Terms]:
    d, dmin, packed, high, codes = half(block[:2]), half(block[2:4]), block[4:16], block[16:48], block[48:]
    for group in range(8):
        scale, minimum = scale_and_minimum(packed, group)
        for i in range(32):
            code = codes[group // 2 * 32 + i] >> 4 * (group % 2) & 15 | (high[i] >> group & 1) << 4
            yield d * scale * code, -dmin * minimum


def q6_k(block: bytes) -> Iterator[Terms]:
    low, high, scales, d = block[:128], block[128:192], struct.unpack("<16b", block[192:208]), half(block[208:])
    for index in range(256):
        part, place = divmod(index, 128)  # two halves of 128; within one, four runs of 32
        run, i = divmod(place, 32)
        four = low[part * 64 + run % 2 * 32 + i] >> 4 * (run // 2) & 15
        two = high[part * 32 + i] >> 2 * run & 3
        yield (d * scales[index // 16] * ((four | two << 4) - 32),)


DECODERS: dict[str, Decoder] = {
    "q4_0": q4_0,
    "q4_1": q4_1,
    "q5_0": q5_0,
    "q5_1": q5_1,
    "q8_0": q8_0,
    "q4_k": q4_k,
    "q5_k": q5_k,
    "q6_k": q6_k,
}
# Where a block's f16 scales lie: random bytes there would be infinities and NaNs now and then.
SCALES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}


def test_every_quantized_format_has_a_decoder() -> None:
    assert {*DECODERS, *INTEGERS} == {name for name, form in FORMATS.items() if form.quantized}


def random_blocks(name: str, count: int, seed: int) -> np.ndarray:
    """Random codes with random finite scales: of either sign, subnormal ones and zero among them."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, format_named(name).block_bytes), dtype=np.uint8)
    for offset in SCALES.get(name, (0,)):
        scales = (rng.standard_normal(count) * 2.0 ** rng.integers(-20, 4, count)).astype("<f2")
        scales[:2] = 0.0, 6e-8  # zero, the smallest subnormal
        blocks[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    return blocks


@pytest.mark.parametrize("name", DECODERS)
def test_quantized_weights_equal_the_formats_definition(name: str) -> None:
    form = format_named(name)
    blocks = random_blocks(name, count=24, seed=7)
    tensor = WeightTensor(form, (6, 4 * form.block_elements), blocks.reshape(6, -1))
    found = dequantise(tensor).reshape(24, form.block_elements)
    assert found.dtype == np.float32
    for block, values in zip(blocks, found, strict=True):
        terms = list(DECODERS[name](block.tobytes()))
        assert len(terms) == form.block_elements
        for value, parts in zip(values, terms, strict=True):
            # Three float32 roundings at most, each relative to the largest term.
            assert abs(float(value) - sum(parts)) <= 2.0**-22 * sum(map(abs, parts))


@pytest.mark.parametrize("name", DECODERS)
def test_a_slice_boundary_does_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = format_named(name)
    blocks = random_blocks(name, count=35, seed=8)
    tensor = WeightTensor(form, (35, form.block_elements), blocks)
    whole = dequantise(tensor)
    monkeypatch.setattr("octavo.quant.tensor._SLICE_ELEMENTS", 3 * form.block_elements)
    np.testing.assert_array_equal(dequantise(tensor), whole)


@pytest.mark.parametrize(("name", "decode"), [("f16", half), ("bf16", bfloat)])
def test_all_codes_of_a_16_bit_float_convert_exactly(name: str, decode: Callable[[bytes], float]) -> None:
    codes = np.arange(65536, dtype="<u2")
    found = dequantise(WeightTensor(format_named(name), (256, 256), codes.view(np.uint8).reshape(256, 512)))
    wanted = np.array([decode(code.tobytes()) for code in codes], np.float32)
    np.testing.assert_array_equal(found.reshape(-1), wanted)  # NaN equals NaN here
    np.testing.assert_array_equal(np.signbit(found.reshape(-1))[[0, 0x8000]], [False, True])


def test_float32_comes_back_as_a_copy() -> None:
    values = np.array([[0.0, -0.0, np.inf, np.nan, 1e-45, -3.25]], "<f4")
    stored = values.view(np.uint8)
    found = dequantise(WeightTensor(FORMATS["f32"], (1, 6), stored))
    np.testing.assert_array_equal(found.view(np.uint8), stored)
    found[:] = 1.0
    assert values[0, 0] == 0.0


def test_a_vector_of_weights_has_the_vectors_shape() -> None:
    blocks = random_blocks("q8_0", count=3, seed=9)
    vector = dequantise(WeightTensor(format_named("q8_0"), (96,), blocks.reshape(-1)))
    matrix = dequantise(WeightTensor(format_named("q8_0"), (3, 32), blocks))
    assert vector.shape == (96,)
    np.testing.assert_array_equal(vector, matrix.reshape(-1))


def test_weights_that_start_at_an_odd_byte_of_a_file_convert() -> None:
    file = np.zeros(9, np.uint8)
    file[1:] = np.array([1.5, -2.0], "<f4").view(np.uint8)
    np.testing.assert_array_equal(dequantise(WeightTensor(FORMATS["f32"], (2,), file[1:])), [1.5, -2.0])


def test_dequantising_needs_little_more_memory_than_its_result() -> None:
    blocks = random_blocks("q8_0", count=200_000, seed=10)
    tensor = WeightTensor(format_named("q8_0"), (20_000, 320), blocks.reshape(20_000, 340))
    tracemalloc.start()
    try:
        result = dequantise(tensor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.nbytes == 25_600_000
    assert peak < result.nbytes + 14_000_000
