"""Drawn frequencies against the distribution that the semantics define."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runner.draws import Draw, distribution, sample
from runner.goodness import g_statistic, quantile

N = 20_000


@pytest.mark.parametrize("varied", ["position", "seed", "sample_index"])
@pytest.mark.parametrize(
    "draw",
    [
        Draw(),
        Draw(temperature=0.6),
        Draw(temperature=1.7, top_k=9),
        Draw(top_p=0.8),
        Draw(min_p=0.1),
        Draw(temperature=1.3, top_k=12, top_p=0.9, min_p=0.02),
        Draw(
            repetition=1.4, frequency=0.3, presence=0.4, prompt=[0, 1, 2], output=[3, 3, 4, 11], bias={7: 1.5, 8: -2.0}
        ),
    ],
    ids=["plain", "cold", "top_k", "top_p", "min_p", "all", "penalties"],
)
def test_frequencies(draw: Draw, varied: str) -> None:
    logits = np.random.default_rng(5).standard_normal((1, 16)).astype(np.float32) * 1.2
    found = sample(logits, *(replace(draw, **{varied: i}) for i in range(N)))
    weights, _ = distribution(logits[0].tolist(), draw)
    expected = np.array(weights) / sum(weights) * N
    counts = np.bincount(found.tokens, minlength=16)
    assert not counts[expected == 0].any()
    kept = expected > 0
    assert expected[kept].min() > 5, "too few for the approximation"
    assert g_statistic(counts[kept], expected[kept]) < quantile(int(kept.sum()) - 1)


def test_the_statistic_would_see_a_wrong_temperature() -> None:
    logits = np.random.default_rng(5).standard_normal((1, 16)).astype(np.float32) * 1.2
    found = sample(logits, *(Draw(temperature=1.1, position=i) for i in range(N)))
    weights, _ = distribution(logits[0].tolist(), Draw())
    expected = np.array(weights) / sum(weights) * N
    assert g_statistic(np.bincount(found.tokens, minlength=16), expected) > quantile(15)


def test_draws_of_successive_positions_are_independent() -> None:
    logits = np.zeros((1, 8), np.float32)
    tokens = sample(logits, *(Draw(position=i, seed=3) for i in range(N))).tokens
    pairs = np.bincount(tokens[:-1] * 8 + tokens[1:], minlength=64)
    assert g_statistic(pairs, np.full(64, (N - 1) / 64)) < quantile(63)


def test_samples_of_one_request_are_independent() -> None:
    logits = np.zeros((1, 8), np.float32)
    first, second = (
        sample(logits, *(Draw(position=i, sample_index=n) for i in range(N))).tokens for n in (0, 1)
    )  # fmt: skip
    pairs = np.bincount(first * 8 + second, minlength=64)
    assert g_statistic(pairs, np.full(64, N / 64)) < quantile(63)
