"""The native sampler gives the tokens and logprobs of the host's, on any logits, with every set of kernels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native.kernels import KernelSet
from native.numbers16 import F32
from runner.draws import Draw, make_batch

from octavo.platform import Samples, SamplingBatch
from octavo.runner import HostSampler
from octavo.runner.masks import pack
from octavo.runner.weights import LOG2E, spread, weigh

INF = math.inf
some = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def same(found: Samples, expected: Samples) -> None:
    """Equal to the last bit, but for tokens that mean nothing."""
    assert found.failed.tolist() == expected.failed.tolist()
    sound = ~expected.failed
    assert found.tokens[sound].tolist() == expected.tokens[sound].tolist()
    for name in ("logprobs", "ranks", "top_ids", "top_logprobs"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or np.array_equal(ours, theirs), name


def both(kernels: KernelSet, logits: F32, batch: SamplingBatch) -> None:
    same(kernels.sample(logits, batch), HostSampler().sample(logits, batch))


# -- the two loops ----------------------------------------------------------------------------------

logit = st.one_of(st.floats(-60, 60, width=32), st.floats(allow_nan=False, allow_infinity=False, width=32),
                  st.sampled_from([0.0, -0.0, 1e-30, -1e-45, 3e38, -3e38, -INF]))  # fmt: skip
temperature = st.one_of(
    st.sampled_from([1.0, 0.7, 0.01, 100.0, 1e-40]), st.floats(2**-10, 100, width=32)
)  # fmt: skip


@given(st.lists(logit, min_size=1, max_size=150).filter(lambda row: max(row) > -INF), temperature)
@some
def test_weights_and_their_sum_have_the_bits_of_the_definition(
    kernels: KernelSet, row: list[float], temperature: float
) -> None:
    logits, t, s = np.array(row, np.float32), np.float32(temperature), spread(len(row))
    expected = weigh(logits, logits.max(), t, s)
    found, total = kernels.weigh(logits, float(logits.max()), LOG2E / float(t), s)
    assert found.tolist() == expected.tolist()
    assert total == expected.sum()


@pytest.mark.parametrize("count", [1, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000])
def test_every_position_is_weighed(kernels: KernelSet, count: int) -> None:
    logits = np.random.default_rng(count).standard_normal(count).astype(np.float32) * 5
    expected = weigh(logits, logits.max(), np.float32(1.5), 1024.0)
    found, total = kernels.weigh(logits, float(logits.max()), LOG2E / 1.5, 1024.0)
    assert np.array_equal(found, expected)
    assert total == expected.sum()


@pytest.mark.parametrize("count", [1, 5, 16, 63, 64, 65, 130, 200])
def test_maxima_see_every_position(kernels: KernelSet, count: int) -> None:
    for at in range(count):
        for special in (7.5, math.nan, INF):
            logits = np.full(count, -INF if at % 2 else -3.0, np.float32)
            logits[at] = special
            found = kernels.maxima(logits)
            assert np.array_equal(found, [logits[i : i + 64].max() for i in range(0, count, 64)], equal_nan=True)


@pytest.mark.parametrize("count", [1, 5, 16, 31, 32, 33, 47, 64, 95, 130])
def test_a_mask_leaves_the_logits_whose_bits_are_ones(kernels: KernelSet, count: int) -> None:
    rng = np.random.default_rng(count)
    logits = rng.standard_normal(count).astype(np.float32)
    logits[rng.integers(count)] = math.nan
    for allowed in (*np.eye(count, dtype=bool), np.zeros(count, bool), np.ones(count, bool), rng.random(count) < 0.5):
        words = pack(np.flatnonzero(allowed).tolist(), count)
        assert np.array_equal(kernels.mask(logits, words), np.where(allowed, logits, -INF), equal_nan=True)


# -- the sampler ------------------------------------------------------------------------------------


def draws(vocab: int) -> st.SearchStrategy[Draw]:
    token = st.integers(0, vocab - 1)
    return st.builds(
        Draw,
        target=st.one_of(st.just(-1), st.just(-1), st.just(-1), token),
        temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5, 100.0, 1e-3, 1e-40]),
        top_k=st.sampled_from([0, 0, 1, 2, 5, vocab - 1, vocab, vocab + 7]),
        top_p=st.sampled_from([1.0, 1.0, 1 - 2**-24, 0.999, 0.8, 0.5, 0.05, 1e-6]),
        min_p=st.sampled_from([0.0, 0.0, 1e-20, 0.01, 0.2, 0.7, 1.0]),
        repetition=st.sampled_from([1.0, 0.5, 1.3, 100.0, 0.001]),
        presence=st.sampled_from([0.0, 0.7, -2.0]),
        frequency=st.sampled_from([0.0, 0.4, -1.5]),
        seed=st.integers(0, 2**64 - 1),
        sample_index=st.integers(0, 127),
        position=st.integers(0, 2**31 - 1),
        logprobs=st.sampled_from([-1, -1, 0, 1, 5, vocab, vocab + 3]),
        bias=st.dictionaries(token, st.sampled_from([-100.0, -INF, -1.5, 0.25, 5.0]), max_size=4),
        prompt=st.lists(token, max_size=6),
        output=st.lists(token, max_size=6),
        allowed=st.one_of(st.none(), st.none(), masks(vocab)),
        vocab=st.just(vocab),
    )


def masks(vocab: int) -> st.SearchStrategy[frozenset[int]]:
    """Few tokens, none, all, or all but a few: words of zeros, of ones, and mixed."""
    some = st.frozensets(st.integers(0, vocab - 1), max_size=5)
    return st.one_of(some, some.map(lambda tokens: frozenset(range(vocab)) - tokens))


@st.composite
def cases(draw: st.DrawFn) -> tuple[F32, SamplingBatch]:
    """Few different logits, so that ties are common; extreme ones; and some that no sampler may take."""
    vocab = draw(st.sampled_from([1, 2, 12, 64, 65, 200]))
    kind = draw(st.sampled_from(["grid", "grid", "extreme", "broken"]))
    value = {
        "grid": st.integers(-24, 24).map(lambda i: i / 8),
        "extreme": logit,
        "broken": st.one_of(st.integers(-3, 3).map(float), st.sampled_from([math.nan, INF, -INF])),
    }[kind]
    rows = draw(st.integers(1, 3))
    pool = draw(st.lists(value, min_size=1, max_size=40))  # as many values as there are tokens would be slow to draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.choice(np.array(pool, np.float32), (rows, vocab))
    batch = draw(st.lists(draws(vocab), min_size=1, max_size=6))
    return logits, make_batch([replace(d, row=int(rng.integers(rows))) for d in batch])


@given(cases())
@settings(some, max_examples=250)
def test_any_batch_is_sampled_as_by_the_host(kernels: KernelSet, case: tuple[F32, SamplingBatch]) -> None:
    both(kernels, *case)


def realistic(vocab: int, rows: int) -> F32:
    """From flat to peaked, with tails as models have them; one row of few values, one with most tokens forbidden."""
    rng = np.random.default_rng(vocab)
    logits = (
        rng.standard_normal((rows, vocab)).astype(np.float32) * np.linspace(0.05, 4, rows, dtype=np.float32)[:, None]
    )
    for row in range(rows):
        some = rng.integers(0, vocab, 30)
        logits[row, some] += rng.exponential(row, 30).astype(np.float32)
    logits[1] = rng.integers(0, 3, vocab)
    logits[2, rng.random(vocab) < 0.99] = -INF
    return logits + np.float32(9)


SHAPES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.4},
    {"temperature": 5.0},
    *({"top_p": p} for p in (0.01, 0.5, 0.9, 0.99, 1 - 2**-24)),
    *({"top_k": k} for k in (1, 40, 300, 5000)),
    *({"min_p": p} for p in (0.5, 0.05, 1e-6)),
    {"temperature": 0.7, "top_p": 0.95, "top_k": 50, "min_p": 0.02},
    {"temperature": 3.0, "top_p": 0.97, "top_k": 4000, "min_p": 1e-5},
    {"repetition": 1.3, "frequency": 0.3, "prompt": range(0, 6000, 7), "output": [*range(0, 3000, 5), 10, 10]},
    {"presence": 0.4, "output": range(0, 3000, 3), "top_p": 0.8},
    {"bias": {i: (-INF if i % 3 else 4.0) for i in range(0, 6000, 11)}, "top_p": 0.9},
    {"allowed": frozenset(range(3, 6000, 577))},
    {"allowed": frozenset(range(3, 6000, 577)), "temperature": 0.0},
    {"allowed": frozenset({3000}), "top_k": 40, "logprobs": 3},
    {"allowed": frozenset(range(500, 5000)), "top_p": 0.9},
    {"logprobs": 20},
    {"logprobs": 0, "target": 777},
]  # fmt: skip


@pytest.mark.parametrize("vocab", [6144, 20_003])
def test_large_vocabularies_are_sampled_as_by_the_host(kernels: KernelSet, vocab: int) -> None:
    """Many stretches: most are never looked at a second time."""
    rows = 8
    logits = realistic(vocab, rows)
    made = [
        Draw(row=row, seed=11 * row + i, position=i, vocab=vocab, **shape)
        for i, shape in enumerate(SHAPES)
        for row in range(rows)
    ]
    both(kernels, logits, make_batch(made))


def test_it_draws_as_the_host_at_every_uniform(kernels: KernelSet) -> None:
    """A fine comb over one distribution: the running sums change token at the same uniforms."""
    logits = realistic(6144, 4)[3:]
    for shape in ({}, {"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.01}):
        both(kernels, logits, make_batch([Draw(seed=3, position=i, **shape) for i in range(400)]))  # type: ignore[arg-type]


def test_a_prefix_that_holds_exactly_top_p_is_enough(kernels: KernelSet) -> None:
    """Weights of exactly 1, 1/2, 1/4 and 1/4, as in the host's test of that name."""
    logits = np.full((1, 4096), -INF, np.float32)
    logits[0, 99:103] = 836158 / 2**20 * np.array([0, -1, -2, -2])
    for top_p, kept in ((0.25, 1), (0.5, 1), (0.50001, 2), (0.75, 2), (0.76, 4)):
        batch = make_batch([Draw(temperature=1206321 / 2**20, top_p=top_p, position=i) for i in range(60)])
        assert set(kernels.sample(logits, batch).tokens.tolist()) == set(range(99, 99 + kept))
        both(kernels, logits, batch)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_any_number_of_threads_gives_the_same_samples(generic: KernelSet, threads: int) -> None:
    logits = realistic(6144, 5)
    batch = make_batch([Draw(row=i % 5, seed=i, vocab=6144, **SHAPES[i % len(SHAPES)]) for i in range(90)])
    same(generic.sample(logits, batch, threads), generic.sample(logits, batch))


