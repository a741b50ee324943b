"""A whole engine over a graph: scheduler, KV manager, runner and device, as `octavo serve` puts them together, but for
checkpoint and tokenizer. Driven by a script of requests and aborts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.engine.core import EngineCore
from octavo.errors import OctavoError
from octavo.graph import Graph, from_json
from octavo.kv import KVGroup, KVManager
from octavo.platform import Plan, Platform, Rank, Unsupported
from octavo.platform.negotiate import check_plan
from octavo.runner import Batch, Runner, kv_layout, load_runner
from octavo.sampling import SamplingParams
from octavo.scheduler import Scheduler, SchedulerConfig
from octavo_conformance.worker import values
from octavo_conformance.worker.candidate import Raised, candidate
from octavo_conformance.worker.play import poison


@dataclass
class _Engine:
    core: EngineCore
    kv: KVManager
    plan: Plan
    buckets: int


def run(platform: Platform, request: Mapping[str, Any]) -> dict[str, Any]:
    """Start an engine, play its script, close it. See `octavo_conformance.engines.trace` for request and answer."""
    graph = from_json(request["graph"])
    asked = values.request_in(request["request"])
    with candidate("negotiate"):
        plan = platform.negotiate(asked)
        if isinstance(plan, Unsupported):
            return {"refused": values.answer_out(plan)["refused"]}
        changed = check_plan(plan, asked.settings)
        if changed is not None:
            raise OctavoError(f"the plan breaks the contract: {changed}")
    with candidate("open"):
        device = platform.open(Rank(**request["rank"]))
    try:
        with candidate("start"):
            engine = assemble(device, graph, plan, request)
    except Raised:
        device.close()
        raise
    try:
        return drive(engine, request)
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
    core = EngineCore(
        scheduler,
        Runner(executables, store, batch, device.sampler()),
        device,
        store,
        vocab_size=request["vocab"],
        eos_ids=frozenset(request["eos"]),
        seed=request["seed"],
    )
    return _Engine(core, kv, plan, len(buckets))


def drive(engine: _Engine, request: Mapping[str, Any]) -> dict[str, Any]:
    """Events arrive at step numbers; the engine steps until nothing is left to do and no event is due."""
    script = sorted(request["script"], key=lambda event: event["at"])
    tokens: dict[str, list[int]] = {}
    logprobs: dict[str, list[float]] = {}
    finished: dict[str, str] = {}
    errors: dict[str, str] = {}
    cached: dict[str, int] = {}
    leaks = 0
    step = 0
    while script or engine.core.has_work:
        while script and script[0]["at"] <= step:
            event = script.pop(0)
            if event["do"] == "abort":
                engine.core.abort(event["id"])
                finished.setdefault(event["id"], "abort")
            else:
                tokens[event["id"]], logprobs[event["id"]] = [], []
                engine.core.add(event["id"], event["prompt"], SamplingParams(**event["params"]))
        with candidate("step"):
            events = engine.core.step() if engine.core.has_work else []
        for made in events:
            tokens[made.request_id] += made.token_ids
            logprobs[made.request_id] += [entry.logprob for entry in made.logprobs or ()]
            cached[made.request_id] = made.cached_tokens
            if made.finish_reason is not None:
                finished[made.request_id] = str(made.finish_reason)
            if made.error is not None:
                errors[made.request_id] = made.error
        leaks += engine.kv.pool.used + engine.kv.pool.free != engine.kv.pool.num_blocks - 1
        step += 1
        if step > request["most_steps"]:
            raise Raised("step", RuntimeError(f"the engine still has work after {step} steps"))
    metrics = engine.core.metrics()
    return {
        "tokens": tokens,
        "logprobs": logprobs,
        "finished": finished,
        "errors": errors,
        "cached": cached,
        "steps": step,
        "preemptions": metrics.preemptions,
        "used_blocks": engine.kv.pool.used,
        "unbalanced_steps": leaks,
        "block_size": engine.plan.block_size,
        "buckets": engine.buckets,
    }
