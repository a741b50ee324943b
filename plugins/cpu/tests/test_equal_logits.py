"""Greedy steps keep no logits: each worker finds the best of its own columns, and the smallest id wins a tie of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from octavo.graph import Builder
from octavo.platform import Bucket, MemoryReport
from octavo.quant import F32, WeightTensor
from octavo.runner import Batch, Runner, kv_layout, load_runner
from octavo.sampling import SamplingParams
from octavo.step_plan import NewRow, StepPlan
from octavo_cpu.binding import load
from octavo_cpu.device import CpuDevice
from octavo_cpu.threads import Threads

VOCAB, WIDTH, ROWS = 8192, 32, 3


def tensor(values: np.ndarray) -> WeightTensor:
    data = np.ascontiguousarray(values, "<f4")
    return WeightTensor(F32, values.shape, data.view(np.uint8).reshape(*values.shape[:-1], -1))


def greedy(best: dict[int, float], threads: int, steps: int, absent: Sequence[int] = ()) -> set[tuple[int, ...]]:
    """What steps of a few greedy rows draw of a model that gives these ids their logits, and all others 0. ``absent``
    ids are no tokens.
    """
    g = Builder("equal")
    h = g.embed("embed", vocab=VOCAB, width=WIDTH)
    q, k, v = g.linear_split(g.rms_norm(h, "norm", eps=1e-5), ["q", "k", "v"], [16, 16, 16])
    a = g.attention(q, k, v, layer=0, heads=1, kv_heads=1, head_dim=16, scale=0.25, window=None)
    h = g.add(h, g.linear(a, "o", WIDTH))
    g.output("logits", g.linear(g.rms_norm(g.take_rows(h), "final", eps=1e-5), "head", VOCAB))
    graph = g.build()
    weights = {name: tensor(np.zeros(spec.shape, np.float32)) for name, spec in graph.weights.items()}
    head = np.zeros((VOCAB, WIDTH), np.float32)
    for token, value in best.items():
        head[token] = value
    own = {"head.weight": head, "embed.weight": np.ones((VOCAB, WIDTH), np.float32)}
    own |= dict.fromkeys(("norm.weight", "final.weight"), np.ones(WIDTH, np.float32))
    assert own.keys() < weights.keys()
    weights |= {name: tensor(values) for name, values in own.items()}
    device = CpuDevice(load(), lambda: MemoryReport(1 << 30, 1 << 30), Threads(threads, (), 1))
    layout = kv_layout(graph, 16, "bf16")
    executables, _ = load_runner(device, graph, weights, (Bucket(),), layout, lambda what, done, total: None)
    batch = Batch(ROWS, 64, 16, 1, vocab_size=VOCAB, absent=absent)
    runner = Runner(executables, device.allocate_kv(layout, 8), batch, device.sampler(), absent)
    drawn = set()
    for step in range(steps):
        names = [f"{step}.{row}" for row in range(ROWS)]
        params = SamplingParams(temperature=0.0)
        new = [NewRow(name, [7], 1, params, 0, 0, frozenset(), [[1 + row]]) for row, name in enumerate(names)]
        gone = [f"{step - 1}.{row}" for row in range(ROWS)]
        plan = StepPlan(names, [1] * ROWS, [0] * ROWS, [1] * ROWS, Bucket(), released=gone, new=new)
        drawn.add(tuple(token for (token,) in runner.collect(runner.submit(plan)).tokens))
    device.close()
    return drawn


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(
    "tied", [(0, 8191), (5, 4000, 8190), (1000, 1001), (15, 16), (4095, 4096), tuple(range(2100, 8192, 16))]
)
def test_the_smallest_id_wins(threads: int, tied: tuple[int, ...]) -> None:
    assert greedy(dict.fromkeys(tied, 1.0), threads, 60) == {(tied[0],) * ROWS}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_of_all_ids_the_first(threads: int) -> None:
    assert greedy({}, threads, 60) == {(0,) * ROWS}


@pytest.mark.parametrize("absent", [range(8000, VOCAB), [3, 4, 900, 8191]], ids=["padding", "gaps"])
def test_ids_that_are_no_tokens_lose_to_all_others(absent: Sequence[int]) -> None:
    best = {**dict.fromkeys(absent, 9.0), 77: 1.0, 5000: 1.0}
    assert greedy(best, 2, 3) == {(absent[0],) * ROWS}
    assert greedy(best, 2, 3, absent) == {(77,) * ROWS}