def test_a_token_may_have_several_biases_in_their_order(kernels: KernelSet) -> None:
    """The entries of draws may be mixed; those of one token are added one after the other, as float32 rounds."""
    batch = make_batch([Draw(temperature=0.0), Draw(temperature=0.0)])
    bias = (
        np.array([1, 0, 1, 0, 1, 0], np.int32),
        np.array([2, 2, 2, 2, 2, 2], np.int32),
        np.array([1e8, 1e8, 1.0, -1e8, -1e8, 1.0], np.float32),  # 1 is lost beside 1e8, and not beside 0
    )
    batch = replace(batch, bias=bias, plain_greedy=False)
    logits = np.array([[0.0, 0.5, 0.0]], np.float32)
    assert kernels.sample(logits, batch).tokens.tolist() == [2, 1]
    both(kernels, logits, batch)


@pytest.mark.parametrize(
    "wrong",
    [
        Draw(row=2),
        Draw(row=-1),
        Draw(target=5),
        Draw(bias={5: 1.0}),
        Draw(bias={-1: 1.0}),
        Draw(prompt=[5]),
        Draw(output=[0, -1]),
        Draw(temperature=-1.0),
        Draw(temperature=math.nan),
        Draw(min_p=1.5),
        Draw(top_p=0.0),
    ],
)
def test_what_is_not_there_is_refused(kernels: KernelSet, wrong: Draw) -> None:
    with pytest.raises(IndexError):
        kernels.sample(np.zeros((2, 5), np.float32), make_batch([Draw(), wrong]))


def test_no_draws_are_no_work(kernels: KernelSet) -> None:
    found = kernels.sample(np.zeros((2, 5), np.float32), make_batch([]), threads=2)
    assert found.tokens.size == found.failed.size == 0
