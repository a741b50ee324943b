"""Formats that the judge writes mean, to core's decoder, what the judge says."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.quant import FORMATS, WeightTensor, dequantise, format_named
from octavo_conformance.judge import quant
from octavo_conformance.judge.rng import Rng


def test_every_quantized_format_can_be_made() -> None:
    assert set(quant.FORMATS) == {name for name, form in FORMATS.items() if form.quantized}


@pytest.mark.parametrize("name", quant.FORMATS)
def test_random_matrices_are_what_their_bytes_mean(name: str) -> None:
    form = quant.FORMATS[name]
    matrix = form.matrix(Rng("matrix"), 7, 4 * form.block)
    found = dequantise(WeightTensor(format_named(name), matrix.values.shape, matrix.data))
    np.testing.assert_allclose(found, matrix.values, rtol=0, atol=2e-7 * np.abs(matrix.values).max())
    assert 0.1 < np.abs(matrix.values).max() < 20


@pytest.mark.parametrize("name", quant.FORMATS)
def test_codes_and_whole_steps_give_whole_numbers(name: str) -> None:
    form = quant.FORMATS[name]
    rng = Rng("codes")
    codes = rng.integers(form.low, form.high + 1, 5, 2 * form.block)
    steps = rng.integers(1, 17, 5, form.groups(2 * form.block))
    matrix = form.build(codes, steps)
    each = 2 * form.block // steps.shape[1]
    assert np.array_equal(matrix.values, np.repeat(steps, each, 1) * (codes - (0 if form.offset else form.neutral)))
