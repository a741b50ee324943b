"""Under a latency target a long prompt does not hold up those who generate, and nothing else changes."""

from __future__ import annotations

import pytest
from engine.simulated_time import SimulatedClock
from engine.tiny_engine import TinyEngine, alone, engine, greedy, prompt

from octavo.engine.warm_up import describe_target
from octavo.platform import BucketPolicy, Limits
from octavo.scheduler.target import LEAST_CHUNK

CONTEXT = 700
LONG = 500


def serve(target: float | None, clock: SimulatedClock, limits: Limits | None = None) -> tuple[TinyEngine, int]:
    """Four requests generate; then a long prompt comes. Returns the engine when that has its token, and at which of the
    clock's steps it came.
    """
    served = engine(context=CONTEXT, budget=256, rows=8, blocks=2000, itl_target=target, clock=clock, limits=limits)
    for i in range(4):
        served.core.add(f"r{i}", prompt(i, 20 + i), greedy(150))
    while not all(served.tokens(f"r{i}") for i in range(4)):
        served.step()
    arrival = len(clock.steps)
    served.core.add("long", prompt(9, LONG), greedy(1))
    while not served.tokens("long"):
        served.step()
    return served, arrival


def test_a_long_prompt_holds_others_up_without_a_target_and_not_with_one() -> None:
    free, held = SimulatedClock(), SimulatedClock()
    _, arrival = serve(None, free)
    assert max(free.steps[arrival:]) > 0.06
    served, arrival = serve(0.02, held)
    assert max(held.steps[arrival:]) <= 0.02, "the first chunk obeys already: the steps were rehearsed"
    metrics = served.core.metrics()
    assert metrics.inter_token.percentile(99) <= 0.02 * 1.25  # an interval of the histogram is a quarter
    assert metrics.token_budget == 256, "the prompt's last chunk was not cut"
    chunks = LONG / (len(held.steps) - arrival)
    assert chunks > 3 * LEAST_CHUNK, "the target is made use of"


def test_the_tokens_are_the_same_with_and_without_a_target() -> None:
    for target in (None, 1e-6, 0.02):
        served, _ = serve(target, SimulatedClock())
        served.finish()
        for i in range(4):
            assert served.tokens(f"r{i}") == alone_long(prompt(i, 20 + i), 150)
        assert served.tokens("long") == alone_long(prompt(9, LONG), 1)


def alone_long(request: list[int], tokens: int) -> list[int]:
    single = engine(context=CONTEXT, budget=CONTEXT, rows=1, blocks=2000)
    single.core.add("r", request, greedy(tokens))
    single.finish()
    return single.tokens("r")


def test_a_target_that_cannot_be_held_slows_the_prompt_and_does_not_stop_it() -> None:
    clock = SimulatedClock()
    served, arrival = serve(1e-6, clock)
    assert len(clock.steps) - arrival == -(-LONG // LEAST_CHUNK)
    decision = str(describe_target(served.scheduler))
    assert f"cannot be held: beside one stream even {LEAST_CHUNK} prompt tokens" in decision


def test_the_start_is_told_what_the_target_allows() -> None:
    served = engine(context=CONTEXT, budget=256, rows=8, blocks=2000, itl_target=0.02, clock=SimulatedClock())
    decision = describe_target(served.scheduler)
    assert (decision.setting, decision.value, decision.by) == ("itl_target_ms", "20", "core")
    chunk = int(decision.why.split("one stream has ")[1].split()[0])
    assert 2e-3 + (chunk + 1) * 250e-6 + (256 + chunk * (chunk + 1) / 2) * 2e-7 == pytest.approx(0.02, rel=0.03)


def test_a_machine_that_becomes_slower_is_held_to_the_target_from_the_fourth_step_on() -> None:
    clock = SimulatedClock()
    served = engine(context=CONTEXT, budget=256, rows=8, blocks=2000, itl_target=0.03, clock=clock)
    served.core.add("r", prompt(1, 20), greedy(150))
    served.step()
    served.core.add("long", prompt(9, 680), greedy(1))
    served.step()
    clock.slowness = 2.0
    slow = len(clock.steps)
    while not served.tokens("long"):
        served.step()
    assert clock.steps[slow] > 0.05
    assert max(clock.steps[slow + 3 :]) <= 0.03 * 1.02


AWKWARD = {
    "exclusive": Limits(prefill_xor_decode=True, chunk_multiple=8),
    "padded": Limits(max_rows=8, max_tokens=256, buckets=BucketPolicy(tokens=(8, 32, 64, 128, 256), rows=(8,))),
    "one prompt a step": Limits(max_prefill_rows=1, chunk_multiple=32),
}


@pytest.mark.parametrize("limits", AWKWARD.values(), ids=AWKWARD.keys())
def test_platforms_with_limits_hold_the_target_too(limits: Limits) -> None:
    clock = SimulatedClock()
    served, arrival = serve(0.03, clock, limits)
    waits = clock.steps[arrival:]
    if limits.prefill_xor_decode:  # a row waits for a step of chunks and one of decodes
        waits = [a + b for a, b in zip(waits[::2], waits[1::2], strict=False)]
    assert max(waits) <= 0.03 * 1.02
    served.finish()
    assert served.tokens("r0") == alone_long(prompt(0, 20), 150)


def test_the_rehearsal_leaves_the_engine_as_it_was() -> None:
    rehearsed = engine(itl_target=0.02, clock=SimulatedClock())
    assert rehearsed.kv.pool.used == 0 and rehearsed.scheduler.unfinished == 0
    for _ in range(2):
        rehearsed.core.add("r", prompt(5, 30), greedy())
        rehearsed.finish()
    assert rehearsed.tokens("r") == 2 * alone(prompt(5, 30), greedy())


@pytest.mark.parametrize(("slowness", "steps"), [(1.0, range(20, 60)), (1000.0, range(4, 5))])
def test_the_rehearsal_is_short_on_a_slow_device(slowness: float, steps: range) -> None:
    """Three steps of one token and a chunk are what it takes to predict anything; no more where those take seconds."""
    clock = SimulatedClock(slowness=slowness)
    engine(context=CONTEXT, budget=256, blocks=2000, itl_target=0.02, clock=clock)
    assert len(clock.steps) in steps
    if slowness == 1.0:
        assert clock.now <= 0.31


def test_the_rehearsal_fits_an_engine_that_has_hardly_any_room() -> None:
    clock = SimulatedClock()
    engine(context=18, budget=2, rows=2, blocks=6, itl_target=0.02, clock=clock)
    assert clock.steps
