"""The oracle of sampling: by hand where that is easy, and draw by draw against core's sampler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from octavo.runner.sampler import HostSampler
from octavo_conformance.checks.l1_sampling import batch
from octavo_conformance.judge import sampling
from octavo_conformance.judge.rng import Rng
from octavo_conformance.judge.sampling import Draw

STEEP = np.log(np.array([4.0, 2.0, 1.0, 1.0], np.float32))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (Draw(), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        (Draw(temperature=0.0), [1, 0, 0, 0]),
        (Draw(temperature=0.5), [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
        (Draw(top_k=2), [2 / 3, 1 / 3, 0, 0]),
        (Draw(top_k=3), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),  # the third's equal stays
        (Draw(top_p=0.6), [2 / 3, 1 / 3, 0, 0]),
        (Draw(top_p=0.8), [1 / 2, 1 / 4, 1 / 8, 1 / 8]),
        (Draw(min_p=0.4), [2 / 3, 1 / 3, 0, 0]),
        (Draw(top_k=2, top_p=0.6), [1, 0, 0, 0]),
        (Draw(bias=((0, -np.inf), (3, float(np.log(2))))), [0, 2 / 5, 1 / 5, 2 / 5]),
        (Draw(presence=float(np.log(2)), prompt=(1,), output=(0, 0)), [2 / 6, 2 / 6, 1 / 6, 1 / 6]),
        (Draw(frequency=float(np.log(2)), output=(0, 0)), [1 / 5, 2 / 5, 1 / 5, 1 / 5]),
        (Draw(repetition=2.0, prompt=(0,)), [2 / 6, 2 / 6, 1 / 6, 1 / 6]),
        (Draw(allowed=(1, 3), bias=((0, 50.0),)), [0, 2 / 3, 0, 1 / 3]),
    ],
)
def test_probabilities_by_hand(draw: Draw, expected: list[float]) -> None:
    np.testing.assert_allclose(sampling.probabilities(STEEP, draw), expected, atol=1e-6)


def test_tokens_are_those_of_the_host_sampler() -> None:
    rng = Rng("draws")
    logits = rng.normal(4, 50).astype(np.float32)
    kinds = (Draw(), Draw(top_k=5, temperature=0.7), Draw(top_p=0.5), Draw(repetition=1.4, prompt=(1, 2), output=(3,)),
             Draw(allowed=(1, 31, 32, 49)))  # fmt: skip
    draws = [replace(kinds[i % 5], row=i % 3, seed=i * 2**31 + i, sample_index=i % 5, position=i) for i in range(400)]
    found = HostSampler().sample(logits.copy(), batch(draws, 50)).tokens
    assert np.array_equal(found, sampling.tokens(logits, draws, found))
    assert not np.array_equal(found, sampling.tokens(logits, sampling.plain(draws, position=0)))
