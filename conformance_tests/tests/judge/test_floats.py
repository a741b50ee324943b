"""Rounding to the types that platforms store."""

from __future__ import annotations

import numpy as np
import pytest

from octavo_conformance.judge import floats
from octavo_conformance.judge.rng import Rng


def test_bf16_rounds_to_nearest_even_and_keeps_what_it_can_hold() -> None:
    one = 1 + 2.0**-8  # half way between two neighbours
    assert floats.rounded([one, one + 2.0**-7, 1 + 3 * 2.0**-9], "bf16").tolist() == [1.0, 1 + 2.0**-6, 1 + 2.0**-7]
    bits = np.arange(65536, dtype=np.uint16)
    values = floats.bf16_values(bits)
    finite = np.isfinite(values)
    assert np.array_equal(floats.bf16_bits(values)[finite], bits[finite])
    assert np.isnan(floats.rounded([np.nan], "bf16")).all()
    assert floats.rounded([3.4e38], "bf16").tolist() == [np.inf]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_unit_roundoff_is_the_most_that_rounding_changes(dtype: str) -> None:
    values = Rng("unit", dtype).normal(20_000)
    values = values[np.abs(values) > 1e-3]
    change = np.abs(floats.rounded(values, dtype) - values) / np.abs(values)
    assert 0.9 * floats.UNIT[dtype] < change.max() <= floats.UNIT[dtype]


def test_int8_groups_are_exact_for_numbers_that_they_hold() -> None:
    rng = Rng("codes")
    codes = rng.integers(-127, 128, 4, 64)
    codes[:, ::32] = 127  # each group's largest
    values = codes * np.repeat(2.0 ** rng.integers(-8, 8, 4, 2), 32, axis=1)
    assert np.array_equal(floats.int8_groups(values, 32).values, values)
    assert np.array_equal(floats.stored_input(values, "int8x32"), values)


def test_int8_groups_of_zeros_and_of_nan() -> None:
    values = np.zeros((1, 96), np.float32)
    values[0, 40], values[0, 70] = np.nan, 2.0
    stored = floats.int8_groups(values, 32)
    assert stored.scales[0, 0] == 0 and np.isnan(stored.scales[0, 1]) and stored.scales[0, 2] == np.float32(2 / 127)


def test_ulps_count_units_at_the_exact_value() -> None:
    near = np.array([1 + 2.0**-22, 4.0])
    assert floats.ulps(near, [1.0, 4.0], "f32").tolist() == [2.0, 0.0]
    assert floats.ulps([1 + 2.0**-8], [1.0], "bf16").tolist() == [0.5]
