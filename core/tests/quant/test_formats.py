"""Weight formats: sizes, and the errors of weights that do not fit them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from octavo.errors import CheckpointError
from octavo.quant import BF16, FORMATS, WeightTensor, format_named


@pytest.mark.parametrize("name", [name for name in FORMATS if "int" not in name])
def test_block_sizes_are_those_of_ggml(name: str) -> None:
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    form = format_named(name)
    assert (form.name, form.block_elements, form.block_bytes) == (name, elements, size)
    assert form.row_bytes(3 * elements) == 3 * size
    assert form.block_elements % form.group_elements == 0


@pytest.mark.parametrize("name", [name for name in FORMATS if "int" in name])
def test_integer_formats_have_the_bits_of_their_name(name: str) -> None:
    form = format_named(name)
    assert form.bits == int(name.removeprefix("u").removeprefix("int").partition("_")[0])
    assert form.block_bytes == form.block_elements * form.bits // 8 + {"int8": 0}.get(name, 4 + name.startswith("u"))


def test_plain_formats_are_not_quantized() -> None:
    assert [name for name, form in FORMATS.items() if not form.quantized] == ["f32", "f16", "bf16"]


def test_a_row_of_broken_blocks_is_refused_with_both_numbers() -> None:
    with pytest.raises(CheckpointError, match=r"40 .*q4_0.*32"):
        format_named("q4_0").row_bytes(40)


def test_integer_rows_are_as_long_as_their_parts() -> None:
    assert format_named("int8").row_bytes(96) == 4 + 96
    assert format_named("int4_g32").row_bytes(96) == 3 * (4 + 16)
    assert format_named("uint4_g128").row_bytes(256) == 2 * (4 + 1 + 64)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r"'iq2_xs'.*f32.*q6_k.*int8"):
        format_named("iq2_xs")


@pytest.mark.parametrize(
    "data",
    [np.zeros((2, 5), np.uint8), np.zeros((2, 3), np.uint16), np.zeros(12, np.uint8)],
    ids=["wide", "dtype", "flat"],
)
def test_bytes_that_do_not_fit_the_shape_are_refused(data: np.ndarray) -> None:
    with pytest.raises(CheckpointError, match=r"bf16 weight of shape \(2, 3\) needs bytes of shape \(2, 6\)"):
        WeightTensor(BF16, (2, 3), data)


def test_a_tensor_knows_its_stored_size() -> None:
    assert WeightTensor(format_named("q4_k"), (2, 512), np.zeros((2, 288), np.uint8)).nbytes == 576
