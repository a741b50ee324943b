"""The device's sampler: the host's results, whatever the batch; its kernels are tested in native/test_sampler.py."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from runner.draws import Draw, make_batch

from octavo.platform import MemoryReport, PlatformUnavailable, Samples, SamplingBatch
from octavo.runner import HostSampler
from octavo_cpu.binding import load
from octavo_cpu.device import CpuDevice
from octavo_cpu.sampler import NativeSampler
from octavo_cpu.threads import Threads

LOGITS = np.random.default_rng(0).standard_normal((4, 500)).astype(np.float32) * 3
DRAWS = [
    Draw(),
    Draw(row=1, temperature=0.0),
    Draw(row=1, temperature=0.7, top_p=0.9, logprobs=4),
    Draw(row=2, top_k=20, min_p=0.01, bias={3: 5.0, 4: -np.inf}),
    Draw(row=3, repetition=1.2, presence=0.5, frequency=0.2, prompt=[1, 2], output=[3, 3, 2]),
    Draw(row=3, target=17, logprobs=0),
    Draw(row=2, allowed=frozenset(range(3, 490, 7)), vocab=500, top_p=0.9),
    Draw(row=1, allowed=frozenset({499}), vocab=500, temperature=0.0, logprobs=2),
    Draw(row=1, allowed=frozenset(), vocab=500),
]
BATCH = make_batch([replace(draw, seed=i) for i in range(9) for draw in DRAWS])


def device(threads: int = 2) -> CpuDevice:
    return CpuDevice(load(), lambda: MemoryReport(1 << 30, 1 << 30), Threads(threads, (), 1))


def same(found: Samples, expected: Samples) -> None:
    for name in ("tokens", "failed", "logprobs", "ranks", "top_ids", "top_logprobs"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert ours.dtype == theirs.dtype, name
            assert np.array_equal(ours, theirs), name


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_samples_are_the_host_s(threads: int) -> None:
    sampler = device(threads).sampler()
    assert isinstance(sampler, NativeSampler)
    before = LOGITS.copy()
    for _ in range(3):  # what a batch leaves behind must not reach the next
        same(sampler.sample(LOGITS, BATCH), HostSampler().sample(LOGITS, BATCH))
        same(sampler.sample(LOGITS, make_batch([Draw()])), HostSampler().sample(LOGITS, make_batch([Draw()])))
    assert np.array_equal(LOGITS, before)


def test_vocabularies_of_different_size_follow_one_another() -> None:
    """Two models may share a device's sampler; its memory fits itself to each."""
    sampler = device().sampler()
    for vocab in (500, 70, 1, 300):
        logits = np.ascontiguousarray(LOGITS[:, :vocab])
        batch = make_batch([Draw(row=i % 4, seed=i, top_p=0.8, bias={0: 1.0}, logprobs=2) for i in range(9)])
        same(sampler.sample(logits, batch), HostSampler().sample(logits, batch))


def test_greedy_rows_are_sampled_as_within_the_step() -> None:
    batch = SamplingBatch.plain(4, greedy=True)
    assert device().sampler().sample(LOGITS, batch).tokens.tolist() == LOGITS.argmax(-1).tolist()


def test_a_logit_that_is_no_number_fails_its_own_draws() -> None:
    logits = LOGITS.copy()
    logits[1, 499], logits[2, 0], logits[3] = np.nan, np.inf, -np.inf
    found = (
        device().sampler().sample(logits, make_batch([Draw(row=r, temperature=t) for t in (0, 1) for r in range(4)]))
    )
    assert found.failed.tolist() == [False, True, True, True] * 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (Draw(row=4), "row outside 0 … 3"),
        (Draw(bias={500: 1.0}), "token outside 0 … 499"),
        (Draw(target=500), "token outside 0 … 499"),
        (Draw(output=[-1]), "token outside 0 … 499"),
        (Draw(temperature=-0.5), "temperature below 0"),
    ],
)
def test_what_is_not_there_is_named(wrong: Draw, named: str) -> None:
    with pytest.raises(RuntimeError, match=named):
        device().sampler().sample(LOGITS, make_batch([wrong]))


def test_it_outlives_its_device_and_not_its_process() -> None:
    opened = device()
    sampler = opened.sampler()
    opened.close()
    same(sampler.sample(LOGITS, BATCH), HostSampler().sample(LOGITS, BATCH))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            sampler.sample(LOGITS, BATCH)  # would wait for the other thread for ever
        except PlatformUnavailable:
            del sampler  # would join it
            status = 42
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


@pytest.mark.parametrize("equal", [1, 3])
@pytest.mark.parametrize("top_p", [0.2, 0.5, 0.8])
def test_the_nucleus_ends_within_a_bucket_of_weights_as_on_the_host(top_p: float, equal: int) -> None:
    """Weights closer than a bucket is wide (2**-6 of themselves), each ``equal`` times and in no order: which of them
    are the heavier ones decides where the nucleus ends, and those that equal its last one stay with it.
    """
    logits = np.full((1, 600), -30.0, np.float32)
    close = np.repeat(np.linspace(-0.01, 0.0, 48, dtype=np.float32), equal)
    logits[0, np.random.default_rng(2).permutation(600)[: len(close)]] = np.random.default_rng(3).permutation(close)
    batch = make_batch([Draw(top_p=top_p, seed=seed) for seed in range(400)])
    expected = HostSampler().sample(logits.copy(), batch)
    assert len(set(expected.tokens.tolist())) < len(close), "the nucleus leaves some of them out"
    same(device().sampler().sample(logits, batch), expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_smallest_of_equal_logits_wins_on_every_worker(threads: int) -> None:
    """Greedy draws, with and without something that makes them special, spread over the threads."""
    logits = np.zeros((8, 2000), np.float32)
    for row in range(8):
        logits[row, [1999, 40 + row, 700, 1500 - row]] = 5.0
    draws = [Draw(row=row, temperature=0.0, logprobs=3, bias={3: float(n)}) for n in (0, 1) for row in range(8)]
    for _ in range(20):
        found = device(threads).sampler().sample(logits, make_batch(draws))
        assert found.tokens.tolist() == [40 + row for row in range(8)] * 2
        assert found.top_ids is not None
        assert found.top_ids.tolist() == [[40 + row, 700, 1500 - row] for row in range(8)] * 2
