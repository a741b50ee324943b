"""An engine in a process that nothing tells from one that serves: this file is run as text, imports `octavo` alone, and
the process has the arguments of ``octavo serve``. See `octavo_conformance.harness.plain`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer the question in the folder that standard input names, in a file beside it."""
    sys.argv = ["octavo", "serve"]
    folder = Path(sys.stdin.readline().strip())
    question = json.loads((folder / "question.json").read_text(encoding="utf-8"))
    answer = _answer(question, folder)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _answer(question: dict[str, Any], folder: Path) -> dict[str, Any]:
    import numpy as np

    from octavo.engine.core import EngineCore
    from octavo.graph import from_json
    from octavo.kv import KVGroup, KVManager
    from octavo.platform import ModelFacts, PlanRequest, Rank, Settings, Unsupported
    from octavo.platform.discovery import discover, select
    from octavo.quant import WeightTensor, format_named
    from octavo.runner import Batch, Runner, kv_layout, load_runner
    from octavo.sampling import SamplingParams
    from octavo.scheduler import Scheduler, SchedulerConfig

    platform = select(discover().platforms, question["platform"])
    if question["mutant"]:
        from octavo_conformance import mutants

        platform = mutants.apply(question["mutant"], platform)
    stored = np.load(folder / "weights.npz")
    weights = {
        name: WeightTensor(format_named(form), tuple(shape), stored[f"w{i}"])
        for i, (name, form, shape) in enumerate(question["weights"])
    }
    facts: dict[str, Any] = {k: frozenset(v) if isinstance(v, list) else v for k, v in question["facts"].items()}
    plan = platform.negotiate(PlanRequest(ModelFacts(**facts), Settings(**question["settings"])))
    if isinstance(plan, Unsupported):
        return {"refused": str(plan)}
    graph = from_json(question["graph"])
    groups = [KVGroup(window) for window in graph.kv_windows]
    config = SchedulerConfig(
        max_num_seqs=plan.max_num_seqs, max_num_batched_tokens=plan.max_num_batched_tokens,
        max_model_len=plan.max_model_len, limits=plan.limits,
    )  # fmt: skip
    kv = KVManager(question["blocks"], plan.block_size, groups, True)
    scheduler = Scheduler(config, kv)
    layout = kv_layout(graph, plan.block_size, plan.kv_cache_dtype)
    device = platform.open(Rank(threads=question["threads"]))
    buckets = scheduler.bounds.buckets.buckets
    executables, _ = load_runner(device, graph, weights, buckets, layout, lambda what, done, total: None)
    store = device.allocate_kv(layout, question["blocks"])
    batch = Batch(plan.max_num_seqs, plan.max_model_len, plan.block_size, len(groups))
    runner = Runner(executables, store, batch, device.sampler())
    core = EngineCore(scheduler, runner, device, store, vocab_size=question["vocab"], eos_ids=frozenset())
    for name, prompt, params in question["requests"]:
        core.add(name, prompt, SamplingParams(**params))
    tokens: dict[str, list[int]] = {name: [] for name, *_ in question["requests"]}
    drawn: dict[str, list[Any]] = {name: [] for name in tokens}
    while core.has_work:
        for event in core.step():
            tokens[event.request_id] += event.token_ids
            drawn[event.request_id] += [list(entry.top) for entry in event.logprobs or ()]
    core.close()
    return {"tokens": tokens, "drawn": drawn}


if __name__ == "__main__":
    main()
