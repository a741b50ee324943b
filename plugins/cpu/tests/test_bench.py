"""Kernels and steps, measured: every figure is there, and the work they are held against is counted right."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from models.tiny import tiny_checkpoint, tiny_gguf
from test_device import Native
from typer.testing import CliRunner

from octavo.cli.bench.step import StepShape, build_step
from octavo.cli.main import app
from octavo.graph import OPS, Graph, Sizes, fuse, step_cost
from octavo.models import load_model
from octavo.platform import Bucket, KernelTime, MemoryReport, StepTimes
from octavo.quant import FORMATS as WEIGHT_FORMATS
from octavo.quant import WeightTensor, dequantise
from octavo_cpu import bench, bench_cases, bench_shapes, machine
from octavo_cpu.bench import random_rows
from octavo_cpu.binding import FORMATS, load
from octavo_cpu.cost import Load
from octavo_cpu.device import CpuDevice
from octavo_cpu.threads import Threads

MIB = 1 << 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too short for a good figure, long enough to see that there is one."""
    monkeypatch.setattr(machine, "SECONDS", 0.002)
    monkeypatch.setattr(machine, "_SMALLEST", 4 * MIB)
    monkeypatch.setattr(machine, "last_level_bytes", lambda: 0)
    monkeypatch.setattr(bench, "last_level_bytes", lambda: 0)
    monkeypatch.setattr(bench, "_SMALLEST", MIB)
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    monkeypatch.setattr(bench, "RUNS", 1)
    monkeypatch.setattr(bench_cases, "CONTEXTS", ((1, 1, 40), (3, 1, 16), (2, 5, 21)))
    monkeypatch.setattr(bench_cases, "ROWS", (1, 5))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    tiny_gguf(tiny_checkpoint("llama", folder), folder / "tiny.gguf", quantization="Q8_0")
    return folder / "tiny.gguf"


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    opened = CpuDevice(load(), lambda: MemoryReport(1 << 32, 1 << 32), Threads(2, (), 1))
    yield opened
    opened.close()


def assert_sane(records: list[KernelTime]) -> None:
    assert records
    assert len({(k.kernel, k.case, k.threads) for k in records}) == len(records)
    for k in records:
        assert 0 < k.fastest <= k.seconds < math.inf
        assert k.bytes > 0
        assert k.operations > 0 or k.kernel == "write_kv"
        assert k.arithmetic in ("int8", "bf16", "f32")
        for share in (k.bandwidth_share, k.peak_share):
            assert share is None or 0 < share < math.inf


def test_a_model_s_kernels_are_measured_on_one_thread_and_on_all(device: CpuDevice, checkpoint: Path) -> None:
    graph = fuse(load_model(checkpoint).graph)
    records = list(device.kernel_times(graph, ""))
    assert_sane(records)
    assert {k.threads for k in records} == {1, 2}
    assert {k.kernel for k in records} == {
        "matmul q8_0", "matmul+argmax q8_0", "quantise int8", "rms_norm", "gated silu", "rope",
        "write_kv", "attention decode", "attention prefill", "argmax",
    }  # fmt: skip


def test_without_a_model_every_weight_format_is_measured(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_shapes, "SHAPES", ((48, 256),))
    monkeypatch.setattr(bench_shapes, "HEAD", ("q4_1", 300, 64))  # the last tile is not full
    monkeypatch.setattr(bench_shapes, "ATTENTION", ((3, 1, 16),))
    records = list(device.kernel_times(None, "m"))
    assert_sane(records)
    names = {k.kernel for k in records}
    assert names == {*(f"matmul {name}" for name in FORMATS), "matmul+argmax q4_1", "rms_norm", "argmax"}
    assert {k.kernel for k in device.kernel_times(None, "quantise")} == {"quantise int8", "quantise bf16"}


def test_only_those_asked_for_are_measured(device: CpuDevice, checkpoint: Path) -> None:
    graph = fuse(load_model(checkpoint).graph)
    assert {k.kernel for k in device.kernel_times(graph, "rope")} == {"rope"}
    assert not list(device.kernel_times(graph, "no such kernel"))


def test_one_thread_is_measured_once(checkpoint: Path) -> None:
    alone = CpuDevice(load(), lambda: MemoryReport(1 << 32, 1 << 32), Threads(1, (), 1))
    records = list(alone.kernel_times(fuse(load_model(checkpoint).graph), "gated"))
    alone.close()
    assert_sane(records)
    assert {k.threads for k in records} == {1}


def test_operations_are_those_of_the_closed_forms(device: CpuDevice, checkpoint: Path) -> None:
    """The tiny model: 4 query heads over 2 KV heads of 16, hidden 64, MLP 96, vocabulary 300."""
    records = {(k.kernel, k.case): k for k in device.kernel_times(fuse(load_model(checkpoint).graph), "")}
    product = records["matmul q8_0", "96x64, 5 rows"]
    assert product.operations == 2 * 5 * 96 * 64
    assert product.bytes == 96 * 64 * (1 + 4 / 32), "codes of a byte; for each 32 a scale and a minimum of two"
    assert records["matmul+argmax q8_0", "300x64, 1 row"].operations == 2 * 300 * 64
    decode = records["attention decode", "4/2x16, 3 rows at 16"]
    assert decode.operations == 3 * 16 * (4 * 16) * 4, "two products with each position seen"
    assert decode.bytes == 3 * 16 * (2 * 16) * 2 * 2, "keys and values of two bytes"
    assert records["attention prefill", "4/2x16, 5 at 21"].operations == 2 * sum(range(17, 22)) * (4 * 16) * 4
    assert records["gated silu", "96, 5 rows"].operations == 9 * 5 * 96
    assert records["rope", "4/2x16, 1 row"].operations == 3 * (4 + 2) * 16


