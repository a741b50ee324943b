"""Where prompts run whole, each is in one step, none is found in the cache, and its vector comes with its end."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import ConfigError, ContextLengthExceeded
from octavo.kv import KVGroup, KVManager
from octavo.platform.limits import Limits
from octavo.sampling import SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig, TokenEvent
from octavo.step_plan import StepPlan, StepResult


def scheduler(*, tokens: int = 20, context: int = 16, rows: int = 8, limits: Limits | None = None) -> Scheduler:
    kv = KVManager(200, 4, (KVGroup(),), enable_prefix_caching=False)
    config = SchedulerConfig(rows, tokens, context, limits or Limits(), whole_prompts=True)
    return Scheduler(config, kv)


def add(s: Scheduler, name: str, length: int) -> None:
    s.add(Request(name, [1] * length, SamplingParams(max_tokens=0)))


def pooled(plan: StepPlan, failed: dict[str, str] | None = None) -> StepResult:
    """Vectors that say how many tokens a row had."""
    rows = len(plan.rows)
    vectors = [np.full(2, count, np.float32) for count in plan.counts]
    return StepResult([[]] * rows, [None] * rows, [None] * rows, failed or {}, vectors)


def drain(s: Scheduler) -> tuple[list[dict[str, int]], list[TokenEvent]]:
    steps, events = [], []
    while plan := s.schedule():
        steps.append(dict(zip(plan.rows, plan.counts, strict=True)))
        events += s.update(plan, pooled(plan))
    return steps, events


def test_a_prompt_that_does_not_fit_what_is_left_waits_for_the_next_step() -> None:
    s = scheduler()
    for name, length in (("a", 12), ("b", 9), ("c", 3), ("d", 16)):
        add(s, name, length)
    steps, events = drain(s)
    assert steps == [{"a": 12}, {"b": 9, "c": 3}, {"d": 16}]
    assert [(e.request_id, e.finish_reason, e.pooled.tolist() if e.pooled is not None else None) for e in events] == [
        ("a", "length", [12, 12]), ("b", "length", [9, 9]), ("c", "length", [3, 3]), ("d", "length", [16, 16]),
    ]  # fmt: skip
    assert s.kv.pool.used == 0 and not s.unfinished


def test_equal_prompts_are_computed_again() -> None:
    s = scheduler()
    add(s, "a", 16)
    drain(s)
    add(s, "b", 16)
    steps, events = drain(s)
    assert steps == [{"b": 16}] and events[0].cached_tokens == 0


def test_a_platform_s_chunks_and_rows_are_obeyed_all_the_same() -> None:
    s = scheduler(tokens=32, limits=Limits(chunk_multiple=8, max_prefill_rows=1, prefill_xor_decode=True))
    for name, length in (("a", 5), ("b", 9), ("c", 1)):
        add(s, name, length)
    steps, _ = drain(s)
    assert sorted(name for step in steps for name in step) == ["a", "b", "c"]
    assert all(count == {"a": 5, "b": 9, "c": 1}[name] for step in steps for name, count in step.items())


def test_a_row_that_failed_has_no_vector() -> None:
    s = scheduler()
    add(s, "a", 3)
    add(s, "b", 4)
    plan = s.schedule()
    assert plan is not None
    events = s.update(plan, pooled(plan, {"a": "not finite"}))
    assert [(e.request_id, e.finish_reason, e.error, e.pooled is None) for e in events] == [
        ("a", "error", "not finite", True), ("b", "length", None, False),
    ]  # fmt: skip


def test_a_prompt_longer_than_the_context_is_refused_and_one_as_long_is_not() -> None:
    s = scheduler()
    with pytest.raises(ContextLengthExceeded, match=r"has 17 tokens.*at most 16.*truncate_prompt_tokens"):
        add(s, "long", 17)
    add(s, "fits", 16)
    assert drain(s)[0] == [{"fits": 16}]


def test_a_context_that_no_step_has_room_for_is_refused_at_start_up() -> None:
    with pytest.raises(ConfigError, match=r"a prompt of 16 tokens must run in one step, which has 12"):
        scheduler(tokens=12)


def test_a_chunked_prompt_brings_the_vector_of_its_last_chunk() -> None:
    """A decoder that is pooled by its last token takes long prompts in chunks, and only the last one counts."""
    s = Scheduler(SchedulerConfig(8, 10, 100, Limits()), KVManager(200, 4, (KVGroup(),), enable_prefix_caching=True))
    add(s, "a", 25)
    steps, events = drain(s)
    assert steps == [{"a": 10}, {"a": 10}, {"a": 5}]
    assert len(events) == 1 and events[0].pooled is not None and events[0].pooled.tolist() == [5, 5]
