"""The warm-up: a few steps before serving, so that step times can be predicted from the first request on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from octavo.kv import KVGroup, KVManager
from octavo.kv.sizing import peak_blocks
from octavo.platform import Bucket, Decision, Executable, KVStore, Sampler
from octavo.runner import Batch, Runner
from octavo.sampling import SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig
from octavo.scheduler.step_time import StepShape, StepTimes, shape_of

_LIMIT = 0.3
"""Seconds after which only the first acts are begun: ``octavo serve`` shall not wait for this."""
_CONTEXT = 512
_TURNS = 3


class _Act(NamedTuple):
    """One request."""

    prompt: int
    rows: int
    tokens: int

    def forecast(self, times: StepTimes) -> float:
        decode = StepShape(decodes=self.rows, context=self.rows * self.prompt)
        return times.predict(StepShape().with_chunk(self.prompt, 0)) + (self.tokens - 1) * times.predict(decode)


_ACTS = (_Act(1, 1, 3), _Act(16, 1, 1), _Act(64, 1, 1), _Act(16, 8, 4), _Act(320, 1, 1))
"""One after the other: prompts of growing length, one row that decodes, and eight."""
_FIRST = 2
"""Acts that come whatever they cost: where no decode or no chunk was measured, nothing can be predicted."""


def warm_up(
    times: StepTimes,
    config: SchedulerConfig,
    groups: Sequence[KVGroup],
    block_size: int,
    executables: Mapping[Bucket, Executable],
    store: KVStore,
    sampler: Sampler | None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Run steps of several shapes on an idle device, and tell ``times`` how long each took.

    Blocks of ``store`` are overwritten, so none may be in use yet. The very first step pays for what happens once, and
    is not told. An act that the engine's bounds would refuse is left out.
    """
    context = min(config.max_model_len, _CONTEXT)
    rows = min(config.max_num_seqs, 8)
    blocks = 1 + rows * peak_blocks(groups, block_size, context, config.max_num_batched_tokens)
    manager = KVManager(min(blocks, store.blocks), block_size, groups, enable_prefix_caching=False)
    unbounded = replace(config, max_model_len=context, itl_target=None, max_waiting=None, max_waiting_tokens=None)
    scheduler = Scheduler(unbounded, manager)
    runner = Runner(executables, store, Batch(config.max_num_seqs, context, block_size, len(groups)), sampler)
    bounds = scheduler.bounds
    longest = min(bounds.longest, bounds.context, bounds.context_limit(1))
    begun, warm = clock(), False
    for number, act in enumerate(_ACTS * _TURNS):
        if number >= _FIRST and clock() - begun + act.forecast(times) > _LIMIT:
            return
        if act.rows > bounds.row_slots or act.prompt + act.tokens > longest:
            continue
        params = SamplingParams(n=act.rows, temperature=0.0, max_tokens=act.tokens, ignore_eos=True)
        scheduler.add(Request(f"act {number}", [0] * act.prompt, params))
        while scheduler.unfinished:
            started = clock()
            plan = scheduler.schedule()
            assert plan is not None, "there is an unfinished request"
            result = runner.collect(runner.submit(plan))
            seconds = clock() - started
            scheduler.update(plan, result)
            if warm:
                times.observe(shape_of(plan), seconds)
            warm = True


def describe_target(scheduler: Scheduler) -> Decision:
    """What the target means by the times known so far, for whoever reads the start-up log."""
    context = min(256, scheduler.bounds.context)
    allowance = scheduler.allowance(StepShape(decodes=1, context=context))
    target = scheduler.config.itl_target
    assert allowance is not None and target is not None, "there is a target"
    chunk = allowance.clip(scheduler.bounds.tokens - 1, 0)
    known = f"by steps measured at start-up, a step beside one stream has {chunk} prompt tokens within it"
    if allowance.predicted(chunk, 0) > allowance.seconds:
        slow = f"{(allowance.predicted(chunk, 0) + target - allowance.seconds) * 1e3:.0f} ms"
        known = f"it cannot be held: beside one stream even {chunk} prompt tokens, the least, take about {slow}"
    return Decision("itl_target_ms", f"{target * 1e3:g}", "core", known)