@pytest.mark.parametrize("text", ["prefill:300", "prefill:3x20", "decode:40", "decode:5x17"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_the_parts_of_a_step_do_what_the_cost_model_counts(text: str, family: str, tmp_path: Path) -> None:
    native, shape = Native(load_model(tiny_checkpoint(family, tmp_path))), StepShape.parse(text)
    times = measured(native, shape)
    sizes = Sizes(shape.rows * shape.count, shape.rows, shape.rows, shape.context)
    counted = sum(p.operations for p in times.parts if p.part not in ("quantise", "attention"))
    whole = step_cost(native.graph, sizes).operations
    attention = sum(
        node_operations(native.graph, i, sizes) for i, n in enumerate(native.graph.nodes) if n.op == "attention"
    )
    assert counted == pytest.approx(whole - attention)


def node_operations(graph: Graph, index: int, sizes: Sizes) -> float:
    node = graph.nodes[index]
    inputs, weights = [graph.types[v] for v in node.inputs], [graph.weights[w] for w in node.weights]
    return OPS[node.op].operations(inputs, weights, node.attrs, sizes)


def measured(native: Native, shape: StepShape, rounds: int = 2) -> StepTimes:
    step = build_step(native.graph, shape, 16, Bucket())
    store = native.store(1 + step.block_tables.size)
    try:
        return native.executable.step_times(step, store, rounds)
    finally:
        store.close()


def test_a_step_s_parts_fit_in_its_time(checkpoint: Path) -> None:
    native = Native(load_model(checkpoint))
    times = measured(native, StepShape(3, 1, 33), rounds=3)
    assert 0 < times.fastest <= times.seconds
    assert sum(p.working + p.waiting for p in times.parts) <= times.seconds
    parts = {p.part: p for p in times.parts}
    assert {"linear q_proj k_proj v_proj", "linear o_proj", "linear gate_proj up_proj", "linear down_proj", "attention",
            "rope, write_kv", "rms_norm", "gated", "output lm_head"} <= set(parts)  # fmt: skip
    limited = {name for name, part in parts.items() if part.limit is not None}
    assert limited == {name for name in parts if name.startswith(("linear", "output", "attention"))}
    assert all((part.limit or 1.0) > 0 for part in times.parts)


def test_an_int8_cache_is_counted_with_its_scales(checkpoint: Path) -> None:
    model, shape = load_model(checkpoint), StepShape(3, 1, 33)
    read = {}
    for cache in ("bf16", "int8"):
        native = Native(model, cache=cache)
        [read[cache]] = [p.bytes for p in measured(native, shape).parts if p.part == "attention"]
        elements = 2 * 16 * native.layout.slots * native.layout.kv_heads * native.layout.head_dim
        assert native.device.kv_block_bytes(native.layout) == elements * {"bf16": 32, "int8": 19}[cache] // 16
    assert read["int8"] == read["bf16"] * 19 / 32


@pytest.mark.parametrize("window", [0, 1, 7, 100])
def test_positions_are_counted_within_the_window(window: int) -> None:
    rows = [(5, 5), (1, 40), (0, 9), (4, 12)]
    load_ = Load(4, *(np.array(part, np.int64) for part in zip(*rows, strict=True)), 2.0)
    sets = [
        [set(range(max(0, p - window + 1) if window else 0, p + 1)) for p in range(context - count, context)]
        for count, context in rows
    ]
    assert load_.seen(window) == sum(len(seen) for row in sets for seen in row)
    assert load_.visited(window) == sum(len(set().union(*row)) for row in sets)


@pytest.mark.parametrize("form", FORMATS)
def test_made_up_weights_are_numbers(form: str) -> None:
    rows = random_rows(form, 3, 512)
    values = dequantise(WeightTensor(WEIGHT_FORMATS[form], (3, 512), rows))
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 100
    assert values.std() > 0


def test_the_command_prints_json(checkpoint: Path) -> None:
    command = ["bench", "kernels", str(checkpoint), "--platform", "cpu", "--only", "attention", "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    printed = json.loads(result.stdout)
    assert printed["platform"] == "cpu"
    assert {k["kernel"] for k in printed["kernels"]} == {"attention decode", "attention prefill"}
    assert all(k["seconds"] > 0 and k["bandwidth_share"] > 0 for k in printed["kernels"])


@pytest.mark.parametrize("step", ["prefill:2x30", "decode:3x20"])
def test_the_command_takes_a_step_apart(checkpoint: Path, step: str) -> None:
    command = ["bench", "kernels", str(checkpoint), "--platform", "cpu", "--step", step, "--rounds", "2"]
    printed = json.loads(CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False).stdout)
    assert printed["step"] == step
    assert sum(p["working"] + p["waiting"] for p in printed["parts"]) <= printed["seconds"]
    shown = CliRunner().invoke(app, command, env={"COLUMNS": "100"}, catch_exceptions=False).stdout
    for part in ("linear down_proj", "attention", "outside of the parts", "the step"):
        assert part in shown
