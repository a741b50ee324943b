"""What the native sampler draws, against the distribution that the semantics define, which is computed apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from native.kernels import KernelSet
from native.library import InProcess
from runner.draws import Draw, distribution
from runner.goodness import g_statistic, quantile

from octavo.platform import SamplingBatch
from octavo_cpu.binding import library_path

N = 100_000


@pytest.fixture(scope="module")
def best() -> KernelSet:
    """The set that this machine serves with. That others give the same bits is tested elsewhere."""
    return KernelSet(InProcess(library_path()), "")


def many(draws: int, **changed: Any) -> SamplingBatch:
    """Draws from row 0 at successive positions of one sequence."""
    plain = SamplingBatch.plain(draws, greedy=False)
    arrays = {name: np.full(draws, value, getattr(plain, name).dtype) for name, value in changed.items()}
    return replace(plain, row=np.zeros(draws, np.int32), **arrays)


def counted(sampler: KernelSet, logits: npt.NDArray[np.float32], draws: int, **changed: Any) -> npt.NDArray[np.intp]:
    found = sampler.sample(logits[None], many(draws, **changed), threads=2)
    assert not found.failed.any()
    return np.bincount(found.tokens, minlength=logits.size)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 1.7, "top_k": 30},
        {"top_p": 0.8},
        {"min_p": 0.05},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    ],
    ids=["plain", "cold", "top_k", "top_p", "min_p", "all"],
)
def test_frequencies_of_64_tokens(best: KernelSet, shape: dict[str, Any]) -> None:
    logits = np.random.default_rng(5).standard_normal(64).astype(np.float32) * np.float32(1.2)
    counts = counted(best, logits, N, **shape)
    weights, _ = distribution(logits.tolist(), Draw(**shape))
    expected = np.array(weights) / sum(weights) * N
    kept = expected > 0
    assert not counts[~kept].any()
    assert expected[kept].min() > 5, "too few for the approximation"
    assert g_statistic(counts[kept], expected[kept]) < quantile(int(kept.sum()) - 1)


def test_the_statistic_would_see_a_temperature_that_is_5_percent_off(best: KernelSet) -> None:
    logits = np.random.default_rng(5).standard_normal(64).astype(np.float32) * np.float32(1.2)
    weights = np.exp(logits.astype(np.float64))
    counts = counted(best, logits, N, temperature=1.05)
    assert g_statistic(counts, weights / weights.sum() * N) > quantile(63)


@pytest.mark.parametrize("top_p", [1.0, 0.95])
def test_frequencies_of_a_large_vocabulary(best: KernelSet, top_p: float) -> None:
    """In bins of equal expectation, each of tokens that follow one another."""
    vocab, draws, bins = 49152, 20_000, 200
    rng = np.random.default_rng(6)
    logits = (rng.standard_normal(vocab) * 2).astype(np.float32)
    weights = np.exp(logits.astype(np.float64))
    if top_p < 1:
        falling = np.sort(weights)[::-1]
        edge = falling[np.searchsorted(np.cumsum(falling), np.float32(top_p) * weights.sum())]
        weights[weights < edge] = 0
    running = np.cumsum(weights)
    bin_of = np.minimum((running / running[-1] * bins).astype(np.int64), bins - 1)
    expected = np.bincount(bin_of, weights, bins) / running[-1] * draws
    counts = counted(best, logits, draws, top_p=top_p)
    assert not counts[weights == 0].any()
    binned = np.bincount(bin_of, counts, bins).astype(np.int64)
    assert g_statistic(binned, expected) < quantile(bins - 1)


def test_successive_positions_are_independent(best: KernelSet) -> None:
    tokens = best.sample(np.zeros((1, 8), np.float32), many(N, seed=3), threads=2).tokens
    pairs = np.bincount(tokens[:-1] * 8 + tokens[1:], minlength=64)
    assert g_statistic(pairs, np.full(64, (N - 1) / 64)) < quantile(63)
