"""Prompt chunks under a latency target: within it as predicted, never nothing, and all that it allows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_runner import Bench, serial_output
from test_step_time import true_seconds

from octavo.errors import ConfigError
from octavo.kv import KVManager
from octavo.platform import BucketPolicy, Limits
from octavo.sampling import SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig
from octavo.scheduler.step_time import StepShape, StepTimes, shape_of
from octavo.scheduler.target import LEAST_CHUNK, Allowance
from octavo.step_plan import StepPlan

CONTEXT = 400
PADDED = BucketPolicy(tokens=(16, 32, 64, 128, 256), rows=(8,))


def bench(
    target: float | None, limits: Limits | None = None, tokens: int = 256, seqs: int = 8, context: int = CONTEXT
) -> Bench:
    kv = KVManager(1000, 4, enable_prefix_caching=False)
    config = SchedulerConfig(seqs, tokens, context, limits or Limits(), itl_target=target)
    made = Bench(Scheduler(config, kv))
    made.seconds = lambda plan: true_seconds(shape_of(plan))
    return made


def add(to: Bench, name: str, length: int, output: int) -> None:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    to.scheduler.add(Request(name, [1 + i % 40 for i in range(length)], params))


def decoding(scheduler: Scheduler) -> dict[str, int]:
    """The rows that decode, and their contexts in the next step."""
    return {row.id: row.computed + 1 for row in scheduler._running if row.pending == 1}


def check(plan: StepPlan, scheduler: Scheduler, decodes: dict[str, int], predicted: StepTimes) -> None:
    """The step keeps the target as it was predicted before it ran, or has the least chunk.

    A prompt of one token is no chunk: to a step it is one decode more, which nothing would be won by putting off.
    """
    bounds, target = scheduler.bounds, scheduler.config.itl_target
    assert target is not None
    like_decodes = decodes.keys() | {new.id for new in plan.new if len(new.tokens) == 1}
    chunks = [(n, c) for i, n, c in zip(plan.rows, plan.counts, plan.computed, strict=True) if i not in like_decodes]
    if not decodes:
        assert scheduler.metrics().token_budget == bounds.tokens, "nobody waits, so nothing is cut"
        return
    if not chunks:
        return
    alone = StepShape(decodes=len(decodes), context=sum(decodes.values()))
    step, before = (StepShape(), predicted.predict(alone)) if bounds.exclusive else (alone, 0.0)
    for count, computed in chunks:
        step = step.with_chunk(count, computed)
    step = step._replace(tokens=bounds.padded(step.tokens + step.decodes) - step.decodes)
    least = -(-LEAST_CHUNK // bounds.chunk_multiple) * bounds.chunk_multiple
    assert before + predicted.predict(step) <= target or (len(chunks) == 1 and chunks[0][0] <= least)


@settings(max_examples=150, deadline=None)
@given(
    target=st.sampled_from([1e-6, 0.005, 0.012, 0.03, 0.2]),
    tokens=st.sampled_from([8, 40, 256]),
    multiple=st.sampled_from([1, 4, 8]),
    exclusive=st.booleans(),
    padded=st.booleans(),
    prefill_rows=st.sampled_from([None, 1]),
    arrivals=st.lists(
        st.tuples(st.integers(0, 6), st.just(1) | st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=12
    ),
    noise=st.lists(st.floats(0.5, 4.0), min_size=1, max_size=7),
)
def test_steps_beside_decodes_stay_within_the_target_as_predicted_and_every_prompt_goes_on(
    target: float, tokens: int, multiple: int, exclusive: bool, padded: bool, prefill_rows: int | None,
    arrivals: list[tuple[int, int, int]], noise: list[float],
) -> None:  # fmt: skip
    limits = Limits(
        prefill_xor_decode=exclusive,
        chunk_multiple=multiple,
        max_prefill_rows=prefill_rows,
        buckets=PADDED if padded else BucketPolicy(),
    )
    b = bench(target, limits, tokens, seqs=4)
    b.seconds = lambda plan: true_seconds(shape_of(plan), noise[len(b.plans) % len(noise)])
    for i, (pause, length, output) in enumerate(arrivals):
        add(b, f"r{i}", length, output)
        for _ in range(pause):
            run_checked(b)
    work = sum(length + output for _, length, output in arrivals)
    steps = 0
    while b.scheduler.unfinished:
        run_checked(b)
        steps += 1
        assert steps <= 2 * work, "a prompt starves"
    for i, (_, length, output) in enumerate(arrivals):
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        [expected] = serial_output([1 + j % 40 for j in range(length)], params, 0, CONTEXT, frozenset())
        assert b.outputs[f"r{i}", 0] == expected


def run_checked(b: Bench) -> None:
    """One step; the rows that decode, and those of them that took part, are looked at before and after."""
    decodes = decoding(b.scheduler)
    waiting_chunk = {row.id for row in b.scheduler._running if row.pending > 1}
    plan = b.start()
    if plan is None:
        return
    check(plan, b.scheduler, decodes, b.scheduler.times)
    if not b.scheduler.bounds.exclusive:
        assert set(decodes) <= set(plan.rows), "who decodes is in every step"
        if waiting_chunk:
            assert waiting_chunk & set(plan.rows), "the first running prompt goes on in every step"
    b.finish()


def test_the_step_without_chunks_is_that_of_the_rows_that_decode() -> None:
    b = bench(0.02)
    add(b, "a", 4, 40)
    add(b, "b", 9, 40)
    b.step()
    b.step()
    asked: list[StepShape] = []
    b.scheduler.allowance = asked.append  # type: ignore[assignment, method-assign]
    b.start()
    assert asked == [StepShape(decodes=2, context=6 + 11)], "the context holds the token that each row computes"


def test_a_chunk_is_as_long_as_the_target_allows() -> None:
    b = bench(0.02)
    for shape in (StepShape(decodes=n) for n in (1, 2, 8)):
        b.scheduler.times.observe(shape, true_seconds(shape))
    for count, computed in ((16, 0), (64, 0), (64, 200), (200, 100)):
        shape = StepShape().with_chunk(count, computed)
        b.scheduler.times.observe(shape, true_seconds(shape))
    add(b, "stream", 4, 40)
    b.step()
    add(b, "long", 350, 1)
    plan = b.start()
    assert plan is not None
    longest = max(n for n in range(351) if true_seconds(StepShape(0, 1, 0, 5).with_chunk(n, 0)) <= 0.02)
    assert plan.rows == ["stream", "long"] and plan.counts[1] == pytest.approx(longest, rel=0.05)
    assert b.scheduler.metrics().token_budget == sum(plan.counts)
    b.finish()


def test_the_chunks_do_not_swing() -> None:
    """On a steady machine, started without any measurement, the chunks are soon all that the target allows."""
    b = bench(0.02, context=3000)
    add(b, "stream", 4, 200)
    b.step()
    add(b, "long", 2900, 1)
    while ("long", 0) not in b.outputs:
        b.step()
    plans = [plan for plan in b.plans if plan.rows == ["stream", "long"]][4:-1]
    assert len(plans) > 30
    for plan in plans:
        assert 0.018 <= true_seconds(shape_of(plan)) <= 0.02 * 1.01


def test_a_later_prompt_gets_what_the_first_leaves_and_no_least_chunk_of_its_own() -> None:
    times = StepTimes()
    for count in (0, 16, 64, 256):
        shape = StepShape(decodes=1).with_chunk(count, 0)
        times.observe(shape, true_seconds(shape))
    allowance = Allowance(times, 1e-6, StepShape(decodes=1), lambda tokens: tokens, 1)
    assert allowance.clip(100, 0) == LEAST_CHUNK
    allowance.take(LEAST_CHUNK, 0)
    assert allowance.clip(100, 0) == 0 and allowance.cut


def test_a_padded_step_is_filled_up_to_the_size_it_runs_at() -> None:
    times = StepTimes()
    for count in (15, 31, 63, 127):
        times.observe(StepShape(count, 1, 0, 1), 1e-3 * count)
    sizes = (16, 32, 64, 128)
    padded = lambda tokens: next(size for size in sizes if size >= tokens)  # noqa: E731 - one line of arithmetic
    allowance = Allowance(times, 0.04, StepShape(decodes=1), padded, 1)
    assert allowance.clip(100, 0) == 31


@pytest.mark.parametrize("target", [0, -1.0, float("nan")])
def test_a_target_that_is_no_time_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match="--itl-target"):
        SchedulerConfig(1, 1, 1, itl_target=target)
