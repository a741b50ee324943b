"""The reference device keeps the device's contract: the pool, the step, memory while loading, refusals."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import PlatformError, UnsupportedFeature
from octavo.graph import OPS, Builder, Call, Graph, RopeSpec, fuse
from octavo.platform import (
    REFERENCE_CAPABILITIES,
    Bucket,
    DeviceOutOfMemory,
    Executable,
    KVLayout,
    KVStore,
    MemoryReport,
    ReferenceDevice,
    ReferenceExecutable,
    ReferenceKVStore,
    SamplingBatch,
    StepInput,
)
from octavo.quant import F32, FORMATS, WeightTensor
from octavo.runner.batch import pad

VOCAB, WIDTH, HEADS, DIM, BLOCK = 32, 16, 2, 8, 4
LAYOUT = KVLayout(BLOCK, slots=2, kv_heads=1, head_dim=DIM, dtype="f32")
NOTHING = np.zeros(0, np.int32)


def quiet(what: str, done: int, total: int) -> None:
    pass


def model() -> Graph:
    """Two layers, the second with a window: two KV groups of one layer."""
    g = Builder("two layers")
    h = g.embed("embed", vocab=VOCAB, width=WIDTH)
    for layer, window in enumerate((None, 6)):
        with g.scope(f"layers.{layer}"):
            x = g.rms_norm(h, "norm", eps=1e-5)
            q, k, v = g.linear_split(
                x, ["q", "k", "v"], [HEADS * DIM, DIM, DIM], axes=["heads", "kv_heads", "kv_heads"]
            )
            q, k = g.rope(q, k, RopeSpec(head_dim=DIM))
            a = g.attention(q, k, v, layer=layer, heads=HEADS, kv_heads=1, head_dim=DIM, scale=DIM**-0.5, window=window)
            h = g.add(h, g.linear(a, "o", WIDTH, axes=("embed", "heads")))
    g.output("logits", g.linear(g.take_rows(h), "embed", VOCAB, axes=("vocab", "embed")))
    return fuse(g.build())


def weight(values: np.ndarray) -> WeightTensor:
    stored = np.ascontiguousarray(values, "<f4")
    return WeightTensor(F32, values.shape, stored.view(np.uint8).reshape(*values.shape[:-1], -1))


def weights(graph: Graph) -> dict[str, WeightTensor]:
    rng = np.random.default_rng(0)
    return {name: weight(rng.standard_normal(spec.shape) / 4) for name, spec in graph.weights.items()}


def device() -> ReferenceDevice:
    return ReferenceDevice(lambda: MemoryReport(2**30, 2**29))


def sampling() -> SamplingBatch:
    """No draws: these tests look at the logits."""
    f, i = np.zeros(0, np.float32), NOTHING
    return SamplingBatch(
        row=i, target=i, temperature=f, top_k=i, top_p=f, min_p=f, repetition=f, presence=f, frequency=f,
        seed=np.zeros(0, np.uint64), sample_index=i, position=i, logprobs=i, bias=(i, i, f),
        history=(np.zeros(1, np.int32), i, i), plain_greedy=True,
    )  # fmt: skip


def step(rows: list[tuple[list[int], int, list[list[int]]]], copies: list[tuple[int, int]] | None = None) -> StepInput:
    """A step of rows (new tokens, tokens in the cache, a block table per group); logits for every new token."""
    counts = np.array([len(tokens) for tokens, _, _ in rows])
    positions = np.concatenate([np.arange(len(tokens)) + cached for tokens, cached, _ in rows])
    owner = np.repeat(np.arange(len(rows)), counts)
    width = max(len(table) for _, _, tables in rows for table in tables)
    tables = np.zeros((2, len(rows), width), np.int32)
    for row, (_, _, of_row) in enumerate(rows):
        for group, table in enumerate(of_row):
            tables[group, row, : len(table)] = table
    return StepInput(
        tokens=np.concatenate([tokens for tokens, _, _ in rows]).astype(np.int32),
        positions=positions.astype(np.int32),
        query_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        context_lens=np.array([len(tokens) + cached for tokens, cached, _ in rows], np.int32),
        slots=(tables[:, owner, positions // BLOCK] * BLOCK + positions % BLOCK).astype(np.int32),
        block_tables=tables,
        sample_rows=np.arange(counts.sum(), dtype=np.int32),
        copies=np.array(copies or [], np.int32).reshape(-1, 2),
        sampling=sampling(),
        bucket=Bucket(),
    )


def logits(executable: Executable, of: StepInput, kv: KVStore) -> np.ndarray:
    output = executable.collect(executable.submit(of, kv))
    assert output.logits is not None
    assert output.logits.dtype == np.float32
    return output.logits.copy()


@pytest.fixture
def executable() -> Executable:
    graph, dev = model(), device()
    return dev.compile(graph, Bucket(), dev.load(graph, weights(graph), quiet), LAYOUT)


@pytest.fixture
def kv() -> ReferenceKVStore:
    return device().allocate_kv(replace(LAYOUT, slots=model().kv_slots), 12)


# -- the block pool ---------------------------------------------------------------------------------------------


def test_a_block_is_read_as_it_was_written_and_its_neighbours_are_untouched() -> None:
    store = device().allocate_kv(LAYOUT, 4)
    block = np.random.default_rng(1).standard_normal((2, 2, BLOCK, 1, DIM)).astype(np.float32)
    store.write_block(2, block)
    np.testing.assert_array_equal(store.read_block(2), block)
    assert not store.read_block(1).any()
    assert not store.read_block(3).any()


def test_a_block_that_was_read_is_the_caller_s_own() -> None:
    store = device().allocate_kv(LAYOUT, 2)
    store.read_block(1)[:] = 5
    assert not store.read_block(1).any()


def test_the_bytes_of_a_block_count_keys_and_values_of_every_slot() -> None:
    assert LAYOUT.block_bytes == 2 * 2 * BLOCK * DIM * 4 == device().allocate_kv(LAYOUT, 1).read_block(0).nbytes
    assert [replace(LAYOUT, dtype=d).block_bytes for d in ("bf16", "f16", "int8")] == [256, 256, 128]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is read from /proc")
def test_a_pool_takes_memory_only_where_it_is_written() -> None:
    layout = replace(LAYOUT, block_size=64, kv_heads=8, head_dim=64)
    before = resident_bytes()
    store = device().allocate_kv(layout, 2**30 // layout.block_bytes)
    store.write_block(7, np.ones((2, 2, 64, 8, 64), np.float32))
    assert resident_bytes() - before < 2**30 // 16
    assert store.read_block(7).all()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_pool_larger_than_the_memory_is_refused_with_both_sizes() -> None:
    with pytest.raises(
        DeviceOutOfMemory,
        match=r"needs \d+\.\d\d GiB and there are \d+\.\d\d GiB of memory; lower --memory-utilization",
    ):
        device().allocate_kv(LAYOUT, 2**50)


def test_a_pool_that_the_system_refuses_is_out_of_memory_with_its_size() -> None:
    with pytest.raises(DeviceOutOfMemory, match=r"KV pool of \d+\.\d\d GiB; lower --memory-utilization"):
        ReferenceKVStore(LAYOUT, 2**50)


def test_a_closed_pool_holds_no_memory() -> None:
    tracemalloc.start()
    try:
        store = device().allocate_kv(LAYOUT, 2**14)
        held = tracemalloc.get_traced_memory()[0]
        store.close()
        assert tracemalloc.get_traced_memory()[0] < held - 2**13 * LAYOUT.block_bytes
    finally:
        tracemalloc.stop()


# -- the step ----------------------------------------------------------------------------------------------------

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]


def test_a_prompt_in_chunks_over_scattered_blocks_gives_the_logits_of_one_step(
    executable: Executable, kv: ReferenceKVStore
) -> None:
    whole = logits(executable, step([(PROMPT, 0, [[1, 2, 3], [4, 5, 6]])]), kv)
    tables = [[9, 7, 8], [11, 10, 1]]
    parts = [logits(executable, step([(PROMPT[a:b], a, tables)]), kv) for a, b in ((0, 3), (3, 9), (9, 10))]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-5, atol=1e-5)


def test_rows_in_one_step_do_not_see_each_other(executable: Executable, kv: ReferenceKVStore) -> None:
    alone = logits(executable, step([(PROMPT, 0, [[1, 2, 3], [4, 5, 6]])]), kv)
    other = ([7, 7], 0, [[7], [8]])
    together = logits(executable, step([other, (PROMPT, 0, [[1, 2, 3], [4, 5, 6]])]), kv)
    np.testing.assert_allclose(together[2:], alone, rtol=1e-5, atol=1e-5)


def test_a_step_padded_to_its_bucket_gives_the_same_logits(executable: Executable, kv: ReferenceKVStore) -> None:
    tables = [[1, 2, 3], [4, 5, 6]]
    logits(executable, step([(PROMPT[:6], 0, tables)]), kv)
    rows = [(PROMPT[6:], 6, tables), ([8], 0, [[7], [8]])]
    exact = logits(executable, step(rows), kv)
    padded = pad(step(rows), Bucket(tokens=16, rows=4, samples=8, blocks=5))
    assert (len(padded.tokens), len(padded.context_lens), padded.block_tables.shape) == (16, 4, (2, 4, 5))
    before = [kv.read_block(b) for b in range(12)]
    result = logits(executable, padded, kv)
    assert result.shape == (8, VOCAB)
    np.testing.assert_allclose(result[: len(exact)], exact, rtol=1e-5, atol=1e-5)
    for block, held in enumerate(before):
        np.testing.assert_allclose(kv.read_block(block), held, rtol=1e-5, atol=1e-5)


def test_blocks_are_copied_one_after_the_other_before_anything_is_written(
    executable: Executable, kv: ReferenceKVStore
) -> None:
    shape = (2, kv.layout.slots, BLOCK, 1, DIM)
    for block in (1, 2, 3):
        kv.write_block(block, np.full(shape, block, np.float32))
    logits(executable, step([([5], 0, [[1], [9]])], copies=[(2, 3), (1, 2), (3, 10)]), kv)
    assert (kv.read_block(3) == 2).all()
    assert (kv.read_block(2) == 1).all(), "the copy came before the step wrote block 1"
    assert (kv.read_block(10) == 2).all(), "the third copy saw what the first had made"
    assert (kv.read_block(1)[:, :, 1:] == 1).all()
    assert not (kv.read_block(1)[:, :, 0] == 1).any(), "the step wrote its token"


def test_what_a_freed_block_holds_never_comes_through(executable: Executable, kv: ReferenceKVStore) -> None:
    clean = logits(executable, step([(PROMPT[:5], 0, [[1, 2], [3, 4]])]), kv)
    for block in range(12):
        kv.write_block(block, np.full((2, kv.layout.slots, BLOCK, 1, DIM), np.nan, np.float32))
    np.testing.assert_array_equal(logits(executable, step([(PROMPT[:5], 0, [[1, 2], [3, 4]])]), kv), clean)


# -- loading -----------------------------------------------------------------------------------------------------


class Stored(Mapping[str, WeightTensor]):
    """A checkpoint whose tensors exist only while somebody holds them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __getitem__(self, name: str) -> WeightTensor:
        return weight(np.ones(self._graph.weights[name].shape, np.float32))

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.weights)

    def __len__(self) -> int:
        return len(self._graph.weights)


