"""Sampling weights: the definition to the last bit, near the exponential, and sums without an error."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.weights import COEFFICIENTS, LOG2E, spread, weigh

INF = math.inf
f32 = np.float32

logit = st.one_of(
    st.floats(-60, 60, width=32), st.floats(allow_nan=False, allow_infinity=False, width=32), st.just(-INF)
)
temperature = st.one_of(st.sampled_from([1.0, 0.7, 0.01, 100.0, 1e-40]), st.floats(0.0009765625, 100, width=32))


def by_definition(logit: float, peak: float, temperature: float, s: float) -> float:
    """In Python floats, one operation after the other as the docstring has them."""
    y = max((logit - peak) * (LOG2E / temperature), -64.0)
    n = round(y)  # half to even
    f = y - n
    p = f * COEFFICIENTS[7]
    for c in COEFFICIENTS[6::-1]:
        p = (p + c) * f
    return (math.ldexp(p + 1.0, n) + s) - s


@settings(max_examples=300, deadline=None)
@given(st.lists(logit, min_size=1, max_size=40).filter(lambda row: max(row) > -INF), temperature)
def test_every_weight_has_the_bits_of_the_definition(row: list[float], temperature: float) -> None:
    logits, t, s = np.array(row, f32), f32(temperature), spread(len(row))
    found = weigh(logits, logits.max(), t, s)
    expected = [by_definition(float(x), float(logits.max()), float(t), s) for x in logits]
    assert found.tolist() == expected


def test_known_answers() -> None:
    """What any other implementation must give, in any order of summation."""
    logits = np.array([0.0, -0.25, -1.0, -3.5, -10.0, -17.9, -18.5, -90.0, -INF], f32)
    assert [w.hex() for w in weigh(logits, f32(0), f32(0.75), 2.0**16).tolist()] == KNOWN


KNOWN = [
    "0x1.0000000000000p+0", "0x1.6edd312300000p-1", "0x1.0dec687e00000p-2", "0x1.3422ccd000000p-7",
    "0x1.b2c2000000000p-20", "0x1.8000000000000p-35", "0x1.0000000000000p-36", "0x0.0p+0", "0x0.0p+0",
]  # fmt: skip


@pytest.mark.parametrize("vocab", [1, 2, 3, 49152, 2**16, 2**16 + 1, 262144])
def test_the_spread_is_the_smallest_power_of_two_that_holds_the_vocabulary(vocab: int) -> None:
    s = spread(vocab)
    assert s / 2 < vocab <= s
    assert math.frexp(s)[0] == 0.5


def test_weights_are_near_the_exponential() -> None:
    for vocab in (16, 49152):
        grid = spread(vocab) * 2.0**-52
        x = -np.linspace(0, 45, 10_001).astype(f32)
        exact = np.exp(x.astype(np.float64))
        found = weigh(x, f32(0), f32(1), spread(vocab))
        assert (np.abs(found - exact) <= exact * 1.2e-12 + grid / 2).all()


@pytest.mark.parametrize("temperature", [1e-40, 1e-3, 1.0, 100.0])
def test_the_peak_weighs_exactly_one(temperature: float) -> None:
    for peak in (-3e38, -7.5, 0.0, 1e-30, 80.0, 3e38):
        logits = np.array([peak, -INF], f32)
        assert weigh(logits, f32(peak), f32(temperature), 2.0).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("vocab", [3, 1000, 49152])
def test_sums_are_exact_in_any_order(vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    logits = (rng.standard_normal(vocab) * 4).astype(f32)
    weights = weigh(logits, logits.max(), f32(1.3), spread(vocab))
    exact = sum(map(Fraction, weights.tolist()))
    assert Fraction(float(weights.sum())) == exact
    for _ in range(3):
        assert Fraction(float(np.cumsum(rng.permutation(weights))[-1])) == exact


def test_a_long_row_is_the_same_in_pieces() -> None:
    """The loop over chunks leaves no seam."""
    logits = np.random.default_rng(0).standard_normal(20_000).astype(f32)
    whole = weigh(logits, f32(5), f32(0.9), 2.0**15)
    pieces = [weigh(logits[i : i + 777], f32(5), f32(0.9), 2.0**15) for i in range(0, 20_000, 777)]
    assert np.array_equal(whole, np.concatenate(pieces))
