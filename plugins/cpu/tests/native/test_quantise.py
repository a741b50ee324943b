"""Activations as int8 codes with a scale for each 32, and as bf16."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native.kernels import UNTOUCHED, KernelSet
from native.numbers16 import F32, from_bf16, to_bf16

SMALLEST = np.float32(2.0**-80)
"""A group whose largest size is below this counts as zeros (kQuantiseFloor in kernels.h)."""


def groups_of(values: F32) -> F32:
    return values.reshape(len(values), -1, 32)


def check_codes(kernels: KernelSet, values: F32) -> None:
    """Scales are the largest size / 127, rounded once; codes the nearest whole numbers, but for ties; sums theirs."""
    out = kernels.quantise(values)
    groups = groups_of(values)
    largest = np.abs(groups).max(2)
    counted = np.where(largest < SMALLEST, np.float32(0), largest)
    assert np.array_equal(out.scales, counted / np.float32(127))
    with np.errstate(invalid="ignore", divide="ignore"):
        wanted = np.where(
            counted[..., None] > 0, groups.astype(np.float64) * 127 / largest.astype(np.float64)[..., None], 0
        )
    codes = groups_of(out.codes.astype(np.float64))
    from_tie = np.abs(wanted - np.floor(wanted) - 0.5)
    assert ((codes == np.rint(wanted)) | ((np.abs(codes - wanted) < 0.5001) & (from_tie < 1e-4))).all()
    assert (np.abs(codes) <= 127).all()
    assert (np.abs(codes).max(2) == np.where(counted > 0, 127, 0)).all()
    with np.errstate(over="ignore"):
        assert np.array_equal(out.sums, out.scales * codes.sum(2).astype(np.float32))
    assert np.array_equal(out.half_sums, 32 * out.codes.astype(np.int32).reshape(len(values), -1, 16).sum(2))


@given(rows=st.integers(1, 4), groups=st.integers(1, 9), exponent=st.integers(-44, 38), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_codes_are_the_nearest_and_scales_those_of_the_largest(
    kernels: KernelSet, rows: int, groups: int, exponent: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-1, 1, (rows, groups * 32)) * 10.0**exponent
    check_codes(kernels, np.clip(values, -3.4e38, 3.4e38).astype(np.float32))


def test_groups_of_zeros_subnormals_and_extremes(kernels: KernelSet) -> None:
    largest, smallest = np.finfo(np.float32).max, np.finfo(np.float32).smallest_subnormal
    rng = np.random.default_rng(1)
    special = [0.0, -0.0, smallest, -smallest, 1e-38, 1.1754942e-38, largest, -largest, float(SMALLEST), 1.0]
    values = np.array(
        [[one if i % 5 == 0 else one * rng.uniform(-1, 1) for i in range(32)] for one in special], np.float32
    )
    check_codes(kernels, values)
    check_codes(kernels, values.reshape(1, -1))


def test_ties_go_to_the_even_code(kernels: KernelSet) -> None:
    values = np.zeros((1, 32), np.float32)
    values[0, :9] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 3.5]
    assert kernels.quantise(values).codes[0, :9].tolist() == [127, 0, 2, 2, 0, -2, 126, -126, 4]


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 15, 16, 31])
def test_a_bad_value_marks_its_own_group(kernels: KernelSet, bad: float, at: int) -> None:
    values = np.random.default_rng(2).standard_normal((1, 128)).astype(np.float32)
    sound = kernels.quantise(values)
    values[0, 64 + at] = bad
    out = kernels.quantise(values)
    assert np.isnan(out.scales[0]).tolist() == np.isnan(out.sums[0]).tolist() == [False, False, True, False]
    others = [0, 1, 3]
    assert np.array_equal(out.scales[0, others], sound.scales[0, others])
    assert np.array_equal(np.delete(out.codes, np.s_[64:96], 1), np.delete(sound.codes, np.s_[64:96], 1))
    assert not out.codes[0, 64:96].any() and not out.half_sums[0, 4:6].any()


def test_rows_are_written_where_they_belong(kernels: KernelSet) -> None:
    """A narrow row among rows of a wider stride: what is beside it stays."""
    values = np.random.default_rng(3).standard_normal((3, 64)).astype(np.float32)
    out, alone = kernels.quantise(values, k=160), kernels.quantise(values)
    assert np.array_equal(out.codes[:, :64], alone.codes) and (out.codes[:, 64:] == -128).all()
    assert np.array_equal(out.scales[:, :2], alone.scales) and np.isnan(out.scales[:, 2:]).all()
    assert np.array_equal(out.half_sums[:, :4], alone.half_sums) and (out.half_sums[:, 4:] == UNTOUCHED).all()


def test_a_set_makes_the_codes_of_its_scalar_twin(kernels: KernelSet, generic: KernelSet) -> None:
    rng = np.random.default_rng(4)
    values = (rng.standard_normal((50, 512)) * 10.0 ** rng.integers(-40, 38, (50, 1))).astype(np.float32)
    values[3, 7], values[9, 500] = np.nan, np.inf
    for mine, twin in zip(kernels.quantise(values).arrays, generic.quantise(values).arrays, strict=True):
        assert np.array_equal(mine, twin, equal_nan=mine.dtype.kind == "f")


# -- bf16 -----------------------------------------------------------------------------------------


def same_bf16(made: np.ndarray, values: F32) -> None:
    """Equal to rounding to nearest even; a NaN is some NaN; a subnormal may be a zero, as processors have it."""
    wanted = to_bf16(values)
    nan = np.isnan(values)
    tiny = np.abs(values) < 2.0**-126
    zero = np.signbit(values).astype(np.uint16) << 15
    assert np.isnan(from_bf16(made)[nan]).all()
    assert ((made == wanted) | nan | (tiny & (made == zero))).all()


def test_rounding_to_bf16_is_to_the_nearest_even_for_every_bf16_and_its_ties(kernels: KernelSet) -> None:
    high = np.arange(65536, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (high[:, None] | low).view(np.float32).reshape(-1)
    same_bf16(kernels.to_bf16(values), values)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 47])
def test_rounding_to_bf16_writes_no_more_than_its_count(kernels: KernelSet, count: int) -> None:
    values = np.random.default_rng(5).standard_normal(count).astype(np.float32)
    same_bf16(kernels.to_bf16(values), values)


@pytest.mark.parametrize("group", [8, 16])
@pytest.mark.parametrize("exponent", [-44, -24, -3, 0, 5, 38])
def test_codes_of_the_cache_are_the_nearest_under_a_scale_that_none_exceeds(
    kernels: KernelSet, group: int, exponent: int
) -> None:
    rng = np.random.default_rng(100 + exponent + group)
    values = (rng.uniform(-1, 1, 320) * 10.0**exponent).clip(-3.3e38, 3.3e38).astype(np.float32)
    values[:group] = 0
    codes, bits = kernels.kv_codes(values, group)
    scales, groups = from_bf16(bits), values.reshape(-1, group)
    largest = np.abs(groups).max(1)
    counted = np.where(largest < SMALLEST, np.float32(0), largest)
    assert (scales >= counted / np.float32(127)).all() and (scales <= counted / np.float32(127) * (1 + 2**-7)).all()
    with np.errstate(divide="ignore"):
        inverse = np.where(scales > 0, np.float32(1) / scales, np.float32(0))
    assert np.array_equal(codes.reshape(-1, group), np.rint(groups * inverse[:, None]))


@pytest.mark.parametrize("group", [8, 16])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spoils_its_own_group_of_the_cache(kernels: KernelSet, group: int, wrong: float) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    sound, scales = kernels.kv_codes(values, group)
    values[group + 3] = wrong
    codes, spoilt = kernels.kv_codes(values, group)
    assert np.isnan(from_bf16(spoilt[1:2])).all() and (codes[group : 2 * group] == 1).all()
    others = np.arange(64) // group != 1
    assert np.array_equal(codes[others], sound[others])
    assert np.array_equal(np.delete(spoilt, 1), np.delete(scales, 1))
