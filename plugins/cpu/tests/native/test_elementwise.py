"""Norms, gates and rotations of a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mpmath import erfc, mpf
from native import budget
from native.kernels import GATES, KernelSet
from native.numbers16 import F32, F64, from_bf16, ulps
from native.yardstick import ULP

some = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

WIDTHS = [1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100, 576]


# -- norm -----------------------------------------------------------------------------------------


def norm64(x: F32, weight: F32, eps: float) -> F64:
    runs = x.astype(np.float64).reshape(-1, weight.size)
    return (runs / np.sqrt((runs**2).mean(1, keepdims=True) + np.float32(eps)) * weight).reshape(x.shape)


@given(width=st.sampled_from(WIDTHS), runs=st.integers(1, 5), exponent=st.integers(-12, 12), residual=st.booleans(),
       in_place=st.booleans(), seed=st.integers(0, 2**32 - 1))  # fmt: skip
@some
def test_a_norm_of_any_shape_is_right_to_a_few_units(
    kernels: KernelSet, width: int, runs: int, exponent: int, residual: bool, in_place: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(width * runs) * 10.0**exponent).astype(np.float32)
    other = (rng.standard_normal(width * runs) * 10.0**exponent).astype(np.float32) if residual else None
    weight = rng.standard_normal(width).astype(np.float32)
    y, total = kernels.rms_norm(x, weight, 1e-6, other, in_place=in_place)
    added = x + other if other is not None else x
    if other is not None:
        assert total.tobytes() == added.tobytes()
    exact = norm64(added, weight, 1e-6)
    budget.within(y, exact, np.abs(exact) * (4 + width / 2) * ULP / 2 + 1e-37)


def test_a_wide_norm_keeps_the_error_budget(kernels: KernelSet) -> None:
    """16,384 elements, added one after another in float32 by the yardstick."""
    rng = np.random.default_rng(1)
    x, weight = rng.standard_normal((4, 16384)).astype(np.float32), rng.uniform(0.5, 2, 16384).astype(np.float32)
    y = np.stack([kernels.rms_norm(row, weight, 1e-6)[0] for row in x])
    exact = np.stack([norm64(row, weight, 1e-6) for row in x])
    squares = np.cumsum(x * x, 1, dtype=np.float32)[:, -1:]
    reference = x * (1 / np.sqrt(squares / np.float32(16384) + np.float32(1e-6))) * weight
    # All of a row's elements share one factor, whose rounding is luck: the budget is that of the usual factor.
    assert (np.abs(y - exact) <= np.abs(exact) * 2e-5).all()
    assert np.sqrt(np.mean((y - exact) ** 2)) <= 1.5 * np.sqrt(np.mean((reference - exact) ** 2)) + 2 * ULP


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-5, 1.0])
def test_eps_is_added_to_the_mean_of_squares(kernels: KernelSet, eps: float) -> None:
    x = np.full(64, 1e-4, np.float32)
    weight = np.ones(64, np.float32)
    y, _ = kernels.rms_norm(x, weight, eps)
    assert np.abs(y / norm64(x, weight, eps) - 1).max() < 4 * ULP


def test_a_run_of_zeros_stays_zero_and_a_bad_value_stays_in_its_run(kernels: KernelSet) -> None:
    rng = np.random.default_rng(2)
    weight = rng.standard_normal(24).astype(np.float32)
    assert not kernels.rms_norm(np.zeros(48, np.float32), weight, 1e-6)[0].any()
    x = rng.standard_normal(72).astype(np.float32)
    sound, _ = kernels.rms_norm(x, weight, 1e-6)
    x[30] = np.nan
    y, _ = kernels.rms_norm(x, weight, 1e-6)
    assert np.isnan(y[24:48]).all()
    assert np.array_equal(np.delete(y, np.s_[24:48]), np.delete(sound, np.s_[24:48]))


# -- gates ----------------------------------------------------------------------------------------


def gate64(x: F32, kind: str) -> F64:
    """The gate in float64, in forms that lose nothing at either end."""
    with np.errstate(over="ignore", invalid="ignore"):
        v = x.astype(np.float64)
        if kind == "silu":
            return v / (1 + np.exp(-v))
        if kind == "gelu_tanh":
            return v / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
        if kind == "gelu":
            return np.array(
                [float(mpf(a) / 2 * erfc(-mpf(a) / mpf(2) ** 0.5)) if np.isfinite(a) else a * (a > 0) for a in v]
            )
        return np.where(np.isnan(v), v, np.maximum(v, 0))


UNITS = {"silu": 3, "gelu_tanh": 4, "gelu": 4, "relu": 0}
"""Units in the last place that a gate may be off, near and above zero …"""
PER_EXPONENT = {"silu": 0, "gelu_tanh": 4.0, "gelu": 2.0, "relu": 0}
"""… and more for each power of e that the result lies below its argument: the exponential magnifies the rounding of
what the gate makes of its argument before it."""
FLOOR = 2.0**-120
"""Results below this may lose their last bits, down to zero: e^88 is the largest power that a float holds."""


def check_gate(kernels: KernelSet, x: F32, kind: str) -> None:
    y = kernels.gated(x, np.ones_like(x), kind)
    exact = gate64(x, kind)
    bad = ~np.isfinite(x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        fall = np.where(bad | (exact == 0), 0, np.log(np.abs(x) / np.maximum(np.abs(exact), 1e-300)))
    allowed = UNITS[kind] + PER_EXPONENT[kind] * np.clip(fall, 0, 90)
    off = np.where(bad, 0, ulps(y, np.where(bad, 0, exact), FLOOR))
    assert (off <= allowed).all(), (
        f"{kind}({x[(off > allowed)][0]!r}) is {y[off > allowed][0]!r}, {off[off > allowed][0]} units off"
    )
    assert np.isnan(y[np.isnan(x)]).all()
    assert (y[x == np.inf] == np.inf).all()
    low = y[x == -np.inf]  # the limit is -0; a gate computed as x times a factor of 0 has no number there
    assert (np.isnan(low) | (low == 0)).all()


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "relu"])
def test_a_gate_is_right_for_every_bf16_number(kernels: KernelSet, kind: str) -> None:
    check_gate(kernels, from_bf16(np.arange(65536, dtype=np.uint16)), kind)


def test_the_exact_gelu_is_right_for_many_bf16_numbers(kernels: KernelSet) -> None:
    """Every 37th, since its oracle needs more digits than float64 has functions for; and all around its steep parts."""
    bits = np.concatenate([np.arange(0, 65536, 37), np.arange(0xBF80, 0xC180, 3)]).astype(np.uint16)
    check_gate(kernels, from_bf16(bits), "gelu")


@pytest.mark.parametrize("kind", ["silu", "gelu_tanh"])
def test_a_gate_is_right_between_the_bf16_numbers_too(kernels: KernelSet, kind: str) -> None:
    rng = np.random.default_rng(3)
    bits = (np.arange(1 << 18, dtype=np.uint64) << 14) + rng.integers(0, 1 << 14, 1 << 18, dtype=np.uint64)
    check_gate(kernels, bits.astype(np.uint32).view(np.float32), kind)
    check_gate(kernels, rng.uniform(-100, 100, 1 << 16).astype(np.float32), kind)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("size", [1, 7, 8, 15, 16, 17, 33, 100])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_gate_multiplies_and_keeps_to_its_size(kernels: KernelSet, kind: str, size: int, in_place: bool) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, size)).astype(np.float32)
    whole = kernels.gated(np.concatenate([a, a]), np.concatenate([b, b]), kind)
    y = kernels.gated(a, b, kind, in_place=in_place)
    assert np.array_equal(y, kernels.gated(a, np.ones_like(a), kind) * b)
    assert np.array_equal(y, whole[:size]) and np.array_equal(y, whole[size:])


# -- rope -----------------------------------------------------------------------------------------


@given(heads=st.integers(1, 4), half=st.sampled_from([1, 3, 8, 16, 20, 32, 64]), rest=st.sampled_from([0, 2, 16, 30]),
       interleaved=st.booleans(), seed=st.integers(0, 2**32 - 1))  # fmt: skip
@some
def test_rotation_turns_its_pairs_and_nothing_else(
    kernels: KernelSet, heads: int, half: int, rest: int, interleaved: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((heads, 2 * half + rest)).astype(np.float32)
    angle = rng.uniform(0, 1e4, half)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    y = kernels.rope(x, cos, sin, interleaved=interleaved)
    first, second = (
        (np.s_[:, 0 : 2 * half : 2], np.s_[:, 1 : 2 * half : 2])
        if interleaved
        else (np.s_[:, :half], np.s_[:, half : 2 * half])
    )
    a, b = x[first].astype(np.float64), x[second].astype(np.float64)
    size = np.abs(a) + np.abs(b)
    budget.within(y[first], a * cos - b * sin, 1.5 * ULP * size)
    budget.within(y[second], b * cos + a * sin, 1.5 * ULP * size)
    assert y[:, 2 * half :].tobytes() == x[:, 2 * half :].tobytes()


@pytest.mark.parametrize("interleaved", [False, True])
def test_position_zero_changes_no_bit(kernels: KernelSet, interleaved: bool) -> None:
    x = np.random.default_rng(5).standard_normal((3, 64)).astype(np.float32)
    assert (
        kernels.rope(x, np.ones(32, np.float32), np.zeros(32, np.float32), interleaved=interleaved).tobytes()
        == x.tobytes()
    )


# -- argmax ---------------------------------------------------------------------------------------


@given(count=st.integers(1, 70), kinds=st.integers(1, 4), base=st.integers(0, 1000), seed=st.integers(0, 2**32 - 1))
@some
def test_argmax_is_the_first_of_the_largest(kernels: KernelSet, count: int, kinds: int, base: int, seed: int) -> None:
    """Few different values, so that most cases have ties."""
    values = np.random.default_rng(seed).integers(-kinds, kinds, count).astype(np.float32)
    assert kernels.argmax(values, base) == (values.max(), base + int(values.argmax()), False)


@pytest.mark.parametrize("at", [0, 7, 15, 16, 31, 32, 34])
def test_argmax_finds_a_single_peak_and_a_single_nan(kernels: KernelSet, at: int) -> None:
    values = np.zeros(35, np.float32)
    values[at] = 1
    assert kernels.argmax(values) == (1.0, at, False)
    values[at] = np.nan
    found = kernels.argmax(values)
    assert found[2] and found[0] == 0 and found[1] == (0 if at else 1)


def test_argmax_goes_on_from_what_was_found_before(kernels: KernelSet) -> None:
    values = np.array([1, 5, 5, 2] * 5, np.float32)
    assert kernels.argmax(values, 100, (5.0, 3, False)) == (5.0, 3, False)
    assert kernels.argmax(values, 100, (4.0, 3, True)) == (5.0, 101, True)
    assert kernels.argmax(np.full(40, -np.inf, np.float32), 100) == (-np.inf, 0, False)
    assert kernels.argmax(np.full(40, np.inf, np.float32), 100) == (np.inf, 100, False)
