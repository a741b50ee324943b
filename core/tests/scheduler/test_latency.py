"""Waits from token to token: the histogram, and what the scheduler counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_runner import SimulatedRunner

from octavo.kv import KVManager
from octavo.sampling import SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig
from octavo.scheduler.latency import BOUNDS, Latencies, LatencyRecorder


@given(waits=st.lists(st.floats(0.001, 30.0), min_size=1), percent=st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_right_to_within_an_interval(waits: list[float], percent: int) -> None:
    recorder = LatencyRecorder()
    for wait in waits:
        recorder.add({0.0: 1}, wait)
    exact = sorted(waits)[max(0, -(-len(waits) * percent // 100) - 1)]
    found = recorder.snapshot().percentile(percent)
    assert exact / 1.26 <= found <= exact * 1.26


def test_nothing_and_too_much_have_percentiles_too() -> None:
    assert Latencies().percentile(50) == 0
    recorder = LatencyRecorder()
    recorder.add({None: 3, 0.0: 1}, 1e6)
    assert recorder.snapshot().percentile(50) == BOUNDS[-1]
    assert recorder.snapshot().counts[-1] == recorder.snapshot().count == 1


def test_every_wait_of_every_row_is_counted_those_of_a_preempted_one_too() -> None:
    kv = KVManager(9, 4, enable_prefix_caching=False)
    scheduler, runner = Scheduler(SchedulerConfig(5, 32, 40), kv), SimulatedRunner(kv)
    for name in ("first", "second"):
        scheduler.add(Request(name, [1, 2, 3], SamplingParams(max_tokens=26, ignore_eos=True)))
    scheduler.add(Request("forks", [4, 5], SamplingParams(max_tokens=3, n=3, ignore_eos=True, seed=1)))
    now, came = 0.0, dict[tuple[str, int], list[float]]()
    while (plan := scheduler.schedule()) is not None:
        now += len(plan.rows) * 0.25
        for event in scheduler.update(plan, runner.run(plan), now):
            came.setdefault((event.request_id, event.index), []).append(now)
    waits = [b - a for times in came.values() for a, b in pairwise(times)]
    metrics = scheduler.metrics()
    assert metrics.preemptions > 0
    assert metrics.inter_token.count == len(waits) == 2 * 25 + 3 * 2
    assert metrics.inter_token.seconds == pytest.approx(sum(waits))
    assert metrics.inter_token.percentile(100) == pytest.approx(max(waits), rel=0.26)
