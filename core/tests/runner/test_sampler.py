"""The host sampler against the semantics written out token by token."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from runner.draws import Draw, distribution, drawn, make_batch, sample, shaped

from octavo.runner import HostSampler
from octavo.runner.philox import uniforms
from octavo.runner.sampler import _draw
from octavo.runner.weights import spread, weigh

VOCAB = 12
INF = math.inf


def uniform(draw: Draw) -> float:
    batch = make_batch([draw])
    return float(uniforms(batch.seed, batch.sample_index, batch.position)[0])


def support(logits: list[float], draw: Draw, count: int = 300) -> set[int]:
    """Every token that comes up."""
    row = np.array([logits], np.float32)
    found = sample(row, *(replace(draw, position=i) for i in range(count)))
    assert not found.failed.any()
    return set(found.tokens.tolist())


# A grid of logits, so that ties are common.
logit = st.integers(-24, 24).map(lambda i: i / 8)
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=6)
draws = st.builds(
    Draw,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 2, 5, VOCAB, VOCAB + 7]),
    top_p=st.sampled_from([1.0, 0.999, 0.8, 0.5, 0.05, 1e-6]),
    min_p=st.sampled_from([0.0, 0.01, 0.2, 0.7, 1.0]),
    repetition=st.sampled_from([1.0, 0.5, 1.3, 4.0]),
    presence=st.sampled_from([0.0, 0.7, -2.0]),
    frequency=st.sampled_from([0.0, 0.4, -1.5]),
    seed=st.integers(0, 2**64 - 1),
    sample_index=st.integers(0, 127),
    position=st.integers(0, 2**31 - 1),
    bias=st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, -INF, -1.5, 0.25, 5.0]), max_size=3),
    prompt=tokens,
    output=tokens,
    allowed=st.one_of(st.none(), st.frozensets(st.integers(0, VOCAB - 1), min_size=4)),  # more than biases forbid
    vocab=st.just(VOCAB),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.lists(logit, min_size=VOCAB, max_size=VOCAB), draws), min_size=1, max_size=4))
def test_equals_the_definition(rows: list[tuple[list[float], Draw]]) -> None:
    batch = [replace(draw, row=i) for i, (_, draw) in enumerate(rows)]
    expected = []
    for logits, draw in rows:
        row = shaped(logits, draw)
        if draw.temperature == 0:
            expected.append(row.index(max(row)))
            continue
        weights, call = distribution(logits, draw)
        token, near = drawn(weights, uniform(draw))
        assume(call > 1e-9 and near > 1e-9)  # nearer, rounding decides
        expected.append(token)
    found = sample(np.array([logits for logits, _ in rows], np.float32), *batch)
    assert not found.failed.any()
    assert found.tokens.tolist() == expected
    assert found.tokens.dtype == np.int32
    assert found.logprobs is None


@pytest.mark.parametrize("extra", [Draw(), Draw(logprobs=0), Draw(bias={0: 0.0})], ids=["plain", "logprobs", "bias"])
def test_greedy_takes_the_smallest_id_among_the_largest(extra: Draw) -> None:
    rows = np.array([[1, 3, 2, 3], [5, 5, 5, 5], [-1, -2, -3, -0.5]], np.float32)
    found = sample(rows, *(replace(extra, row=r, temperature=0.0) for r in (0, 1, 2, 0)))
    assert found.tokens.tolist() == [1, 0, 3, 1]
    assert not found.failed.any()


HALVING, TEMPERATURE = 836158 / 2**20, 1206321 / 2**20  # their ratio is ln 2 to 3e-13
LOGITS = [math.log(w) for w in (0.4, 0.1, 0.25, 0.05, 0.15, 0.05)]


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (Draw(), {0, 1, 2, 3, 4, 5}),
        (Draw(top_k=1), {0}),
        (Draw(top_k=3), {0, 2, 4}),
        (Draw(top_k=5), {0, 1, 2, 3, 4, 5}),  # the fifth and sixth are equal
        (Draw(top_p=0.39), {0}),
        (Draw(top_p=0.41), {0, 2}),
        (Draw(top_p=0.79), {0, 2, 4}),
        (Draw(top_p=0.92), {0, 1, 2, 3, 4, 5}),  # one of two equals is needed
        (Draw(top_p=1e-9), {0}),
        (Draw(min_p=0.3), {0, 2, 4}),
        (Draw(min_p=0.99), {0}),
        (Draw(min_p=1.0), {0}),
        (Draw(top_k=3, top_p=0.75), {0, 2}),  # 0.75 of the 0.8 that top_k left; of the whole it would take all three
        (Draw(min_p=0.2, top_p=0.8), {0, 2, 4}),  # min_p leaves 0.9
        (Draw(min_p=0.3, top_k=5), {0, 2, 4}),
        (Draw(temperature=0.25, top_p=0.9), {0, 2}),  # top_p is of what the temperature makes
        (Draw(bias={0: -INF}), {1, 2, 3, 4, 5}),
        (Draw(bias={0: -INF}, top_k=2), {2, 4}),
        (Draw(bias={3: 10.0}, top_k=1), {3}),
    ],
)
def test_support(draw: Draw, expected: set[int]) -> None:
    assert support(LOGITS, draw) == expected


def test_top_p_finds_the_nucleus_of_a_large_vocabulary() -> None:
    """Most of a large vocabulary is never sorted; the nucleus must be that of the whole."""
    rng = np.random.default_rng(0)
    for scale in (0.1, 1.0, 4.0):
        logits = (rng.standard_normal(5000) * scale).astype(np.float32)
        weights = np.exp(logits.astype(np.float64) - logits.max())
        order = np.argsort(-weights, kind="stable")
        for top_p in (0.1, 0.5, 0.9, 0.99, 0.9999):
            running = np.cumsum(weights[order])
            kept = order[: int(np.searchsorted(running, float(np.float32(top_p)) * running[-1])) + 1]
            inside = np.zeros(5000, bool)
            inside[kept] = True
            for position in range(20):
                draw = Draw(top_p=top_p, position=position)
                expected, near = drawn(np.where(inside, weights, 0).tolist(), uniform(draw))
                assert near > 1e-10
                assert sample(logits[None], draw).tokens[0] == expected


@pytest.mark.parametrize("second", [0.0, -1e-30])
def test_top_k_goes_by_logits_where_weights_are_equal(second: float) -> None:
    """Logits this near weigh the same; the k-th largest is still one of them."""
    logits = [second, 1e-30, -5.0]
    assert support(logits, Draw(top_k=1)) == {1}
    assert support(logits, Draw(top_k=2)) == {0, 1}
    assert support(logits, Draw(top_p=0.3)) == {0, 1}, "top_p keeps equal weights together"


@pytest.mark.parametrize(("top_p", "kept"), [(0.25, 1), (0.5, 1), (0.50001, 2), (0.75, 2), (0.76, 4), (1.0, 4)])
def test_a_prefix_that_holds_exactly_top_p_is_enough(top_p: float, kept: int) -> None:
    """Weights of exactly 1, 1/2, 1/4 and 1/4: a convergent of ln 2 halves them to within what rounding takes off."""
    logits = [-INF] * 4096
    logits[7:11] = HALVING * np.array([0, -1, -2, -2])
    assert support(logits, Draw(temperature=TEMPERATURE, top_p=top_p), 60) == set(range(7, 7 + kept))


def test_a_long_row_is_drawn_from_as_by_one_running_sum() -> None:
    """The sums of blocks come first; the token must be the same."""
    logits = np.random.default_rng(3).standard_normal((1, 5000)).astype(np.float32)
    weights = weigh(logits[0], logits.max(), np.float32(1), spread(5000))
    running = np.cumsum(weights)
    batch = make_batch([Draw(position=i) for i in range(500)])
    shares = uniforms(batch.seed, batch.sample_index, batch.position) * running[-1]
    assert HostSampler().sample(logits, batch).tokens.tolist() == np.searchsorted(running, shares, "right").tolist()


def test_a_cold_temperature_is_greedy_in_the_limit() -> None:
    for temperature in (1e-3, 1e-10, 1e-40):
        assert support([0.5, 2.0, 1.9, -7.0], Draw(temperature=temperature), 50) == {1}


def test_a_hot_temperature_flattens() -> None:
    assert support([0.0, 50.0, -50.0], Draw(temperature=100.0)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (Draw(repetition=2.0, prompt=[0], output=[3]), [1.0, -1.0, 0.0, -3.0]),
        (Draw(repetition=2.0, prompt=[0, 0, 0]), [1.0, -1.0, 0.0, -1.5]),  # once, however often it was seen
        (Draw(presence=0.5, prompt=[0, 1], output=[2, 3, 3]), [2.0, -1.0, -0.5, -2.0]),
        (Draw(frequency=0.5, prompt=[0, 1], output=[2, 3, 3]), [2.0, -1.0, -0.5, -2.5]),
        (Draw(frequency=-1.0, presence=-0.5, prompt=[0], output=[0, 0]), [4.5, -1.0, 0.0, -1.5]),
        (Draw(repetition=4.0, presence=1.0, output=[0]), [-0.5, -1.0, 0.0, -1.5]),  # the repetition penalty first
        (Draw(bias={1: 3.0}, repetition=2.0, prompt=[1]), [2.0, 1.0, 0.0, -1.5]),  # the bias before it
    ],
)
def test_penalties_and_bias_by_hand(draw: Draw, expected: list[float]) -> None:
    """Read back through the odds: a bias on one token finds the point where another takes over."""
    logits = np.array([[2.0, -1.0, 0.0, -1.5]], np.float32)
    weights = [math.exp(x) for x in expected]
    for position in range(200):
        one = replace(draw, position=position)
        token, near = drawn(weights, uniform(one))
        assert near < 1e-6 or sample(logits, one).tokens[0] == token


def test_each_draw_is_the_same_alone_and_in_any_company() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((6, 40)).astype(np.float32)
    pool = [
        Draw(
            row=int(rng.integers(6)),
            seed=i,
            position=int(rng.integers(999)),
            temperature=float(rng.choice([0, 0.7, 1.5])),
            top_p=float(rng.choice([1, 0.6])),
            top_k=int(rng.choice([0, 9])),
            logprobs=int(rng.choice([-1, 0, 3])),
            bias={5: 2.0} if i % 3 == 0 else {},
            frequency=0.5 if i % 4 == 0 else 0.0,
            output=[1, 2, 2] if i % 4 == 0 else [],
        )
        for i in range(30)
    ]
    alone = [int(sample(logits, d).tokens[0]) for d in pool]
    assert len(set(alone)) > 8
    for _ in range(5):
        order = rng.permutation(30)[: int(rng.integers(2, 30))]
        assert sample(logits, *(pool[i] for i in order)).tokens.tolist() == [alone[i] for i in order]


@pytest.mark.parametrize("name", ["seed", "position", "sample_index"])
def test_another_seed_position_or_sample_draws_anew(name: str) -> None:
    logits = np.zeros((1, 1000), np.float32)
    first = sample(logits, *(Draw(**{name: i}) for i in range(100))).tokens  # type: ignore[arg-type]
    again = sample(logits, *(Draw(**{name: i}) for i in range(100))).tokens  # type: ignore[arg-type]
    assert first.tolist() == again.tolist()
    assert len(set(first.tolist())) > 80  # 95 expected of 1000 tokens


SOUND = [0.0, 1.0, 2.0, 0.5]
BROKEN = {
    "nan": [0.0, math.nan, 9.0, 0.0],
    "inf": [0.0, INF, 1.0, 0.0],
    "inf and -inf": [INF, -INF, 1.0, 0.0],
    "all -inf": [-INF] * 4,
    "all nan": [math.nan] * 4,
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "draw",
    [
        Draw(temperature=0.0),
        Draw(temperature=0.0, logprobs=2),
        Draw(temperature=0.8, top_p=0.9, min_p=0.1, top_k=3),
        Draw(bias={0: -INF, 1: -100.0}, repetition=1.5, frequency=0.5, presence=0.5, prompt=[1], output=[0]),
        Draw(target=1, logprobs=2),
    ],
    ids=["greedy", "logprobs", "filters", "penalties", "target"],
)
def test_logits_that_are_not_finite_fail_their_own_draws(broken: str, draw: Draw) -> None:
    logits = np.array([SOUND, BROKEN[broken], SOUND], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sample(logits, *(replace(draw, row=r) for r in (0, 1, 2, 1)))
        sound = sample(logits[:1], draw)
    assert found.failed.tolist() == [False, True, False, True]
    assert found.tokens[[0, 2]].tolist() == [sound.tokens[0]] * 2
    assert (found.tokens >= 0).all(), "whatever stands for a failed draw must be an index"
    if draw.logprobs >= 0:
        for name in ("logprobs", "ranks", "top_ids", "top_logprobs"):
            part = getattr(found, name)
            assert np.array_equal(part[0], getattr(sound, name)[0])
            assert np.array_equal(part[2], part[0])


def test_a_forbidden_token_is_no_failure() -> None:
    logits = np.array([[-INF, 1.0, -INF, -INF]], np.float32)
    found = sample(logits, Draw(temperature=0.0), Draw(top_k=3, top_p=0.9), Draw(temperature=0.0, logprobs=4))
    assert found.tokens.tolist() == [1, 1, 1]
    assert not found.failed.any()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_when_every_token_is_forbidden_the_draw_fails(temperature: float) -> None:
    logits = np.array([SOUND, SOUND], np.float32)
    forbidden = Draw(row=0, temperature=temperature, bias=dict.fromkeys(range(4), -INF), logprobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sample(logits, forbidden, replace(forbidden, bias={}, row=1))
    assert found.failed.tolist() == [True, False]
    assert found.tokens[0] >= 0


def test_a_penalty_that_overflows_fails_its_draw() -> None:
    logits = np.array([[3e38, 1.0]], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sample(logits, Draw(repetition=1e-3, prompt=[0]), Draw(temperature=0.0, repetition=1.0, prompt=[0]))
    assert found.failed.tolist() == [True, False]


def test_a_token_may_have_several_biases() -> None:
    logits = np.zeros((1, 3), np.float32)
    batch = make_batch([Draw(temperature=0.0, bias={2: 5.0})])
    twice: Any = (  # one batch entry each, in no order of tokens
        np.array([0, 0, 0], np.int32),
        np.array([2, 1, 2], np.int32),
        np.array([-INF, 1.0, 5.0], np.float32),
    )
    assert HostSampler().sample(logits, replace(batch, bias=twice)).tokens[0] == 1


def test_logits_are_left_as_they_were() -> None:
    logits = np.random.default_rng(0).standard_normal((2, 9)).astype(np.float32)
    before = logits.copy()
    sample(logits, Draw(bias={1: 3.0}, repetition=2.0, prompt=[1, 2], logprobs=2), Draw(row=1, top_p=0.5))
    assert np.array_equal(logits, before)


def test_rows_may_be_read_by_many_draws_or_none() -> None:
    logits = np.array([[0, 9, 0], [9, 0, 0], [math.nan] * 3], np.float32)  # the last is padding
    found = sample(logits, *(Draw(row=r, temperature=0.0) for r in (1, 0, 1)))
    assert found.tokens.tolist() == [0, 1, 0]
    assert not found.failed.any()


def test_a_target_is_scored_and_not_drawn() -> None:
    logits = np.array([SOUND], np.float32)
    found = sample(logits, Draw(target=3, temperature=0.0, logprobs=0), Draw(target=0, logprobs=1))
    assert found.tokens.tolist() == [3, 0]
    assert found.ranks is not None
    assert found.ranks.tolist() == [3, 4]


@pytest.mark.parametrize("second", [-0.1, -1.0, -20.0, -36.0, -37.0, -50.0])
def test_the_largest_uniform_draws_a_token_that_has_weight(second: float) -> None:
    """Whatever the sum rounds to; the last token has no weight and must not come out."""
    batch = make_batch([Draw(), Draw(top_p=1 - 2**-24)])
    for first in np.linspace(0, -3, 50, dtype=np.float32):
        logits = np.array([0.0, first, np.float32(second), -INF], np.float32)
        for draw in (0, 1):
            assert _draw(logits, batch, draw, 1 - 2**-53) in (1, 2)


def test_the_smallest_uniform_draws_the_first_token_that_has_weight() -> None:
    batch = make_batch([Draw(top_k=3)])
    assert _draw(np.array([0.3, 0.2, 0.1, -9.0], np.float32), batch, 0, 0.0) == 0
    assert _draw(np.array([-INF, 0.0, 3.0], np.float32), batch, 0, 0.0) == 1
