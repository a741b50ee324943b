"""Parts of stored weights: a rank reads exactly its rows and columns, in every format."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import CheckpointError
from octavo.quant import FORMATS, WeightTensor, dequantise, format_named, take_part


def stored(name: str, rows: int = 6, blocks: int = 4) -> WeightTensor:
    """Random codes of a format, finite as numbers."""
    form = format_named(name)
    columns = blocks * form.block_elements * (1 if form.quantized else 8)
    data = np.random.default_rng(0).integers(0, 60, (rows, form.row_bytes(columns)), dtype=np.uint8)
    return WeightTensor(form, (rows, columns), data)


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_columns_are_those_of_the_whole(name: str) -> None:
    tensor = stored(name)
    whole = dequantise(tensor)
    half = tensor.shape[1] // 2
    for start in (0, half):
        part = take_part(tensor, [(0, 2, 5), (1, start, start + half)], (3, half))
        assert part.format is tensor.format
        assert np.array_equal(dequantise(part), whole[2:5, start : start + half])


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_not_stored_is_zero(name: str) -> None:
    tensor = stored(name)
    half = tensor.shape[1] // 2
    found = dequantise(take_part(tensor, [(0, 4, 6), (1, half, 2 * half)], (5, 2 * half)))
    assert np.array_equal(found[:2, :half], dequantise(tensor)[4:, half:])
    assert not found[2:].any()
    assert not found[:2, half:].any()
    assert not dequantise(take_part(tensor, [(0, 0, 0), (1, 0, 0)], (5, half))).any()


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.quantized])
def test_a_block_is_never_cut(name: str) -> None:
    tensor = stored(name)
    block = tensor.format.block_elements
    message = f"columns {block // 2} to {block} of a {name} weight begin or end inside a block of {block}"
    with pytest.raises(CheckpointError, match=message):
        take_part(tensor, [(1, block // 2, block)], (6, block // 2))


def test_rows_stay_a_view_of_the_file() -> None:
    tensor = stored("q4_0")
    assert np.shares_memory(take_part(tensor, [(0, 1, 4)], (3, tensor.shape[1])).data, tensor.data)


def test_a_vector_is_cut_along_its_only_dimension() -> None:
    bias = np.arange(6, dtype=np.float32)
    tensor = WeightTensor(format_named("f32"), (6,), bias.view(np.uint8))
    assert dequantise(take_part(tensor, [(0, 4, 6)], (4,))).tolist() == [4, 5, 0, 0]
