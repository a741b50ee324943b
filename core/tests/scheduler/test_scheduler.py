"""What the scheduler decides, case by case; test_scheduler_properties drives it at random."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_runner import EOS, Bench, serial_output

from octavo.errors import RequestError
from octavo.kv import KVGroup, KVManager
from octavo.platform.limits import Limits
from octavo.sampling import RequestOptions, SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig, Status


def bench(
    *, blocks: int = 200, size: int = 4, groups: tuple[KVGroup, ...] = (KVGroup(),), caching: bool = True,
    seqs: int = 8, tokens: int = 64, context: int = 160, limits: Limits | None = None, **config: Any,
) -> Bench:  # fmt: skip
    kv = KVManager(1 + blocks, size, groups, caching, hash_key=b"test")
    return Bench(Scheduler(SchedulerConfig(seqs, tokens, context, limits or Limits(), **config), kv))


def request(
    name: str, prompt: list[int], *, priority: int = 0, seed: int = 0, namespace: str = "", **params: Any
) -> Request:
    params = {"ignore_eos": True, "max_tokens": 6, **params}
    return Request(name, prompt, SamplingParams(**params), seed, frozenset([EOS]), RequestOptions(priority, namespace))


def prompt(length: int, start: int = 1) -> list[int]:
    return [(start + 7 * i) % 49 + 1 for i in range(length)]


# -- steps -----------------------------------------------------------------------------------------


def test_one_budget_serves_decodes_then_running_prompts_then_waiting_ones() -> None:
    b = bench(tokens=10)
    b.scheduler.add(request("decode", prompt(3)))
    b.step()
    b.scheduler.add(request("long", prompt(25, 2)))
    b.scheduler.add(request("next", prompt(4, 3)))
    seen = []
    while b.scheduler.unfinished:
        plan = b.start()
        assert plan is not None
        seen.append(dict(zip(plan.rows, plan.counts, strict=True)))
        b.finish()
    assert seen[:3] == [{"decode": 1, "long": 9}, {"decode": 1, "long": 9}, {"decode": 1, "long": 7, "next": 2}]
    assert seen[3] == {"decode": 1, "long": 1, "next": 2}


def test_the_tokens_do_not_depend_on_the_chunk_size() -> None:
    outputs = []
    for tokens in (1, 3, 16, 64):
        b = bench(tokens=tokens)
        b.scheduler.add(request("r", prompt(40)))
        b.drain()
        outputs.append(b.outputs["r", 0])
    assert (
        outputs
        == [serial_output(prompt(40), SamplingParams(max_tokens=6, ignore_eos=True), 0, 160, frozenset())[0]] * 4
    )


def test_first_come_first_served_even_if_a_later_one_would_fit() -> None:
    b = bench(blocks=12)
    b.scheduler.add(request("running", prompt(24), max_tokens=20))
    b.step()
    b.scheduler.add(request("large", prompt(30, 2)))
    b.scheduler.add(request("small", prompt(2, 3)))
    plan = b.start()
    assert plan is not None
    assert plan.rows == ["running"]


def test_more_urgent_requests_go_first_and_equals_by_arrival() -> None:
    b = bench(seqs=1, policy="priority")
    for name, priority in (("c", 1), ("a", -1), ("b", 0), ("d", 1)):
        b.scheduler.add(request(name, prompt(3), priority=priority, max_tokens=1))
    b.drain()
    assert [plan.rows for plan in b.plans] == [["a"], ["b"], ["c"], ["d"]]


def test_the_last_come_of_the_lowest_priority_is_preempted_and_goes_on_unchanged() -> None:
    b = bench(blocks=9, policy="priority")
    wishes = {"first": (0, 11), "urgent": (-1, 12), "last": (0, 13)}
    for name, (priority, start) in wishes.items():
        b.scheduler.add(request(name, prompt(8, start), priority=priority, max_tokens=12))
    rows = {row.id: row for family in b.scheduler._groups.values() for row in family}
    preempted = []
    while b.scheduler.unfinished:
        b.step()
        preempted += [name for name, row in rows.items() if row.preempted and name not in preempted]
        assert not rows["urgent"].preempted
    assert preempted == ["last", "first"]
    for name, (_, start) in wishes.items():
        params = SamplingParams(max_tokens=12, ignore_eos=True)
        assert b.outputs[name, 0] == serial_output(prompt(8, start), params, 0, 160, frozenset())[0]
    assert b.scheduler.metrics().preemptions >= 2


def test_a_preempted_request_finds_its_own_blocks_again_where_they_are_still_there() -> None:
    b = bench(blocks=12)
    b.scheduler.add(request("old", prompt(15), max_tokens=12))
    b.scheduler.add(request("new", prompt(15, 2), max_tokens=12))
    b.drain()
    resumed = [(plan.computed[plan.rows.index("new")]) for plan in b.plans[1:] if any(n.id == "new" for n in plan.new)]
    assert resumed
    assert max(resumed) > 0
    assert b.scheduler.metrics().kv.prefix_hits == 0, "which is no hit in the statistics"
    assert b.last["new", 0].cached_tokens == 0


# -- prefixes --------------------------------------------------------------------------------------


def test_every_choice_of_a_request_tells_what_its_prompt_found_in_the_cache() -> None:
    b = bench(size=16, tokens=512, context=512)
    b.scheduler.add(request("a", prompt(100)))
    b.drain()
    b.scheduler.add(request("b", [*prompt(100), 1, 2], n=3))
    b.drain()
    assert [b.last["b", choice].cached_tokens for choice in range(3)] == [96, 96, 96]


@pytest.mark.parametrize("together", [False, True])
def test_two_requests_hold_the_full_blocks_of_a_common_prefix_once(together: bool) -> None:
    b = bench(size=16, tokens=512, context=512)
    common = prompt(100)
    b.scheduler.add(request("a", [*common, 1, 2, 3]))
    if not together:
        b.step()
    b.scheduler.add(request("b", [*common, 4, 5, 6, 7]))
    b.step()
    b.step()
    a, c = (b.scheduler._groups[name][0].kv.tables[0] for name in "ab")
    assert a[:6] == c[:6]
    assert b.scheduler.kv.pool.used == 6 + 1 + 1
    b.drain()
    assert b.last["b", 0].cached_tokens == (0 if together else 96)
    assert b.scheduler.metrics().kv.prefix_hits == (0 if together else 96)


def test_tenants_do_not_share_a_prefix() -> None:
    b = bench()
    for name, namespace in (("a", "x"), ("b", "y"), ("c", "x")):
        b.scheduler.add(request(name, prompt(20), namespace=namespace))
        b.drain()
    assert [b.last[name, 0].cached_tokens for name in "abc"] == [0, 0, 16]


def test_a_scored_prompt_is_computed_whole_and_scored_once_although_it_was_preempted() -> None:
    b = bench(blocks=7, tokens=8)
    b.scheduler.add(request("warm", prompt(20, 5), max_tokens=1))
    b.drain()
    b.scheduler.add(request("old", prompt(9, 3), max_tokens=14))
    b.step()
    scored = request("scored", prompt(20, 5), prompt_logprobs=0, logprobs=0, max_tokens=1)
    b.scheduler.add(scored)
    b.drain()
    assert scored.preempted, "or the test shows nothing"
    event = b.last["scored", 0]
    assert event.cached_tokens == 0
    assert event.prompt_logprobs is not None
    assert [p.token_id for p in event.prompt_logprobs] == prompt(20, 5)[1:]


# -- choices ---------------------------------------------------------------------------------------


def test_four_choices_share_the_prompts_blocks_and_copy_only_the_partial_one() -> None:
    b = bench()
    b.scheduler.add(request("r", prompt(10), n=4, seed=3))
    first = b.step()
    assert [(e.index, len(e.token_ids)) for e in first] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert b.scheduler.kv.pool.used == 3
    b.step()
    assert b.scheduler.kv.pool.used == 2 + 4
    plan = b.plans[1]
    assert [(n.id, n.sample_index, n.seed, len(n.tokens)) for n in plan.new] == [
        ("r:1", 1, 3, 11),
        ("r:2", 2, 3, 11),
        ("r:3", 3, 3, 11),
    ]
    assert len(plan.copies) == 3
    b.drain()
    expected = serial_output(prompt(10), SamplingParams(n=4, max_tokens=6, ignore_eos=True), 3, 160, frozenset())
    assert [b.outputs["r", i] for i in range(4)] == expected


def test_a_request_waits_until_there_are_seats_for_all_of_its_choices() -> None:
    b = bench(seqs=4)
    b.scheduler.add(request("one", prompt(3), max_tokens=3))
    b.scheduler.add(request("four", prompt(3, 2), n=4))
    b.scheduler.add(request("late", prompt(3, 3)))
    assert [b.start() and b.plans[-1].rows, b.finish()][0] == ["one"]
    b.step()
    b.step()
    assert b.start() is not None
    assert b.plans[-1].rows == ["four"]


def test_a_choice_can_be_ended_alone() -> None:
    b = bench()
    b.scheduler.add(request("r", prompt(6), n=3))
    b.step()
    b.step()
    assert b.scheduler.abort("r", 0)
    assert not b.scheduler.abort("r", 0)
    assert b.scheduler.unfinished == 1
    b.drain()
    assert [len(b.outputs["r", i]) for i in range(3)] == [2, 6, 6]


# -- endings ---------------------------------------------------------------------------------------


def test_the_context_ends_a_request_without_max_tokens() -> None:
    b = bench(context=12)
    b.scheduler.add(request("r", prompt(8), max_tokens=None))
    b.drain()
    assert len(b.outputs["r", 0]) == 4
    assert b.last["r", 0].finish_reason == "length"


@pytest.mark.parametrize("n", [1, 3])
def test_max_tokens_0_computes_the_prompt_and_samples_nothing(n: int) -> None:
    b = bench(tokens=4)
    b.scheduler.add(request("r", prompt(10), max_tokens=0, n=n))
    assert b.drain() == 3
    assert [(e.index, e.token_ids, e.finish_reason) for e in b.events] == [(i, (), "length") for i in range(n)]
    assert all(plan.samples == [0] for plan in b.plans)


def test_the_stop_token_is_delivered_and_named_unless_it_is_the_end_of_sequence() -> None:
    expected = serial_output(prompt(5), SamplingParams(max_tokens=9, ignore_eos=True), 0, 160, frozenset())[0]
    stop = expected[3]
    for eos, stop_ids, reason in (({stop}, (), None), (set(), (stop,), stop), ({stop}, (stop,), None)):
        b = bench()
        params = SamplingParams(max_tokens=9, stop_token_ids=stop_ids)
        b.scheduler.add(Request("r", prompt(5), params, 0, frozenset(eos)))
        b.drain()
        assert b.outputs["r", 0] == expected[: expected.index(stop) + 1]
        assert (b.last["r", 0].finish_reason, b.last["r", 0].stop_reason) == ("stop", reason)


def test_a_row_that_fails_ends_alone_and_its_blocks_are_never_found() -> None:
    b = bench(caching=True)
    b.scheduler.add(request("bad", prompt(8), n=2))
    b.scheduler.add(request("good", prompt(8, 2)))
    b.runner.fail_next.add("bad")
    events = b.step()
    assert [(e.request_id, e.index, e.finish_reason, e.error) for e in events if e.error] == [
        ("bad", 0, "error", "logits are not finite"),
        ("bad", 1, "error", "logits are not finite"),
    ]
    b.scheduler.add(request("again", prompt(8)))
    b.drain()
    assert b.last["again", 0].cached_tokens == 0
    assert len(b.outputs["good", 0]) == 6


# -- abort -----------------------------------------------------------------------------------------


def test_abort_gives_the_blocks_back_at_once_in_every_state() -> None:
    b = bench(seqs=1)
    waiting, running, flying = (request(name, prompt(9, i)) for i, name in enumerate(("waiting", "running", "flying")))
    b.scheduler.add(running)
    b.step()
    b.scheduler.add(waiting)
    assert b.scheduler.abort("waiting")
    assert b.scheduler.abort("running")
    assert b.scheduler.kv.pool.used == 0
    b.scheduler.add(flying)
    b.start()
    assert b.scheduler.abort("flying")
    assert b.scheduler.kv.pool.used == 0
    assert b.finish() == []
    assert {r.status for r in (waiting, running, flying)} == {Status.FINISHED}
    assert not b.scheduler.abort("flying")
    assert not b.scheduler.abort("never heard of")


def test_an_id_that_is_used_again_while_the_old_step_flies_does_not_get_its_tokens() -> None:
    b = bench()
    b.scheduler.add(request("r", prompt(5)))
    b.start()
    b.scheduler.abort("r")
    b.scheduler.add(request("r", prompt(7, 2)))
    assert b.finish() == []
    b.drain()
    assert (
        b.outputs["r", 0]
        == serial_output(prompt(7, 2), SamplingParams(max_tokens=6, ignore_eos=True), 0, 160, frozenset())[0]
    )


def test_ids_of_choices_to_come_are_taken() -> None:
    b = bench()
    b.scheduler.add(request("r", prompt(5), n=2))
    with pytest.raises(RequestError, match="in use"):
        b.scheduler.add(request("r:1", prompt(5)))
    b.drain()
    b.scheduler.add(request("r:1", prompt(5)))


# -- the queue -------------------------------------------------------------------------------------


def test_a_step_looks_at_the_head_of_the_queue_only(monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench(seqs=2)
    for i in range(300):
        b.scheduler.add(request(str(i), prompt(4, i)))
    b.step()
    looked: list[str] = []
    match = b.scheduler.kv.match
    monkeypatch.setattr(b.scheduler.kv, "match", lambda kv, tokens: looked.append(kv.id) or match(kv, tokens))
    b.step()
    assert looked == []


def test_many_aborted_in_the_queue_leave_no_trace() -> None:
    b = bench(seqs=1)
    b.scheduler.add(request("running", prompt(4)))
    b.step()
    for i in range(1000):
        b.scheduler.add(request(str(i), prompt(4)))
        if i % 10:
            assert b.scheduler.abort(str(i))
    assert b.scheduler.metrics().waiting == 100
    assert len(b.scheduler._waiting._heap) <= 201
    b.drain()
    assert len(b.last) == 101


# -- limits ----------------------------------------------------------------------------------------


def test_prompts_and_decodes_take_turns_where_they_exclude_each_other() -> None:
    b = bench(tokens=4, limits=Limits(prefill_xor_decode=True))
    b.scheduler.add(request("a", prompt(3)))
    b.step()
    b.scheduler.add(request("b", prompt(12, 2)))
    rows = [plan.rows for _ in range(6) if (plan := b.start()) and b.finish() is not None]
    assert rows == [["a"], ["b"], ["a"], ["b"], ["a"], ["b"]]


def test_the_volume_holds_back_later_rows_and_never_the_first() -> None:
    b = bench(limits=Limits(max_volume=64))
    for i in range(3):
        b.scheduler.add(request(str(i), prompt(20, i), max_tokens=30))
    b.drain()
    assert {len(plan.rows) for plan in b.plans} == {3, 2, 1}, "64 tokens: three contexts of 20, two of 32, one of 49"
    assert all(len(b.outputs[str(i), 0]) == 30 for i in range(3))


def test_chunks_keep_their_multiple_and_decodes_cannot_crowd_them_out() -> None:
    b = bench(seqs=8, tokens=8, limits=Limits(chunk_multiple=4))
    assert b.scheduler.bounds.row_slots == 5
    for i in range(8):
        b.scheduler.add(request(str(i), prompt(11, i)))
    b.drain()
    assert all(len(b.outputs[str(i), 0]) == 6 for i in range(8))


def test_only_so_many_prompts_per_step() -> None:
    b = bench(limits=Limits(max_prefill_rows=1))
    for i in range(3):
        b.scheduler.add(request(str(i), prompt(6, i)))
    b.drain()
    assert [plan.rows for plan in b.plans[:3]] == [["0"], ["0", "1"], ["0", "1", "2"]]
