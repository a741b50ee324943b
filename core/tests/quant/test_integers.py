"""The integer formats: `dequantise` against decoders written from their definition, and weights made from parts."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

from octavo.errors import CheckpointError
from octavo.quant import (
    WeightTensor,
    dequantise,
    format_named,
    int4_format,
    int4_weight,
    int8_groups_weight,
    int8_weight,
)

INTEGERS = ("int8", "int4_g128", "int4_g64", "int4_g32", "uint4_g128", "uint4_g64", "uint4_g32")

# Of every kind of float: float16's subnormals, bfloat16 beyond float16's range, all bits of a float32, zero.
SCALES = (0.0, 6e-8, 2.0**-60, -3.25, 1.0 + 2.0**-23, 0.0123, 65504.0, 1e-40)


def decode(name: str, row: bytes) -> Iterator[tuple[float, int]]:
    """(scale, whole number) of each weight."""
    if name == "int8":
        (scale,) = struct.unpack("<f", row[:4])
        yield from ((scale, code) for code in struct.unpack(f"<{len(row) - 4}b", row[4:]))
        return
    group = int(name.split("_g")[1])
    head = 5 if name.startswith("uint4") else 4
    size = head + group // 2
    assert len(row) % size == 0
    for start in range(0, len(row), size):
        block = row[start : start + size]
        (scale,) = struct.unpack("<f", block[:4])
        zero = block[4] if head == 5 else 8
        for byte in block[head:]:
            yield scale, (byte & 15) - zero
            yield scale, (byte >> 4) - zero


@pytest.mark.parametrize("name", INTEGERS)
def test_weights_equal_the_definition_rounded_once(name: str) -> None:
    form = format_named(name)
    rng = np.random.default_rng(1)
    columns = 256 if name != "int8" else 96
    data = rng.integers(0, 256, (8, form.row_bytes(columns)), dtype=np.uint8)
    blocks = data.reshape(8, -1, data.shape[1] if name == "int8" else form.block_bytes)
    blocks[:, :, :4] = np.array(SCALES, "<f4").view(np.uint8).reshape(8, 1, 4)
    found = dequantise(WeightTensor(form, (8, columns), data))
    for row, values in zip(data, found, strict=True):
        wanted = [np.float32(scale * code) for scale, code in decode(name, row.tobytes())]  # exact in float64
        np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("name", INTEGERS)
def test_a_slice_boundary_does_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = format_named(name)
    rng = np.random.default_rng(2)
    data = rng.integers(0, 60, (35, form.row_bytes(256)), dtype=np.uint8)  # no byte makes a scale infinite
    tensor = WeightTensor(form, (35, 256), data)
    whole = dequantise(tensor)
    monkeypatch.setattr("octavo.quant.tensor._SLICE_ELEMENTS", 3 * 256)
    np.testing.assert_array_equal(dequantise(tensor), whole)


def test_int8_comes_from_codes_and_one_scale_a_row() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(-128, 128, (5, 64)).astype(np.int8)
    scales = rng.standard_normal(5).astype(np.float32)
    tensor = int8_weight(codes, scales)
    assert (tensor.format.name, tensor.shape) == ("int8", (5, 64))
    np.testing.assert_array_equal(dequantise(tensor), scales[:, None] * codes.astype(np.float32))


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize(
    ("inputs", "group", "held"),
    [(256, 32, 32), (256, 64, 64), (256, 128, 128), (192, 96, 32), (512, 256, 128), (320, 320, 64), (96, 96, 32)],
)
def test_int4_comes_from_groups_of_any_multiple_of_32(inputs: int, group: int, held: int, zero_points: bool) -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 16, (5, inputs)).astype(np.uint8)
    scales = rng.standard_normal((5, inputs // group)).astype(np.float32)
    zeros = rng.integers(0, 17, scales.shape).astype(np.uint8) if zero_points else None
    tensor = int4_weight(codes[:, 0::2] | codes[:, 1::2] << 4, scales, zeros)
    assert tensor.format is int4_format(group, zero_points=zero_points)
    assert tensor.format.name == f"{'uint4' if zero_points else 'int4'}_g{held}"
    zero = np.repeat(np.full_like(scales, 8) if zeros is None else zeros.astype(np.float32), group, 1)
    np.testing.assert_array_equal(dequantise(tensor), np.repeat(scales, group, 1) * (codes - zero))


@pytest.mark.parametrize("group", [0, -1, 16, 48])
def test_other_groups_are_refused_with_their_size(group: int) -> None:
    with pytest.raises(CheckpointError, match=rf"groups of {group} weights are not supported; a multiple of 32"):
        int4_format(group, zero_points=False)


def test_groups_that_do_not_divide_a_row_are_refused() -> None:
    with pytest.raises(CheckpointError, match="rows of 64 weights cannot have 3 groups"):
        int4_weight(np.zeros((2, 32), np.uint8), np.ones((2, 3), np.float32))


def test_int8_rows_that_no_kernel_could_take_are_refused() -> None:
    with pytest.raises(CheckpointError, match="40 weights is no whole number of int8 blocks of 32"):
        int8_weight(np.zeros((2, 40), np.int8), np.ones(2, np.float32))


def test_8_bit_codes_with_a_scale_per_group_are_their_products() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(-128, 128, (3, 128), dtype=np.int8)
    scales = np.array([[0.5, -2.0], [0.0, 65504.0], [2.0**-24, 1.25]], np.float32)  # each exact in float16
    weight = int8_groups_weight(codes, scales, "w.scales")
    assert (weight.format.name, weight.shape) == ("q8_0", (3, 128))
    np.testing.assert_array_equal(dequantise(weight), codes * np.repeat(scales, 64, axis=1))
    one = int8_groups_weight(codes, scales[:, :1], "w.scales")
    assert one.format.name == "int8"
    np.testing.assert_array_equal(dequantise(one), codes * scales[:, :1])


@pytest.mark.parametrize("scale", [1e-9, 1.0 + 2.0**-12, 70000.0])
def test_group_scales_that_float16_cannot_hold_are_refused_by_name(scale: float) -> None:
    codes, scales = np.ones((1, 64), np.int8), np.array([[1.0, scale]], np.float32)
    with pytest.raises(CheckpointError, match=r"w\.scales has scales that float16 cannot hold.*one scale per channel"):
        int8_groups_weight(codes, scales, "w.scales")