def test_loading_takes_the_float32_size_and_one_tensor_more() -> None:
    g = Builder("wide")
    h = g.embed("embed", vocab=8, width=256)
    for layer in range(8):
        h = g.linear(h, f"layers.{layer}", 256, axes=("mlp", "embed"))
    g.output("logits", g.take_rows(h))
    graph = g.build()
    one = 256 * 256 * 4
    total = 8 * one + 8 * 256 * 4
    tracemalloc.start()
    try:
        handle = device().load(graph, Stored(graph), quiet)
        held, peak = tracemalloc.get_traced_memory()
        compiled = device().compile(graph, Bucket(), handle, LAYOUT)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total <= held < total + one // 2
    assert peak < total + 1.25 * one, "one stored tensor at a time"
    assert after < held + one // 2, "compiling copies no weight"
    assert compiled is not None


def test_loading_reports_progress_to_its_end() -> None:
    seen: list[tuple[str, int, int]] = []
    graph = model()
    device().load(graph, weights(graph), lambda *args: seen.append(args))
    count = len(graph.weights)
    assert [done for _, done, _ in seen] == list(range(count + 1))
    assert {(what, total) for what, _, total in seen} == {("loading weights", count)}


# -- what it says of itself ---------------------------------------------------------------------------------------


def test_it_declares_the_whole_dialect_and_every_weight_format() -> None:
    collectives = {"all_reduce", "all_gather"}  # it spans no ranks
    assert frozenset(OPS) - collectives == REFERENCE_CAPABILITIES.ops
    assert frozenset(FORMATS) == REFERENCE_CAPABILITIES.weight_formats
    assert REFERENCE_CAPABILITIES.dtypes == REFERENCE_CAPABILITIES.kv_dtypes == ("f32",)


