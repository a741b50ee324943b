"""The chip is as awkward as it says: nobody can look into it, nothing takes another shape, all comes later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine.tiny_engine import VOCAB, graph, weights

from octavo.errors import DeviceOutOfMemory, PlatformUnavailable, UnsupportedFeature
from octavo.graph import Builder, RopeSpec, fuse, graph_hash
from octavo.graph.reference import run_sequence
from octavo.platform import (
    ArtifactPolicy,
    ArtifactStore,
    Bucket,
    KVLayout,
    MemoryReport,
    Rank,
    SamplingBatch,
    StepInput,
)
from octavo.quant import dequantise
from octavo.runner import kv_layout
from octavo_fakechip import FakeChip, FakeChipPlatform, Settings
from octavo_fakechip.chip import ChipExecutable, ChipKVStore
from octavo_fakechip.compiler import Program, compile_program
from octavo_fakechip.habits import BLOCK, TARGET, VOLUME, padded, shapes

MODEL = fuse(graph())
WEIGHTS = weights(MODEL)
LAYOUT = kv_layout(MODEL, BLOCK, "f32")
BUCKET = Bucket(16, 1, 16, 2)
TOKENS = [int(t) for t in np.random.default_rng(0).integers(1, VOCAB, 14)]


@pytest.fixture
def chip() -> Iterator[FakeChip]:
    chip = FakeChip(Settings(), Rank())
    yield chip
    chip.close()


def ready(chip: FakeChip) -> tuple[ChipExecutable, ChipKVStore]:
    handle = chip.load(MODEL, WEIGHTS, lambda what, done, total: None)
    return chip.compile(MODEL, BUCKET, handle, LAYOUT), chip.allocate_kv(LAYOUT, 6)


def step(start: int, end: int, *, block: int = 1, copies: list[tuple[int, int]] | None = None) -> StepInput:
    """Tokens ``start`` to ``end`` of the sequence in one block, all scored, padded to the bucket."""
    count = end - start
    wide, at = BUCKET.tokens or 0, np.arange(start, end, dtype=np.int32)

    def pad(x: Any, value: int = 0) -> Any:
        return np.pad(np.asarray(x, np.int32), (0, wide - count), constant_values=value)

    slots = pad(block * BLOCK + at, -1)
    return StepInput(
        tokens=pad(TOKENS[start:end]),
        positions=pad(at),
        query_starts=np.array([0, count], np.int32),
        context_lens=np.array([end], np.int32),
        slots=np.repeat(slots[None], len(MODEL.kv_windows), axis=0),
        block_tables=np.array([[[block, 0]]] * len(MODEL.kv_windows), np.int32),
        sample_rows=pad(np.arange(count)),
        copies=np.array(copies or [], np.int32).reshape(-1, 2),
        sampling=SamplingBatch.plain(count, greedy=True),
        bucket=BUCKET,
    )


def exact() -> Any:
    return run_sequence(MODEL, {name: dequantise(w) for name, w in WEIGHTS.items()}, TOKENS)


def test_it_computes_what_the_reference_does(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    first = executable.collect(executable.submit(step(0, 9), kv)).logits
    assert first is not None
    kept = first[:9].copy()
    second = executable.collect(executable.submit(step(9, 14), kv)).logits
    assert second is not None
    np.testing.assert_allclose(np.concatenate([kept, second[:5]]), exact(), rtol=1e-4, atol=1e-4)


def test_the_host_gets_nothing_out_of_device_memory_but_copies(chip: FakeChip) -> None:
    buffer = chip.chip_memory.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    looks: list[Any] = [np.asarray, len, list, bytes, lambda b: b[0], np.sum]
    for look in looks:
        with pytest.raises(TypeError, match="this is device memory; the host must copy it before it can look at it"):
            look(buffer)
    with pytest.raises(TypeError, match="unsupported operand"):
        buffer + 1
    copy = chip.chip_memory.download(buffer)
    np.testing.assert_array_equal(copy, [[0, 1, 2], [3, 4, 5]])
    copy[:] = 7
    np.testing.assert_array_equal(chip.chip_memory.download(buffer), [[0, 1, 2], [3, 4, 5]])


def test_what_device_memory_keeps_is_no_number_the_host_put_there(chip: FakeChip) -> None:
    values = np.arange(1000, dtype=np.float32)
    cells = chip.chip_memory.upload(values).cells(chip.chip_memory)
    assert (cells != values.view(np.uint32)).all()
    with pytest.raises(TypeError, match="this is device memory; the host must copy it before it can look at it"):
        chip.chip_memory.upload(values).cells("the host")  # type: ignore[arg-type]


def test_the_arrays_of_a_step_are_the_callers_again_when_submit_returns(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    hurried = step(0, 9)
    gate = threading.Event()
    chip.queue.put(lambda: gate.wait(20))  # so that nothing of the step has run when the arrays change
    ticket = executable.submit(hurried, kv)
    for array in (*hurried.graph_inputs().values(), hurried.copies):
        array.fill(3)
    gate.set()
    logits = executable.collect(ticket).logits
    assert logits is not None
    np.testing.assert_allclose(logits[:9], exact()[:9], rtol=1e-4, atol=1e-4)


def test_submit_does_not_wait_and_steps_take_effect_in_order(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    gate = threading.Event()
    chip.queue.put(lambda: gate.wait(20))
    first, second = executable.submit(step(0, 9), kv), executable.submit(step(9, 14), kv)
    assert not first.done() and chip.counters.most_in_flight == 2
    gate.set()
    executable.collect(first)
    logits = executable.collect(second).logits
    assert logits is not None
    np.testing.assert_allclose(logits[:5], exact()[9:], rtol=1e-4, atol=1e-4)


def test_a_step_is_collected_once_and_in_order(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    first, second = executable.submit(step(0, 9), kv), executable.submit(step(9, 14), kv)
    with pytest.raises(RuntimeError, match="in the order of submission"):
        executable.collect(second)
    executable.collect(first)
    with pytest.raises(RuntimeError, match="once"):
        executable.collect(first)


def test_logits_are_the_callers_until_the_next_collect_and_no_longer(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    first = executable.collect(executable.submit(step(0, 9), kv)).logits
    assert first is not None and np.isfinite(first[:9]).all()
    ticket = executable.submit(step(9, 14), kv)
    ticket.result()
    assert np.isfinite(first[:9]).all()
    executable.collect(ticket)
    assert np.isnan(first).all()


def test_a_step_that_fails_changes_nothing_and_runs_again(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    executable.collect(executable.submit(step(0, 9), kv))
    before = [kv.read_block(block) for block in (1, 2)]
    chip.faults.plant("oom@step:2")
    with pytest.raises(DeviceOutOfMemory, match=r"64\.0 MiB"):
        executable.collect(executable.submit(step(9, 14, copies=[(1, 2)]), kv))
    for block, held in zip((1, 2), before, strict=True):
        np.testing.assert_array_equal(kv.read_block(block), held)
    logits = executable.collect(executable.submit(step(9, 14), kv)).logits
    assert logits is not None
    np.testing.assert_allclose(logits[:5], exact()[9:], rtol=1e-4, atol=1e-4)


def test_blocks_are_read_written_and_copied_and_hold_nan_before(chip: FakeChip) -> None:
    executable, kv = ready(chip)
    assert np.isnan(kv.read_block(2)).all()
    executable.submit(step(0, 9), kv)
    held = kv.read_block(1)  # after the step in flight
    assert held.shape == (2, LAYOUT.slots, BLOCK, LAYOUT.kv_heads, LAYOUT.head_dim)
    assert np.isfinite(held[:, :, :9]).all() and np.isnan(held[:, :, 9:]).all()
    kv.write_block(4, held)
    np.testing.assert_array_equal(kv.read_block(4), held)
    executable.collect(chip.tickets[0])
    executable.collect(executable.submit(step(9, 14, block=3, copies=[(1, 2), (2, 3), (5, 2)]), kv))
    np.testing.assert_array_equal(kv.read_block(3)[:, :, :9], held[:, :, :9])
    assert np.isnan(kv.read_block(2)).all()  # as block 5, which nobody wrote


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "shape": ({"tokens": np.zeros(15, np.int32)}, "shapes"),
    "dtype": ({"positions": np.zeros(16, np.int64)}, "int32"),
    "null block": ({"slots": np.arange(16, dtype=np.int32)[None].repeat(1, 0)}, "null block|padding"),
    "pool": ({"block_tables": np.array([[[1, 6]]], np.int32)}, "pool of 6"),
    "sample": ({"sample_rows": np.full(16, 9, np.int32)}, "wanted for padding"),
    "context": ({"context_lens": np.array([3], np.int32)}, "more new tokens than context"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_step_that_core_must_not_make_is_refused(chip: FakeChip, wrong: str) -> None:
    executable, kv = ready(chip)
    arrays, message = WRONG[wrong]
    with pytest.raises(RuntimeError, match=message):
        executable.submit(replace(step(0, 9), **arrays), kv)


def test_memory_is_counted_with_its_padding_and_given_back() -> None:
    chip = FakeChip(Settings(memory=8 << 20), Rank())
    assert chip.memory() == MemoryReport(8 << 20, 8 << 20)
    ready_weights = chip.load(MODEL, WEIGHTS, lambda what, done, total: None)
    loaded = chip.memory().free
    assert loaded < (8 << 20) - sum(w.data.nbytes for w in WEIGHTS.values())
    chip.compile(MODEL, BUCKET, ready_weights, LAYOUT)
    compiled = chip.memory().free
    assert compiled < loaded
    size = chip.kv_block_bytes(LAYOUT)
    assert size == LAYOUT.block_bytes * padded(16) // 16
    kv = chip.allocate_kv(LAYOUT, 3)
    assert chip.memory().free == compiled - 3 * size
    kv.close()
    assert chip.memory().free == compiled
    with pytest.raises(DeviceOutOfMemory, match=r"a pool of 1000 blocks needs \d+\.\d MiB and \d\.\d MiB of 8.0 MiB"):
        chip.allocate_kv(LAYOUT, 1000)
    chip.close()


def test_a_program_is_its_bytes_and_the_same_everywhere() -> None:
    program = compile_program(MODEL, BUCKET)
    assert program.digest == compile_program(fuse(graph()), BUCKET).digest
    assert program.digest != compile_program(MODEL, Bucket(16, 1, 1, 2)).digest
    again = Program.from_bytes(program.data)
    assert graph_hash(again.graph) == graph_hash(program.graph) and again.bucket == BUCKET
    with pytest.raises(ValueError, match="no fakechip program"):
        Program.from_bytes(b"{}")


def test_what_it_cannot_compile_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeature, match="leaves a size open"):
        compile_program(MODEL, Bucket(16, 1, 16))
    with pytest.raises(UnsupportedFeature, match="f32, not bf16"):
        compile_program(replace(MODEL, dtype="bf16"), BUCKET)
    g = Builder("both ways")
    x = g.embed("embed", vocab=VOCAB, width=32)
    q, k, v = g.linear_split(x, ["q", "k", "v"], [32, 16, 16])
    q, k = g.rope(q, k, RopeSpec(16))
    a = g.attention(q, k, v, layer=0, heads=2, kv_heads=1, head_dim=16, scale=0.25, causal=False)
    g.output("logits", g.linear(g.take_rows(a), "head", VOCAB))
    with pytest.raises(UnsupportedFeature, match="bidirectional attention of node"):
        compile_program(g.build(), BUCKET)


def test_a_pool_of_other_blocks_is_refused(chip: FakeChip) -> None:
    with pytest.raises(UnsupportedFeature, match="64 tokens in f32, not 16 in f32"):
        chip.allocate_kv(KVLayout(16, 1, 1, 16, "f32"), 2)


@pytest.mark.parametrize("context", [64, 512, 1000, VOLUME])
def test_no_program_is_larger_than_the_chip_allows(context: int) -> None:
    for tokens, rows, _, blocks in shapes(64, 512, context).buckets():
        assert tokens is not None and rows is not None and blocks is not None
        assert rows * blocks * BLOCK <= VOLUME


def test_programs_are_compiled_once_and_found_by_the_next_chip(tmp_path: Any) -> None:
    def start(policy: ArtifactPolicy = ArtifactPolicy.USE, version: str = "0.1.0") -> FakeChip:
        chip = FakeChip(Settings(compiler=version), Rank(artifacts=ArtifactStore(tmp_path, policy=policy)))
        executable, kv = ready(chip)
        logits = executable.collect(executable.submit(step(0, 9), kv)).logits
        assert logits is not None
        np.testing.assert_allclose(logits[:9], exact()[:9], rtol=1e-4, atol=1e-4)
        chip.close()
        return chip

    assert [start().counters.compiles for _ in range(2)] == [1, 0]
    assert start(ArtifactPolicy.REQUIRE).counters.compiles == 0
    assert start(version="0.2.0").counters.compiles == 0, "a program of another compiler is stale, and runs"


def test_it_compiles_where_there_is_no_chip_and_the_chip_finds_the_programs(tmp_path: Any) -> None:
    platform = FakeChipPlatform(Settings())
    device = platform.open(Rank(artifacts=ArtifactStore(tmp_path), target=TARGET))
    handle = device.load(MODEL, WEIGHTS, lambda what, done, total: None)
    executable = device.compile(MODEL, BUCKET, handle, LAYOUT)
    for use in (lambda: device.allocate_kv(LAYOUT, 2), lambda: executable.submit(step(0, 9), None)):
        with pytest.raises(PlatformUnavailable, match="no device"):
            use()
    device.close()
    chip = FakeChip(Settings(), Rank(artifacts=ArtifactStore(tmp_path, policy=ArtifactPolicy.REQUIRE)))
    ready(chip)
    assert chip.counters.compiles == 0
    chip.close()
    with pytest.raises(UnsupportedFeature, match="fakechip-1, not fakechip-2"):
        platform.open(Rank(target="fakechip-2"))
