"""The CPU platform as core meets it: found through its entry point, available, and within what it declares."""

from __future__ import annotations

import ast
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import octavo_cpu
from octavo.platform import (
    KVLayout,
    ModelFacts,
    Plan,
    PlanRequest,
    Rank,
    Settings,
    Unsupported,
)
from octavo.platform.discovery import discover, select
from octavo.platform.host import host_memory
from octavo_cpu.machine import INSTRUCTIONS
from octavo_cpu.platform import CpuPlatform

CPU = CpuPlatform()
MODEL = ModelFacts(
    name="tiny",
    ops=CPU.capabilities().ops,
    weight_formats=CPU.capabilities().weight_formats,
    attention=CPU.capabilities().attention,
    head_dim=80,
    max_position=2048,
    weight_bytes=1 << 20,
)

PUBLIC = ("octavo.platform", "octavo.graph", "octavo.quant", "octavo.errors")


def test_it_is_found_through_its_entry_point_and_is_the_host_platform() -> None:
    [found] = [f for f in discover().platforms if f.name == "cpu"]
    assert (found.verdict, found.kind) == ("available", "host")
    assert found.distribution == f"octavo-cpu {metadata.version('octavo-cpu')}"
    assert isinstance(select([found]), CpuPlatform)
    assert CPU.info.version == metadata.version("octavo-cpu")


def test_its_probe_says_what_it_found() -> None:
    probe = CPU.probe()
    assert probe.available
    assert "threads" in probe.reason and "kernels" in probe.reason
    [device] = probe.devices
    assert device.memory_bytes == host_memory().total


def test_it_leaves_memory_and_rows_to_others_unless_told() -> None:
    plan = CPU.negotiate(PlanRequest(MODEL, Settings()))
    assert isinstance(plan, Plan)
    assert (plan.max_num_seqs, plan.memory_utilization, plan.max_model_len) == (64, 0.5, 2048)
    assert {d.setting for d in plan.decisions} == {
        "max_num_seqs", "max_num_batched_tokens", "memory_utilization", "kv_cache_dtype",
    }  # fmt: skip
    asked = CPU.negotiate(PlanRequest(MODEL, Settings(max_num_seqs=128, memory_utilization=0.8, block_size=32)))
    assert isinstance(asked, Plan)
    assert (asked.max_num_seqs, asked.memory_utilization, asked.block_size) == (128, 0.8, 32)


@pytest.mark.parametrize(
    ("formats", "whole_prompts", "asked", "cache"),
    [
        ({"f32", "q4_0"}, False, None, "int8"),
        ({"int4_g32", "bf16"}, False, None, "int8"),
        ({"f32", "q4_0"}, False, "bf16", "bf16"),
        ({"f32", "q8_0"}, True, None, "bf16"),
        ({"bf16"}, False, None, "bf16"),
        ({"f32", "f16"}, False, None, "bf16"),
    ],
)
def test_the_cache_of_a_quantized_model_that_generates_has_eight_bits_unless_told(
    formats: set[str], whole_prompts: bool, asked: str | None, cache: str
) -> None:
    model = replace(MODEL, weight_formats=frozenset(formats), whole_prompts=whole_prompts)
    plan = CPU.negotiate(PlanRequest(model, Settings(kv_cache_dtype=asked)))
    assert isinstance(plan, Plan) and plan.kv_cache_dtype == cache


@pytest.mark.parametrize(("refinement", "cache"), [("none", "int8"), ("inf", "int8"), ("2", "bf16"), ("0", "bf16")])
def test_who_asks_for_finer_activations_gets_a_finer_cache(
    monkeypatch: pytest.MonkeyPatch, refinement: str, cache: str
) -> None:
    monkeypatch.setenv("OCTAVO_CPU_REFINE", refinement)
    plan = CPU.negotiate(PlanRequest(MODEL, Settings()))
    assert isinstance(plan, Plan) and plan.kv_cache_dtype == cache


@pytest.mark.parametrize(
    ("rows", "asked", "tokens"), [(None, None, 256), (8, None, 256), (512, None, 1024), (8, 4096, 4096)]
)
def test_a_step_is_as_long_as_one_native_piece_unless_there_are_many_rows_or_it_is_told(
    rows: int | None, asked: int | None, tokens: int
) -> None:
    plan = CPU.negotiate(PlanRequest(MODEL, Settings(max_num_seqs=rows, max_num_batched_tokens=asked)))
    assert isinstance(plan, Plan)
    assert plan.max_num_batched_tokens == tokens


@pytest.mark.parametrize(
    ("request_", "knob"),
    [
        (PlanRequest(MODEL, Settings(dtype="bf16")), "--dtype"),
        (PlanRequest(MODEL, Settings(kv_cache_dtype="fp8")), "--kv-cache-dtype"),
        (PlanRequest(MODEL, Settings(block_size=48)), "--block-size"),
        (PlanRequest(MODEL, Settings(), ranks=2), "--tensor-parallel-size"),
        (PlanRequest(replace(MODEL, ops=frozenset({"moe"})), Settings()), ""),
    ],
    ids=["dtype", "kv dtype", "block size", "ranks", "op"],
)
def test_it_refuses_what_it_does_not_declare(request_: PlanRequest, knob: str) -> None:
    refusal = CPU.negotiate(request_)
    assert isinstance(refusal, Unsupported)
    assert refusal.knob == knob


def test_every_block_size_it_declares_can_be_allocated() -> None:
    device = CPU.open(Rank())
    for size in CPU.capabilities().block_sizes:
        store = device.allocate_kv(KVLayout(size, 1, 1, 4, CPU.capabilities().kv_dtypes[0]), 2)
        assert store.read_block(1).shape == (2, 1, size, 1, 4)
        store.close()
    assert 0 < device.memory().free <= device.memory().total
    device.close()


def test_it_imports_the_public_packages_of_octavo_alone() -> None:
    package = Path(octavo_cpu.__file__).parent
    imported: set[str] = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module))
    of_octavo = {name for name in imported if name.partition(".")[0] == "octavo"}
    assert of_octavo
    assert all(name in PUBLIC or name.startswith(tuple(f"{p}." for p in PUBLIC)) for name in of_octavo), of_octavo


def test_its_report_says_what_it_chose_and_what_it_measured() -> None:
    device = CPU.open(Rank(threads=1))
    report = device.report()
    device.close()
    assert report["threads"].startswith("1 thread,")
    assert report["kernels"] in CPU.probe().reason
    assert report["instructions"] == INSTRUCTIONS[report["kernels"]]
    for ceiling in ("read bandwidth", "int8 peak", "bf16 peak"):
        assert float(report[ceiling].split()[0].replace(",", "")) > 0
