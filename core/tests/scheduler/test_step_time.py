"""The prediction of a step's time: right where the steps follow its form, and steady where they do not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.platform import Bucket
from octavo.scheduler.step_time import StepShape, StepTimes, shape_of
from octavo.step_plan import StepPlan

TRUE = (2e-3, 250e-6, 300e-6, 2e-7, 1e-6)


def true_seconds(shape: StepShape, slowness: float = 1.0) -> float:
    return slowness * sum(term * size for term, size in zip(TRUE, (1, *shape), strict=True))


def varied() -> list[StepShape]:
    """Steps of every kind, as an engine that prefills beside its decodes has them."""
    sizes = itertools.product((0, 16, 64, 256), (0, 1, 8), (0, 512, 3000))
    return [
        StepShape(0, decodes, 0, decodes * computed).with_chunk(tokens, computed)
        for tokens, decodes, computed in sizes
        if tokens or decodes
    ]


def told(slowness: float = 1.0) -> StepTimes:
    times = StepTimes()
    for shape in varied():
        times.observe(shape, true_seconds(shape, slowness))
    return times


def test_a_plan_has_the_shape_of_its_chunks_and_decodes() -> None:
    plan = StepPlan(["a", "b", "c"], [1, 4, 1], [9, 10, 0], [1, 0, 1], Bucket())
    assert shape_of(plan) == StepShape(tokens=4, decodes=2, pairs=11 + 12 + 13 + 14, context=10 + 1)
    assert shape_of(StepPlan(["a", "b"], [1, 4], [9, 10], [1, 0], Bucket(tokens=32))).tokens == 31  # padding is run too


def test_steps_that_were_not_seen_are_predicted_from_those_that_were() -> None:
    times = told()
    for shape in (
        StepShape(0, 4, 0, 4000),
        StepShape(0, 3, 0, 1500).with_chunk(100, 1000),
        StepShape().with_chunk(700, 0),
    ):
        assert times.predict(shape) == pytest.approx(true_seconds(shape), rel=0.02)


def test_a_stall_changes_next_to_nothing() -> None:
    times, shape = told(), StepShape(0, 4, 0, 4000).with_chunk(64, 500)
    before = times.predict(shape)
    times.observe(StepShape().with_chunk(64, 0), 3600.0)  # the lid was closed
    assert times.predict(shape) == pytest.approx(before, rel=0.05)


def test_a_machine_that_slows_down_is_followed_within_three_steps_and_one_that_recovers_is_believed_in_time() -> None:
    times, shape = told(), StepShape(0, 4, 0, 4000).with_chunk(64, 500)
    for _ in range(3):
        times.observe(shape, true_seconds(shape, 3.0))
    assert times.predict(shape) > 2.5 * true_seconds(shape)
    for _ in range(40):
        times.observe(shape, true_seconds(shape))
    assert times.predict(shape) == pytest.approx(true_seconds(shape), rel=0.05)


def test_many_decodes_do_not_wash_out_what_is_known_of_prefill() -> None:
    times, chunk = told(), StepShape().with_chunk(256, 0)
    for n in range(5000):
        shape = StepShape(decodes=1 + n % 8, context=n)
        times.observe(shape, true_seconds(shape))
    assert times.predict(chunk) == pytest.approx(true_seconds(chunk), rel=0.05)


def test_a_time_of_nothing_is_left_out() -> None:
    times = StepTimes()
    times.observe(StepShape(decodes=1), 0.0)
    assert times.predict(StepShape(decodes=1)) == 0.0


shapes = st.builds(StepShape, st.integers(0, 4096), st.integers(0, 256), st.integers(0, 10**8), st.integers(0, 10**7))


@given(
    steps=st.lists(st.tuples(shapes, st.floats(1e-5, 100.0)), min_size=1, max_size=40),
    shape=shapes,
    computed=st.integers(0, 8192),
)
def test_a_longer_chunk_is_never_predicted_to_be_quicker(
    steps: list[tuple[StepShape, float]], shape: StepShape, computed: int
) -> None:
    times = StepTimes()
    for known, seconds in steps:
        times.observe(known, seconds)
    predicted = [times.predict(shape.with_chunk(count, computed)) for count in (0, 1, 2, 100, 2000)]
    assert predicted == sorted(predicted) and predicted[0] >= 0
