"""A whole engine over a graph: scheduler, KV manager, runner and device, as `octavo serve` puts them together, but for
checkpoint and tokenizer. Driven by a script of requests and aborts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.core import EngineCore
from octavo.errors import OctavoError, RequestError
from octavo.graph import Graph, from_json
from octavo.kv import KVGroup, KVManager
from octavo.platform import ArtifactStore, Plan, Platform, Rank, Unsupported
from octavo.platform.negotiate import check_plan
from octavo.runner import Batch, Pending, Runner, kv_layout, load_runner
from octavo.sampling import SamplingParams
from octavo.scheduler import Scheduler, SchedulerConfig, TokenEvent
from octavo.step_plan import StepPlan, TokenLogprobs
from octavo_conformance.worker import values
from octavo_conformance.worker.candidate import Raised, candidate
from octavo_conformance.worker.play import poison


@dataclass
class _Engine:
    core: EngineCore
    kv: KVManager
    plan: Plan
    buckets: int
    shapes: list[tuple[int, int, int]]


class _Observed(Runner):
    """A runner that notes the rows, tokens and longest chunk of each step."""

    shapes: list[tuple[int, int, int]]

    def submit(self, plan: StepPlan) -> Pending:
        """See `Runner.submit`."""
        self.shapes.append((len(plan.rows), sum(plan.counts), max(plan.counts)))
        return super().submit(plan)


def run(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Start an engine, play its script, close it. See `octavo_conformance.harness.engines.trace`."""
    graph = from_json(request["graph"])
    asked = values.request_in(request["request"])
    with candidate("negotiate"):
        plan = platform.negotiate(asked)
        if isinstance(plan, Unsupported):
            return {"refused": values.answer_out(plan)["refused"]}
        changed = check_plan(plan, asked.settings)
        if changed is not None:
            raise OctavoError(f"the plan breaks the contract: {changed}")
    kept = ArtifactStore()
    with candidate("open"):
        device = platform.open(Rank(**request["rank"], artifacts=kept))
    try:
        with candidate("start"):
            engine = assemble(device, graph, plan, request)
    except Raised:
        device.close()
        raise
    made = len(kept.opened)
    try:
        return {**drive(engine, request), "late": len(kept.opened) - made}
    finally:
        with candidate("close"):
            engine.core.close()


def assemble(device: Any, graph: Graph, plan: Plan, request: Mapping[str, Any]) -> _Engine:
    """An engine on an opened device."""
    groups = [KVGroup(window) for window in graph.kv_windows] or [KVGroup()]
    kv = KVManager(request["blocks"], plan.block_size, groups, request["prefix_caching"])
    config = SchedulerConfig(
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_model_len=plan.max_model_len,
        limits=plan.limits,
    )
    scheduler = Scheduler(config, kv)
    buckets = scheduler.bounds.buckets.buckets
    weights = {name: values.weight_in(raw) for name, raw in request["weights"].items()}
    layout = kv_layout(graph, plan.block_size, plan.kv_cache_dtype)
    executables, _ = load_runner(device, graph, weights, buckets, layout, lambda what, done, total: None)
    store = device.allocate_kv(layout, request["blocks"])
    poison(store, request["blocks"])
    batch = Batch(plan.max_num_seqs, plan.max_model_len, plan.block_size, len(groups))
    runner = _Observed(executables, store, batch, device.sampler())
    runner.shapes = []
    core = EngineCore(
        scheduler,
        runner,
        device,
        store,
        vocab_size=request["vocab"],
        eos_ids=frozenset(request["eos"]),
        seed=request["seed"],
    )
    return _Engine(core, kv, plan, len(buckets), runner.shapes)


@dataclass
class _Answers:
    """What requests got; forks under names of their own."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, list[float]] = field(default_factory=dict)
    drawn: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    scored: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)

    def take(self, made: TokenEvent) -> None:
        """One event of the engine."""
        name = made.request_id if made.index == 0 else f"{made.request_id}:{made.index}"
        self.tokens.setdefault(name, []).extend(made.token_ids)
        self.logprobs.setdefault(name, []).extend(entry.logprob for entry in made.logprobs or ())
        self.drawn.setdefault(name, []).extend(made.logprobs or ())
        self.scored.setdefault(name, []).extend(made.prompt_logprobs or ())
        self.cached[name] = made.cached_tokens
        if made.finish_reason is not None:
            self.finished[name] = str(made.finish_reason)
        if made.error is not None:
            self.errors[name] = made.error


def drive(engine: _Engine, request: Mapping[str, Any]) -> dict[str, Any]:
    """Events arrive at steps of their episodes; an episode ends when none is due and the engine has nothing to do."""
    script = sorted(request["script"], key=lambda event: (event["episode"], event["at"]))
    answers = _Answers()
    held: list[int] = []
    leaks = steps = episode = at = 0
    engine.shapes.clear()
    while script or engine.core.has_work:
        if script and script[0]["episode"] > episode and not engine.core.has_work:
            held.append(engine.kv.pool.used)
            episode, at = script[0]["episode"], 0
        while script and (script[0]["episode"], script[0]["at"]) <= (episode, at):
            _do(engine.core, script.pop(0), answers)
        with candidate("step"):
            events = engine.core.step() if engine.core.has_work else []
        for made in events:
            answers.take(made)
        leaks += engine.kv.pool.used + engine.kv.pool.free != engine.kv.pool.num_blocks - 1
        steps, at = steps + 1, at + 1
        if steps > request["most_steps"]:
            raise Raised("step", RuntimeError(f"the engine still has work after {steps} steps"))
    held.append(engine.kv.pool.used)
    return {
        **{f.name: getattr(answers, f.name) for f in fields(answers)},
        "drawn": {name: _table(entries, request["vocab"]) for name, entries in answers.drawn.items()},
        "scored": {name: _table(entries, request["vocab"]) for name, entries in answers.scored.items()},
        "steps": steps,
        "preemptions": engine.core.metrics().preemptions,
        "used_blocks": engine.kv.pool.used,
        "held": held,
        "unbalanced_steps": leaks,
        "shapes": np.array(engine.shapes, np.int32).reshape(-1, 3),
        "block_size": engine.plan.block_size,
        "buckets": engine.buckets,
    }


def _do(core: EngineCore, event: Mapping[str, Any], answers: _Answers) -> None:
    name = event["id"]
    if event["do"] == "abort":
        core.abort(name)
        answers.finished.setdefault(name, "abort")
        return
    answers.tokens[name], answers.logprobs[name] = [], []
    try:
        core.add(name, event["prompt"], SamplingParams(**event["params"]))
    except RequestError as error:
        answers.finished[name], answers.errors[name] = "refused", str(error)


def _table(entries: list[TokenLogprobs], vocab: int) -> npt.NDArray[np.float32]:
    """The logprobs that were told, by token id."""
    table = np.full((len(entries), vocab), np.nan, np.float32)
    for row, entry in zip(table, entries, strict=True):
        for token, value in entry.top:
            row[token] = value
    return table
