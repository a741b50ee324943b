"""Finer codes for groups of activations with large steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native.kernels import KernelSet, Quantised
from native.numbers16 import F32
from native.weights import QUANTIZED, random_weights


def outliers(rng: np.random.Generator, rows: int, k: int) -> F32:
    x = rng.standard_normal((rows, k)).astype(np.float32)
    x[rng.random(x.shape) < 0.01] *= 30
    return x


def test_finer_codes_leave_a_256th_of_the_error(generic: KernelSet) -> None:
    x = outliers(np.random.default_rng(1), 8, 512)
    coarse = generic.quantise(x)
    scale = np.repeat(coarse.scales.astype(np.float64), 32, 1)
    fine = generic.refine(x, coarse, 0.0)
    assert fine.fine is not None and fine.fine.refined.all()
    assert np.abs(x - scale * coarse.numbers).max() > 0.3 * scale.max()
    # Half a unit of the finer codes; a full one where what is left is 127.5 of them or more.
    assert (np.abs(x - scale * fine.numbers) <= 0.51 / 256 * scale + (np.abs(fine.fine.low) == 127) / 256 * scale).all()
    sums = (scale * fine.numbers).reshape(8, -1, 32).sum(2)
    assert np.allclose(fine.sums, sums, rtol=3e-7, atol=0)
    assert np.array_equal(fine.fine.low_half_sums, 32 * fine.fine.low.astype(np.int32).reshape(8, -1, 16).sum(2))


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0, 1.5, 3.0, np.inf])
def test_the_groups_above_the_threshold_are_refined_and_no_others(generic: KernelSet, threshold: float) -> None:
    x = outliers(np.random.default_rng(2), 6, 1024)
    x[2, 64:96] = 0
    coarse = generic.quantise(x)
    refined = generic.refine(x, coarse, threshold)
    root = np.sqrt((coarse.scales.astype(np.float64) ** 2).mean(1, keepdims=True))
    assert refined.fine is not None
    wanted = coarse.scales > threshold * root if np.isfinite(threshold) else np.zeros_like(coarse.scales, bool)
    assert np.array_equal(refined.fine.refined, wanted)
    left = ~np.repeat(wanted, 32, 1)
    assert not refined.fine.low[left].any()
    assert refined.sums[~wanted].tobytes() == coarse.sums[~wanted].tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_with_a_bad_number_is_left_as_it_is(generic: KernelSet, bad: float) -> None:
    x = outliers(np.random.default_rng(3), 2, 128)
    x[0, 40] = bad
    coarse = generic.quantise(x)
    fine = generic.refine(x, coarse, 1.0)
    assert fine.fine is not None and not fine.fine.refined[0].any() and fine.fine.refined[1].any()
    assert np.isnan(fine.sums[0, 1])


@pytest.mark.parametrize("format", QUANTIZED)
@given(rows=st.integers(1, 18), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_row_gives_the_same_bits_whichever_others_are_refined(
    kernels: KernelSet, format: str, rows: int, seed: int
) -> None:
    """Alone, where nothing beside it has finer codes, and in company, where they are multiplied with zeros for it."""
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, format, 40, 256)
    packed = kernels.pack(weights)
    x = outliers(rng, rows, 256) * np.exp2(rng.integers(-40, 40, (rows, 1))).astype(np.float32)
    fed = kernels.refine(x, kernels.quantise(x), 1.2)
    together = kernels.matmul(weights, packed, fed)
    for row in range(rows):
        alone = fed.rows([row])
        assert kernels.matmul(weights, packed, alone).tobytes() == together[row].tobytes()
        assert alone.fine is not None
        if not alone.fine.refined.any():
            plain = Quantised(alone.codes, alone.scales, alone.sums, alone.half_sums)
            assert kernels.matmul(weights, packed, plain).tobytes() == together[row].tobytes()