def test_the_executable_alone_refuses_an_unknown_op() -> None:
    graph = model()
    foreign = replace(graph, nodes=(replace(graph.nodes[0], op="divine"), *graph.nodes[1:]))
    with pytest.raises(UnsupportedFeature, match="op divine"):
        ReferenceExecutable(foreign, {})


def test_an_unknown_op_is_refused_by_name_before_anything_runs() -> None:
    graph = model()
    foreign = replace(graph.nodes[1], op="divine", scope="layers.0")
    with pytest.raises(UnsupportedFeature, match=r"op divine of node layers\.0 .* is not in the dialect") as caught:
        device().compile(replace(graph, nodes=(graph.nodes[0], foreign)), Bucket(), {}, LAYOUT)
    assert caught.value.feature == "op divine"


def test_what_it_does_not_declare_it_refuses_rather_than_run_it_in_float32() -> None:
    with pytest.raises(UnsupportedFeature, match="kv_cache_dtype bfloat16"):
        device().allocate_kv(replace(LAYOUT, dtype="bf16"), 2)
    with pytest.raises(UnsupportedFeature, match="dtype bfloat16"):
        device().load(replace(model(), dtype="bf16"), {}, quiet)


def test_memory_health_sampler_and_close() -> None:
    reports = iter([MemoryReport(100, 60), MemoryReport(100, 40)])
    dev = ReferenceDevice(lambda: next(reports))
    assert [dev.memory().free, dev.memory().free] == [60, 40], "asked anew each time"
    assert dev.health() is None
    assert dev.sampler() is None, "the host samples"
    dev.close()


