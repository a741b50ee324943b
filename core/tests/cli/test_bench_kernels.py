"""``octavo bench kernels``: the steps it builds, the tables it prints, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from engine.tiny_engine import VOCAB, graph, weights
from rich.console import Console
from typer.testing import CliRunner

from octavo.cli.bench.kernels import kernel_table, step_table
from octavo.cli.bench.step import StepShape, build_step
from octavo.cli.main import app
from octavo.errors import ConfigError, UnsupportedFeature
from octavo.graph import Graph
from octavo.platform import (
    CONTRACT,
    REFERENCE_CAPABILITIES,
    Bucket,
    KernelTime,
    KVLayout,
    MemoryReport,
    PartTime,
    PlatformInfo,
    Probe,
    Rank,
    ReferenceDevice,
    StepTimes,
)
from octavo.platform.discovery import Found, Registry

PRODUCT = KernelTime("matmul q9", "8x4, 2 rows", 1, 2e-6, 1e-6, 4000.0, 128.0, "int8", 4e9, 1e9)
NORM = KernelTime("norm", "4, 2 rows", 1, 1e-6, 1e-6, 64.0, 0.0, "f32", None, None)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("prefill:1024", StepShape(1, 1024, 1024)),
        ("prefill:4x512", StepShape(4, 512, 512)),
        ("decode:256", StepShape(1, 1, 256)),
        ("decode:32x256", StepShape(32, 1, 256)),
    ],
)
def test_a_step_is_said_in_a_word(text: str, shape: StepShape) -> None:
    assert StepShape.parse(text) == shape


@pytest.mark.parametrize("text", ["", "decode", "decode:0", "decode:0x5", "prefill:3x", "mixed:3", "decode:3x4x5"])
def test_any_other_word_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="decode:32x256"):
        StepShape.parse(text)


@pytest.mark.parametrize("text", ["prefill:9", "prefill:3x5", "decode:9", "decode:3x8"])
def test_a_step_runs_and_every_token_has_a_slot_of_its_own(text: str) -> None:
    shape, block = StepShape.parse(text), 4
    model = graph((None, 6))
    step = build_step(model, shape, block, Bucket())
    assert len(step.tokens) == shape.rows * shape.count == len(step.positions)
    slots = step.slots.ravel().tolist()
    assert len(set(slots)) == len(slots), "groups share the pool"
    for group, row in np.ndindex(*step.block_tables.shape[:2]):
        own = slice(*step.query_starts[row : row + 2])
        at = step.positions[own]
        assert at[-1] == shape.context - 1
        assert (step.slots[group, own] == step.block_tables[group, row, at // block] * block + at % block).all()
    device = ReferenceDevice(lambda: MemoryReport(1 << 30, 1 << 30))
    handle = device.load(model, weights(model), lambda *_: None)
    layout = KVLayout(block, model.kv_slots, 1, 16, "f32")
    store = device.allocate_kv(layout, 1 + step.block_tables.size)
    logits = device.compile(model, Bucket(), handle, layout).submit(step, store).logits
    assert logits is not None
    assert logits.shape == (shape.rows, VOCAB)
    assert np.isfinite(logits).all()


@dataclass
class FakeDevice:
    """Has measured already."""

    closed: bool = False
    asked: list[tuple[Graph | None, str]] = field(default_factory=list)

    def kernel_times(self, graph: Graph | None, only: str) -> Iterator[KernelTime]:
        self.asked.append((graph, only))
        yield from (k for k in (PRODUCT, NORM) if only in k.kernel)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakePlatform:
    device: FakeDevice
    contract: dict[str, str]

    @property
    def info(self) -> PlatformInfo:
        return PlatformInfo("acme", "Acme", "1.0", "accelerator", self.contract)

    def capabilities(self) -> Any:
        return REFERENCE_CAPABILITIES

    def open(self, rank: Rank) -> FakeDevice:
        return self.device


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> FakePlatform:
    platform = FakePlatform(FakeDevice(), dict(CONTRACT))
    found = Found("acme", "octavo-acme 1.0", Probe(True, "here"), platform, "accelerator")  # type: ignore[arg-type]
    monkeypatch.setattr("octavo.platform.discovery.discover", lambda: Registry((found,), ()))
    return platform


def test_the_table_holds_kernels_against_the_ceilings(acme: FakePlatform) -> None:
    result = CliRunner().invoke(app, ["bench", "kernels"], env={"COLUMNS": "100"}, catch_exceptions=False)
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert "read 4.0 GB/s, int8 1 Gop/s" in result.stdout
    assert lines["matmul"][-6:] == ["2.0", "1.0", "2.0", "0.1", "50%", "6%"]
    assert lines["norm"][-3:] == ["-", "-", "-"], "no operations, and bytes from a cache"
    assert acme.device.closed


def test_json_has_the_records_and_their_shares(acme: FakePlatform) -> None:
    result = CliRunner().invoke(app, ["bench", "kernels", "--json", "--only", "matmul"], catch_exceptions=False)
    [record] = json.loads(result.stdout)["kernels"]
    assert record["operations"] == 128
    assert record["bandwidth_share"] == 0.5
    assert acme.device.asked == [(None, "matmul")]


def test_a_platform_without_the_facet_is_told_apart(acme: FakePlatform) -> None:
    del acme.contract["bench"]
    with pytest.raises(UnsupportedFeature, match="acme: it does not measure its kernels"):
        CliRunner().invoke(app, ["bench", "kernels"], catch_exceptions=False)


def test_a_name_that_no_kernel_has_is_an_error(acme: FakePlatform) -> None:
    with pytest.raises(ConfigError, match="--only"):
        CliRunner().invoke(app, ["bench", "kernels", "--only", "matmull"], catch_exceptions=False)


def test_a_step_without_a_model_is_refused(acme: FakePlatform) -> None:
    with pytest.raises(ConfigError, match="bench kernels MODEL --step decode:4"):
        CliRunner().invoke(app, ["bench", "kernels", "--step", "decode:4"], catch_exceptions=False)


def test_the_step_s_table_says_what_is_left_over_and_what_was_waited_for() -> None:
    parts = (PartTime("linear a b", 6e-3, 1e-3, 7e6, 14e6, 3.5e-3), PartTime("norm", 1e-3, 1e-3, 1e6, 0.0, None))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(step_table("a step", StepTimes(10e-3, 9e-3, parts)))
    lines = {line.strip()[:8].strip(): line.split() for line in captured.get().splitlines()}
    assert lines["linear a"][-7:] == ["7.000", "70%", "1.000", "1.0", "2.0", "3.500", "50%"]
    assert lines["norm"][-2:] == ["-", "-"]
    assert lines["outside"][4:6] == ["1.000", "10%"]
    assert lines["the step"][2:5] == ["10.000", "100%", "2.000"]


def test_tables_fit_into_100_columns() -> None:
    longest = KernelTime("matmul+argmax q8_0", "128256x4096, 256 rows", 2, 0.1, 0.1, 1e9, 1e12, "int8", 1e11, 1e13)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(kernel_table([longest]))
    assert "128256x4096, 256 rows" in captured.get()
    assert "of peak" in captured.get()
