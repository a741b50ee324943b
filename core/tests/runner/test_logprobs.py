"""Logprobs: of the raw logits, exact, with ranks and the best alternatives in order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runner.draws import Draw, sample

from octavo.platform import Samples

VOCAB = 14
logit = st.one_of(st.integers(-16, 16).map(lambda i: i / 4), st.floats(-80, 80, width=32), st.just(-math.inf))


def log_softmax(row: list[float]) -> list[float]:
    peak = max(row)
    total = math.log(math.fsum(math.exp(x - peak) for x in row)) + peak
    return [x - total for x in row]


def parts(found: Samples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    assert found.logprobs is not None
    assert found.ranks is not None
    assert found.top_ids is not None
    assert found.top_logprobs is not None
    return found.logprobs, found.ranks, found.top_ids, found.top_logprobs


@settings(max_examples=200, deadline=None)
@given(
    st.lists(logit, min_size=VOCAB, max_size=VOCAB).filter(lambda row: max(row) > -math.inf),
    st.integers(0, VOCAB + 3),
    st.integers(0, VOCAB - 1),
)
def test_values_ranks_and_order(row: list[float], count: int, target: int) -> None:
    logits = np.array([row], np.float32)
    row = [float(x) for x in logits[0]]
    exact = log_softmax(row)
    found = sample(
        logits, Draw(logprobs=count, seed=9), Draw(logprobs=count, target=target), Draw(logprobs=count, temperature=0)
    )
    logprobs, ranks, top_ids, top = parts(found)
    assert (logprobs.dtype, ranks.dtype, top_ids.dtype, top.dtype) == (np.float32, np.int32, np.int32, np.float32)
    assert found.tokens[1] == target
    order = sorted(range(VOCAB), key=lambda t: (-row[t], t))[:count]
    for d, token in enumerate(found.tokens.tolist()):
        np.testing.assert_allclose(logprobs[d], exact[token], rtol=1e-7, atol=1e-12)
        assert ranks[d] == 1 + sum(x > row[token] for x in row)
        assert top_ids[d, :count].tolist() == order
        np.testing.assert_allclose(top[d, : len(order)], [exact[t] for t in order], rtol=1e-7, atol=1e-12)
        if token in order:
            assert top[d, order.index(token)] == logprobs[d], "one token, one number"
    assert ranks[2] == 1


def test_ties_at_the_end_of_the_list_go_to_the_smallest_ids() -> None:
    row = np.zeros((1, 1000), np.float32)
    row[0, 700] = 1.0
    _, _, top_ids, _ = parts(sample(row, Draw(logprobs=4, temperature=0)))
    assert top_ids[0].tolist() == [700, 0, 1, 2]


def test_each_draw_has_as_many_as_it_asked_for() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    found = sample(rows, Draw(row=0, logprobs=5), Draw(row=1), Draw(row=2, logprobs=0), Draw(row=2, logprobs=2))
    logprobs, ranks, top_ids, top = parts(found)
    assert top_ids.shape == top.shape == (4, 5)
    for d, row, count in ((0, 0, 5), (2, 2, 0), (3, 2, 2)):
        exact = log_softmax(rows[row].tolist())
        assert logprobs[d] == np.float32(exact[found.tokens[d]])
        best = np.argsort(-rows[row])[:count]
        assert top_ids[d, :count].tolist() == best.tolist()
        assert top[d, :count].tolist() == [np.float32(exact[t]) for t in best]
        assert ranks[d] >= 1


@pytest.mark.parametrize(
    "draw",
    [
        Draw(logprobs=2, bias={0: 50.0}),
        Draw(logprobs=2, temperature=3.0, top_k=1),
        Draw(logprobs=2, repetition=5.0, frequency=2.0, presence=2.0, prompt=[1], output=[2, 2]),
    ],
    ids=["bias", "temperature", "penalties"],
)
def test_logprobs_are_of_the_raw_distribution(draw: Draw) -> None:
    row = [0.5, 2.0, 1.0, -1.0]
    found = sample(np.array([row], np.float32), draw)
    logprobs, _, top_ids, top = parts(found)
    exact = log_softmax(row)
    assert logprobs[0] == np.float32(exact[found.tokens[0]])
    assert top_ids[0].tolist() == [1, 2]
    assert top[0].tolist() == [np.float32(exact[1]), np.float32(exact[2])]


def test_nobody_asked() -> None:
    found = sample(np.zeros((1, 4), np.float32), Draw(), Draw(temperature=0.0))
    assert (found.logprobs, found.ranks, found.top_ids, found.top_logprobs) == (None, None, None, None)


def test_large_logits_lose_nothing() -> None:
    row = np.array([[20000.0, 19999.0, 19000.0]], np.float32)
    logprobs, _, _, top = parts(sample(row, Draw(logprobs=3, temperature=0)))
    rest = math.log1p(math.exp(-1))
    assert top[0].tolist() == pytest.approx([-rest, -1 - rest, -1000 - rest], rel=1e-7)
    assert logprobs[0] == top[0, 0]