# -- kernels of a plugin's own ---------------------------------------------------------------------


def test_a_kernel_runs_in_place_of_the_reference_s_and_the_rest_stays(kv: ReferenceKVStore) -> None:
    seen = []

    def norm(call: Call) -> tuple[np.ndarray, ...]:
        seen.append(call.number("eps"))
        return OPS["rms_norm"].reference(call)

    def run(dev: ReferenceDevice) -> np.ndarray:
        graph = model()
        executable = dev.compile(graph, Bucket(), dev.load(graph, weights(graph), quiet), LAYOUT)
        return logits(executable, step([(PROMPT, 0, [[1, 2, 3], [4, 5, 6]])]), kv)

    own = ReferenceDevice(lambda: MemoryReport(2**30, 2**29), {"rms_norm": norm})
    np.testing.assert_array_equal(run(own), run(device()))
    assert seen == [1e-5, 1e-5]  # once for each layer
    assert own.report()["own kernels"] == "rms_norm"
    assert "rms_norm" not in own.report()["reference kernels"]


def test_a_kernel_of_an_op_that_there_is_not_is_refused() -> None:
    with pytest.raises(PlatformError, match="there is no op rms to have a kernel for; ops are map_ids"):
        ReferenceDevice(lambda: MemoryReport(2**30, 2**29), {"rms": OPS["rms_norm"].reference})
