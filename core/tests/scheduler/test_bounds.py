"""What can never run is refused at once, with both numbers; settings that cannot work do not start."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ConfigError, ContextLengthExceeded, QueueFull, RequestError
from octavo.kv import KVGroup, KVManager
from octavo.platform.buckets import Bucket, BucketPolicy
from octavo.platform.limits import Limits
from octavo.sampling import RequestOptions, SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig


def scheduler(
    *, blocks: int = 100, groups: tuple[KVGroup, ...] = (KVGroup(),), seqs: int = 4, tokens: int = 16,
    context: int = 64, limits: Limits | None = None, **config: Any,
) -> Scheduler:  # fmt: skip
    return Scheduler(
        SchedulerConfig(seqs, tokens, context, limits or Limits(), **config), KVManager(1 + blocks, 4, groups)
    )


def ask(length: int, priority: int = 0, **params: Any) -> Request:
    return Request("r", [1] * length, SamplingParams(**params), options=RequestOptions(priority))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(RequestError, match="empty"):
        scheduler().add(ask(0))


def test_a_prompt_that_leaves_no_room_for_a_token_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextLengthExceeded, match="context length is 64 tokens and the prompt has 64") as caught:
        scheduler().add(ask(64))
    assert (caught.value.param, caught.value.code) == ("prompt", "context_length_exceeded")
    scheduler().add(ask(63))
    scheduler().add(ask(64, max_tokens=0))
    with pytest.raises(
        ContextLengthExceeded, match="the prompt has 65 tokens, and the model reads at most 64; shorten it"
    ):
        scheduler().add(ask(65, max_tokens=0))


def test_a_platform_may_shorten_the_context() -> None:
    with pytest.raises(ContextLengthExceeded, match="context length is 32"):
        scheduler(limits=Limits(max_context=32)).add(ask(32))


def test_a_request_is_refused_if_the_cache_cannot_hold_all_of_it_and_is_never_cut_short() -> None:
    # Four blocks of four: 16 slots, so 17 tokens, as the last one is sampled and needs none.
    tight = scheduler(blocks=4)
    with pytest.raises(ContextLengthExceeded, match=r"10 tokens.*needs 17 slots.*at most 16.*--memory-utilization"):
        tight.add(ask(10, max_tokens=8))
    with pytest.raises(ContextLengthExceeded, match="needs 63 slots"):
        tight.add(ask(10, max_tokens=None))
    tight.add(ask(10, max_tokens=7))


def test_windows_make_longer_sequences_fit() -> None:
    with pytest.raises(
        ContextLengthExceeded,
        match="needs 51 slots of KV cache, and the cache holds at most 48 for one sequence; lower max_tokens",
    ):
        scheduler(blocks=12, tokens=4).add(ask(50, max_tokens=2))
    scheduler(blocks=12, tokens=4, groups=(KVGroup(window=8),)).add(ask(50, max_tokens=2))


def test_more_choices_than_rows_are_refused() -> None:
    with pytest.raises(RequestError, match=r"n is 5.*at most 4") as caught:
        scheduler().add(ask(3, n=5))
    assert caught.value.param == "n"


def test_a_context_beyond_the_platforms_volume_is_refused() -> None:
    with pytest.raises(ContextLengthExceeded, match=r"context of 25 tokens.*at most 24"):
        scheduler(limits=Limits(max_volume=27)).add(ask(20, max_tokens=6))
    scheduler(limits=Limits(max_volume=27)).add(ask(20, max_tokens=5))


def test_a_priority_is_refused_where_it_would_be_ignored() -> None:
    with pytest.raises(RequestError, match="priority") as caught:
        scheduler().add(ask(3, priority=2))
    assert caught.value.param == "priority"
    scheduler(policy="priority").add(ask(3, priority=2))


def test_the_queue_has_an_end() -> None:
    full = scheduler(max_waiting=2)
    for i in range(2):
        full.add(Request(str(i), [1], SamplingParams()))
    with pytest.raises(QueueFull, match="2 requests wait"):
        full.add(ask(3))
    full.schedule()
    full.add(ask(3))


def named(id: str, length: int) -> Request:
    return Request(id, [1] * length, SamplingParams())


def test_the_queue_is_bounded_in_tokens_too() -> None:
    full = scheduler(max_waiting_tokens=10)
    full.add(named("a", 6))
    full.add(named("b", 4))
    with pytest.raises(QueueFull, match=r"10 tokens wait already; with the 1 of this request .* more than 10"):
        full.add(named("c", 1))
    full.abort("b")
    full.add(named("d", 4))
    full.schedule()
    full.add(named("e", 10))


def test_a_request_beyond_the_tokens_that_may_wait_is_taken_if_none_waits() -> None:
    full = scheduler(max_waiting_tokens=10)
    full.add(named("a", 20))
    with pytest.raises(
        QueueFull, match="20 tokens wait already; with the 1 of this request they would be more than 10; try later"
    ):
        full.add(named("b", 1))


def test_prompt_logprobs_need_logits_rows_that_some_shape_has() -> None:
    policy = BucketPolicy(tokens=(16,), rows=(4,), samples=(4,), blocks=(16,))
    narrow = scheduler(limits=Limits(chunk_multiple=8, buckets=policy))
    with pytest.raises(
        RequestError, match="needs 8 rows of logits for a prompt chunk, and the largest compiled shape has 1 to spare"
    ) as caught:
        narrow.add(ask(20, prompt_logprobs=1))
    assert caught.value.param == "prompt_logprobs"


def test_what_may_be_scored_is_what_the_shapes_of_prompts_have_to_spare_not_those_of_decodes() -> None:
    policy = BucketPolicy(explicit=(Bucket(16, 1, 3, 16), Bucket(4, 4, 4, 16)))
    apart = scheduler(limits=Limits(prefill_xor_decode=True, max_prefill_rows=1, buckets=policy))
    assert apart.bounds.spare_samples == 2
    apart.add(ask(9, prompt_logprobs=1))
    plan = apart.schedule()
    assert plan is not None and plan.counts == [3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seqs": 0}, "max_num_seqs must be at least 1, not 0"),
        ({"tokens": 0}, "max_num_batched_tokens"),
        ({"policy": "lottery"}, "lottery"),
        ({"max_waiting": 0}, "max_waiting"),
        ({"max_waiting_tokens": 0}, "max_waiting_tokens"),
        ({"limits": Limits(max_rows=0)}, "max_rows"),
        ({"limits": Limits(chunk_multiple=32)}, "raise --max-num-batched-tokens to at least 32"),
        ({"limits": Limits(max_volume=3)}, "less than one block"),
        ({"limits": Limits(buckets=BucketPolicy(tokens=(8,)))}, "no compiled shape covers a step of 16 tokens"),
        ({"limits": Limits(buckets=BucketPolicy(rows=(2,)))}, "4 rows"),
        ({"limits": Limits(buckets=BucketPolicy(blocks=(8,)))}, "16 blocks"),
    ],
)
def test_settings_that_cannot_work_do_not_start(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scheduler(**settings)


def test_one_prompt_per_step_beside_no_decodes_needs_no_bucket_for_both() -> None:
    policy = BucketPolicy(explicit=(Bucket(16, 1, 1, 16), Bucket(4, 4, 4, 16)))
    scheduler(limits=Limits(prefill_xor_decode=True, max_prefill_rows=1, buckets=policy))
    with pytest.raises(ConfigError, match="16 tokens, 4 rows"):
        scheduler(limits=Limits(buckets=policy))


@given(volume=st.none() | st.integers(4, 300), exclusive=st.booleans(), seqs=st.integers(1, 9), data=st.data())
def test_every_step_within_the_limits_is_no_larger_than_one_of_the_largest(
    volume: int | None, exclusive: bool, seqs: int, data: st.DataObject
) -> None:
    bounds = scheduler(seqs=seqs, limits=Limits(max_volume=volume, prefill_xor_decode=exclusive)).bounds
    rows = data.draw(st.integers(1, min(bounds.row_slots, (volume or 300) // 4)))
    blocks = data.draw(st.integers(1, min(16, bounds.context_limit(rows) // 4)))
    tokens = data.draw(st.integers(rows, max(rows, min(bounds.tokens, rows * blocks * 4))))
    step = Bucket(tokens, rows, rows, blocks)
    assert any(largest.covers(step) for largest in bounds.largest_steps(0))
