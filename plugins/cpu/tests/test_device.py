"""The native runtime on whole models: near the reference, and the same bits whatever is computed beside a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from models.quantised import KINDS, quantised_folder
from models.tiny import FAMILIES, random_tokens, tiny_checkpoint, tiny_gguf

from octavo.errors import ConfigError, DeviceOutOfMemory, UnsupportedFeature
from octavo.graph import Builder, Graph, RopeSpec, fuse
from octavo.graph.reference import run_sequence, sequence_inputs
from octavo.models import Model, load_model
from octavo.platform import Bucket, KVLayout, MemoryReport, SamplingBatch, StepInput
from octavo.quant import F32, WeightTensor, dequantise
from octavo_cpu import refinement
from octavo_cpu.binding import load
from octavo_cpu.device import CpuDevice
from octavo_cpu.executable import NativeExecutable
from octavo_cpu.kv_store import NativeKVStore
from octavo_cpu.lower import INT8, lower
from octavo_cpu.threads import Threads

BLOCK = 16
NO_COPIES = np.zeros((0, 2), np.int32)


def ignore(what: str, done: int, total: int) -> None:
    """No progress wanted."""


class Native:
    """A model on a device of its own."""

    def __init__(
        self, model: Model, kernels: str = "", threads: int = 2, free: int = 1 << 32, cache: str = "bf16"
    ) -> None:
        self.graph = fuse(model.graph)
        self.device = CpuDevice(load(), lambda: MemoryReport(free, free), Threads(threads, (), 1), kernels)
        weights = {name: model.checkpoint.tensor(name) for name in self.graph.weights}
        handle = self.device.load(self.graph, weights, ignore)
        heads, dim = self.graph.kv[0].kv_heads, self.graph.kv[0].head_dim
        self.layout = KVLayout(BLOCK, self.graph.kv_slots, heads, dim, cache)
        self.executable: NativeExecutable = self.device.compile(self.graph, Bucket(), handle, self.layout)

    def store(self, blocks: int = 400) -> NativeKVStore:
        return self.device.allocate_kv(self.layout, blocks)

    def logits(self, tokens: Sequence[int], chunks: Sequence[int] = ()) -> npt.NDArray[np.float32]:
        """The logits at every position, computed in chunks of these sizes (and the rest)."""
        whole = sequence_inputs(self.graph, tokens, BLOCK)
        store, out, done = self.store(1 + int(whole["block_tables"].max())), [], 0
        for count in (*chunks, len(tokens) - sum(chunks)):
            part = slice(done, done + count)
            arrays = {
                "tokens": whole["tokens"][part],
                "positions": whole["positions"][part],
                "query_starts": np.array([0, count], np.int32),
                "context_lens": np.array([done + count], np.int32),
                "slots": whole["slots"][:, part],
                "block_tables": whole["block_tables"],
                "sample_rows": np.arange(count, dtype=np.int32),
            }
            out.append(self.step(arrays, store))
            done += count
        store.close()
        return np.concatenate(out)

    def step(self, arrays: dict[str, Any], store: NativeKVStore) -> npt.NDArray[np.float32]:
        sampling = SamplingBatch.plain(len(arrays["sample_rows"]), greedy=False)
        step = StepInput(**arrays, copies=NO_COPIES, sampling=sampling, bucket=Bucket())
        logits = self.executable.collect(self.executable.submit(step, store)).logits
        assert logits is not None
        return logits


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(tiny_checkpoint(request.param, tmp_path_factory.mktemp("float")))


@pytest.fixture(
    scope="module", params=["Q8_0", "Q4_0", "Q5_1", "int8", "awq-32", "gptq-128", "packed-128", "packed-64-zeros"]
)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in KINDS:
        return load_model(quantised_folder(KINDS[request.param], folder)[0])
    path = folder / "tiny.gguf"
    tiny_gguf(tiny_checkpoint("llama", folder), path, quantization=request.param)
    return load_model(path)


def exact(model: Model, tokens: Sequence[int]) -> npt.NDArray[np.floating[Any]]:
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    return run_sequence(model.graph, weights, tokens, np.float64)


def relative_error(ours: npt.NDArray[Any], oracle: npt.NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((ours - oracle) ** 2)) / oracle.std())


@pytest.mark.parametrize("kernels", ["", "generic"])
def test_float_models_are_as_near_the_oracle_as_a_bf16_cache_allows(model: Model, kernels: str) -> None:
    tokens = random_tokens(70, seed=1)
    error = relative_error(Native(model, kernels).logits(tokens), exact(model, tokens))
    assert error < 0.01, "keys, values, queries and weights of attention have eight bits of mantissa, all else has 24"


@pytest.mark.parametrize("kernels", ["", "generic"])
def test_an_int8_cache_costs_little_and_does_not_depend_on_how_a_sequence_is_cut(model: Model, kernels: str) -> None:
    tokens, native = random_tokens(70, seed=1), Native(model, kernels, cache="int8")
    whole = native.logits(tokens)
    assert relative_error(whole, Native(model, kernels).logits(tokens)) > 0, "it is another cache than bf16"
    assert relative_error(whole, exact(model, tokens)) < 0.015
    assert np.array_equal(native.logits(tokens, (3, 50, 1, 1)), whole)


@pytest.mark.parametrize("kernels", ["", "generic"])
def test_what_the_queries_of_a_prompt_share_of_an_int8_cache_ends_with_their_step(model: Model, kernels: str) -> None:
    """A part of 16 positions that one step has begun, the next one fills; each step of more than 256 tokens is two."""
    tokens, native = random_tokens(600, seed=2), Native(model, kernels, cache="int8")
    assert np.array_equal(native.logits(tokens, (250, 20, 329)), native.logits(tokens))


@pytest.mark.parametrize("kernels", ["", "generic"])
def test_quantized_models_are_as_near_the_oracle_as_int8_activations_allow(quantized: Model, kernels: str) -> None:
    tokens = random_tokens(70, seed=1)
    assert relative_error(Native(quantized, kernels).logits(tokens), exact(quantized, tokens)) < 0.04


def thresholds(graph: Graph) -> dict[str, set[float]]:
    """The thresholds of all values that are fed as int8: what the output matrix reads, what attention makes, others."""
    steps, found = lower(graph, refinement.refine_above()).steps, {"output": set(), "attention": set(), "others": set()}
    made_by = {buffer: step.op for step in steps for buffer in step.outputs if step.op == "attention"}
    for at, step in enumerate(steps):
        if step.feed != INT8:
            continue
        reader = next(later for later in steps[at + 1 :] if later.matrices)
        evened_out = step.op == "attention" or (step.op == "quantise" and step.inputs[0] in made_by)
        found["output" if reader.logits else "attention" if evened_out else "others"].add(step.refine)
    return found


@pytest.mark.parametrize(
    ("setting", "output", "attention", "others"),
    [
        ("none", np.inf, np.inf, np.inf),
        ("inf", refinement.OUTPUT_ABOVE, np.inf, np.inf),
        ("1.5", 0.0, np.inf, 1.5),
        ("0", 0.0, 0.0, 0.0),
    ],
)
def test_each_setting_refines_what_it_says(
    quantized: Model, monkeypatch: pytest.MonkeyPatch, setting: str, output: float, attention: float, others: float
) -> None:
    """The threshold of every value that is fed as int8, by what reads it or makes it."""
    monkeypatch.setenv(refinement.VARIABLE, setting)
    found = thresholds(fuse(quantized.graph))
    assert found["others"] == {others}
    assert found["attention"] == {attention}
    assert found["output"] <= {output}, "some output matrices are not quantized"


def test_refined_activations_come_nearer_the_oracle_the_more_are_refined(
    quantized: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, errors = random_tokens(70, seed=1), []
    oracle = exact(quantized, tokens)
    for threshold in ("none", "inf", "1", "0"):
        monkeypatch.setenv(refinement.VARIABLE, threshold)
        native = Native(quantized)
        logits = native.logits(tokens)
        errors.append(relative_error(logits, oracle))
        assert np.array_equal(native.logits(tokens, (1, 3, 40, 1)), logits), "a row does not depend on the others"
    assert errors[0] >= errors[1] > 1.2 * errors[2] > 1.2 * errors[3], "not all output matrices are quantized"
    assert errors[3] < 0.01, "what a bf16 cache costs is left"


@pytest.mark.parametrize("setting", ["-1", "nan", "much"])
def test_a_refinement_that_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(refinement.VARIABLE, setting)
    with pytest.raises(ConfigError, match=f"OCTAVO_CPU_REFINE is '{setting}'; give a number from 0"):
        refinement.refine_above()


@pytest.mark.parametrize("cache", ["bf16", "int8", "f32", "f16"])
def test_a_long_context_gives_the_same_bits_however_it_is_cut_and_shared_out(model: Model, cache: str) -> None:
    """Beyond 1,024 positions a row's attention is cut into chunks, which several threads take where queries are few."""
    tokens = random_tokens(2100, seed=4)
    one, two = Native(model, threads=1, cache=cache), Native(model, threads=2, cache=cache)
    tail = (2093, 1, 1, 2)  # the last four chunks, of one to three tokens, are cut along the context
    whole = one.logits(tokens)
    for native in (one, two):
        assert np.array_equal(native.logits(tokens, tail), whole)
    assert relative_error(whole[-8:], exact(model, tokens)[-8:]) < 0.015


@pytest.mark.parametrize("chunks", [(1,) * 20, (3, 50), (64, 1, 1), (127, 2)])
def test_logits_are_the_same_bits_however_a_sequence_is_cut(quantized: Model, chunks: tuple[int, ...]) -> None:
    native = Native(quantized)
    tokens = random_tokens(140, seed=2)
    assert np.array_equal(native.logits(tokens, chunks), native.logits(tokens))


def test_a_step_longer_than_a_piece_gives_the_bits_of_its_pieces(quantized: Model) -> None:
    """Long steps run in pieces of 256 tokens; see ``csrc/plan.h``."""
    native = Native(quantized)
    tokens = random_tokens(400, seed=5)
    assert np.array_equal(native.logits(tokens), native.logits(tokens, (100, 200)))


def test_logits_are_the_same_bits_for_any_number_of_threads(quantized: Model) -> None:
    tokens = random_tokens(140, seed=3)
    one, two = (Native(quantized, threads=n).logits(tokens, (100, 1, 1, 1)) for n in (1, 2))
    assert np.array_equal(one, two)


def in_company(native: Native, rows: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
    """The logits of rows that one step computes."""
    groups, width = len(native.graph.kv_windows), -(-max(map(len, rows)) // BLOCK)
    ids = np.random.default_rng(0).permutation(np.arange(1, groups * len(rows) * width + 1, dtype=np.int32))
    tables = ids.reshape(groups, len(rows), width)
    positions = np.concatenate([np.arange(len(r)) for r in rows]).astype(np.int32)
    owner = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    arrays = {
        "tokens": np.concatenate(rows).astype(np.int32),
        "positions": positions,
        "query_starts": np.cumsum([0, *map(len, rows)]).astype(np.int32),
        "context_lens": np.array([*map(len, rows)], np.int32),
        "slots": (tables[:, owner, positions // BLOCK] * BLOCK + positions % BLOCK).astype(np.int32),
        "block_tables": tables,
        "sample_rows": np.arange(len(positions), dtype=np.int32),
    }
    return native.step(arrays, native.store(1 + ids.size))


def test_logits_are_the_same_bits_in_any_company(quantized: Model) -> None:
    """Three rows of different lengths in one step; each as if it were alone."""
    native = Native(quantized)
    rows = [random_tokens(n, seed=n) for n in (5, 33, 70)]
    assert np.array_equal(in_company(native, rows), np.concatenate([native.logits(row) for row in rows]))


def test_a_prompt_that_fills_a_piece_beside_as_many_rows_as_it_has_tokens(quantized: Model) -> None:
    """The first piece has 256 tokens and 256 rows, and all tokens are of one row: it is no step of decodes."""
    native = Native(quantized, cache="int8")
    rows = [random_tokens(257, seed=1), *([token] for token in random_tokens(255, seed=2))]
    found = in_company(native, rows)
    assert np.array_equal(found[:257], native.logits(rows[0]))
    assert np.array_equal(found[-1:], native.logits(rows[-1]))


def test_the_best_token_comes_without_logits(quantized: Model) -> None:
    native = Native(quantized)
    arrays = sequence_inputs(native.graph, random_tokens(40, seed=4), BLOCK)
    expected = native.step(arrays, native.store()).argmax(-1)
    step = StepInput(**arrays, copies=NO_COPIES, sampling=SamplingBatch.plain(40, greedy=True), bucket=Bucket())
    output = native.executable.collect(native.executable.submit(step, native.store()))
    assert output.logits is None and output.samples is not None
    assert output.samples.tokens.tolist() == expected.tolist()
    assert not output.samples.failed.any()


def kept(data: npt.NDArray[np.float32], kind: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Keys and values as a cache keeps them, and how far from that each may be."""
    if kind in ("f32", "f16"):
        return data.astype(np.float32 if kind == "f32" else np.float16).astype(np.float32), np.zeros_like(data)
    if kind == "bf16":
        rounded = (data.view(np.uint32) + 0x7FFF + (data.view(np.uint32) >> 16 & 1) >> 16 << 16).view(np.float32)
        return rounded, np.zeros_like(data)
    largest = [
        np.repeat(np.abs(half).reshape(*half.shape[:-1], -1, group).max(-1), group, -1)
        for half, group in zip(data, (8, 16), strict=True)
    ]
    # Half a code, whose scale is rounded up to a bf16 number, and what the product is rounded to.
    return data, np.stack(largest) * np.float32(0.5 / 127 * 1.01) + np.abs(data) * np.float32(2.0**-8)


@pytest.mark.parametrize("kind", ["bf16", "int8", "f32", "f16"])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 128, 144, 192, 256, 320, 512])
def test_blocks_read_back_what_their_format_keeps(kind: str, head_dim: int) -> None:
    """Every layer slot, position, head and dimension; each group of int8 has a size of its own."""
    store = NativeKVStore(load(), KVLayout(32, 2, 3, head_dim, kind), 4)
    rng = np.random.default_rng(head_dim)
    data = rng.standard_normal((2, 2, 32, 3, head_dim)).astype(np.float32)
    data *= np.repeat(np.exp2(rng.integers(-6, 7, (*data.shape[:-1], head_dim // 8))), 8, -1).astype(np.float32)
    store.write_block(2, data)
    wanted, slack = kept(data, kind)
    found = store.read_block(2)
    assert (np.abs(found - wanted) <= slack).all()
    assert kind != "int8" or not np.array_equal(found, data)
    assert not store.read_block(1).any() and not store.read_block(3).any()
    store.close()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Sequence[int], npt.NDArray[Any]]:
    """Heads of 256, a window of 1,100: one query sees two or three chunks of 1,024. The model, a prompt, its logits."""
    fields = {
        "head_dim": 256, "query_pre_attn_scalar": 256, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_hidden_layers": 2, "sliding_window": 1100, "max_position_embeddings": 4096,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    model = load_model(tiny_checkpoint("gemma3", tmp_path_factory.mktemp("wide"), **fields))
    tokens = random_tokens(2080, seed=9)
    return model, tokens, exact(model, tokens)


@pytest.mark.parametrize("cache", ["bf16", "int8", "f32", "f16"])
def test_wide_heads_and_a_window_beyond_a_chunk(
    wide: tuple[Model, Sequence[int], npt.NDArray[Any]], cache: str
) -> None:
    model, tokens, wanted = wide
    native = Native(model, cache=cache)
    whole = native.logits(tokens)
    assert relative_error(whole, wanted) < {"bf16": 0.01, "int8": 0.015, "f32": 1e-5, "f16": 1e-3}[cache]
    cut = (1020, 3, 1, 1, 1, 1020, 1, 2, 1, 20, 1)
    assert np.array_equal(native.logits(tokens, cut), whole)


def test_copies_come_before_the_step_and_blocks_read_back_what_was_written() -> None:
    store = NativeKVStore(load(), KVLayout(BLOCK, 2, 3, 32, "bf16"), 4)
    data = np.random.default_rng(1).standard_normal((2, 2, BLOCK, 3, 32)).astype(np.float32)
    rounded = (data.view(np.uint32) + 0x7FFF + (data.view(np.uint32) >> 16 & 1) >> 16 << 16).view(np.float32)
    store.write_block(2, data)
    assert np.array_equal(store.read_block(2), rounded)
    assert not store.read_block(1).any() and not store.read_block(3).any()
    store.close()
    store.close()


def test_too_little_memory_is_known_before_anything_is_packed(quantized: Model) -> None:
    with pytest.raises(DeviceOutOfMemory, match=r"packed weights need .* GiB"):
        Native(quantized, free=1000)


def test_an_op_without_a_kernel_is_refused_by_name() -> None:
    g = Builder("odd")
    h = g.embed("table", vocab=8, width=32)
    g.output("logits", g.linear(g.take_rows(g.scale(h, 2.0)), "head", 8))
    graph = g.build()
    nodes = tuple(replace(node, op="divine") if node.op == "scale" else node for node in graph.nodes)
    with pytest.raises(UnsupportedFeature, match="op divine in the top scope has no native kernel"):
        lower(replace(graph, nodes=nodes))


@pytest.mark.parametrize("cap", [None, 2.0])
def test_the_output_matrix_takes_a_bias(cap: float | None) -> None:
    """In the logits that come out, and in the best that it keeps where only that is asked for."""
    rng = np.random.default_rng(3)
    table, head, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((9, 32), (37, 32), (37,)))
    g = Builder("biased")
    logits = g.linear(g.take_rows(g.embed("table", vocab=9, width=32)), "head", 37, bias=True)
    g.output("logits", logits if cap is None else g.softcap(logits, cap))
    graph = fuse(g.build())
    stored = {"table.weight": table, "head.weight": head, "head.bias": bias * 4}
    weights = {
        name: WeightTensor(F32, array.shape, array.view(np.uint8).reshape(*array.shape[:-1], -1))
        for name, array in stored.items()
    }
    device = CpuDevice(load(), lambda: MemoryReport(1 << 32, 1 << 32), Threads(2, (), 1))
    layout = KVLayout(BLOCK, 0, 0, 0, "bf16")
    executable = device.compile(graph, Bucket(), device.load(graph, weights, ignore), layout)
    store = device.allocate_kv(layout, 1)
    arrays = {
        "tokens": np.arange(9, dtype=np.int32), "positions": np.arange(9, dtype=np.int32),
        "query_starts": np.array([0, 9], np.int32), "context_lens": np.array([9], np.int32),
        "slots": np.zeros((0, 9), np.int32), "block_tables": np.zeros((0, 1, 1), np.int32),
        "sample_rows": np.arange(9, dtype=np.int32), "copies": NO_COPIES,
    }  # fmt: skip
    expected = table.astype(np.float64) @ head.T + stored["head.bias"]
    expected = expected if cap is None else cap * np.tanh(expected / cap)
    plain, greedy = (
        executable.collect(
            executable.submit(
                StepInput(**arrays, sampling=SamplingBatch.plain(9, greedy=only_best), bucket=Bucket()), store
            )
        )
        for only_best in (False, True)
    )
    assert plain.logits is not None and greedy.samples is not None
    np.testing.assert_allclose(plain.logits, expected, rtol=1e-5, atol=1e-5)
    assert np.array_equal(greedy.samples.tokens, plain.logits.argmax(1))


def decoder() -> Graph:
    g = Builder("two", format_of=lambda name: "q8_0" if "proj" in name else "f32")
    h = g.embed("table", vocab=64, width=32)
    for i in range(2):
        with g.scope(f"layers.{i}"):
            x = g.rms_norm(h, "norm", eps=1e-5)
            q, k, v = g.linear_split(x, ["q_proj", "k_proj", "v_proj"], [32, 32, 32])
            q, k = g.rope(q, k, RopeSpec(16))
            a = g.attention(q, k, v, layer=i, heads=2, kv_heads=2, head_dim=16, scale=0.25)
            h = g.add(h, g.linear(a, "o_proj", 32))
            gate, up = g.linear_split(g.rms_norm(h, "norm2", eps=1e-5), ["gate_proj", "up_proj"], [64, 64])
            h = g.add(h, g.linear(g.gated_activation(gate, up, "silu"), "down_proj", 32))
    g.output("logits", g.linear(g.rms_norm(g.take_rows(h), "final", eps=1e-5), "head_proj", 64))
    return fuse(g.build())


def test_the_plan_of_a_layer_is_what_the_docs_say() -> None:
    layer = [step.op for step in lower(decoder()).steps[1:10]]
    assert layer == [
        "rms_norm", "linear", "rope", "attention", "quantise", "linear", "rms_norm", "linear", "gated",
    ]  # fmt: skip
    assert "rms_norm(b0)  layers.0.norm.weight  feeds int8" in str(lower(decoder()))


def test_a_linear_never_writes_where_a_repeated_step_before_it_may_still_read() -> None:
    """There is no barrier between a feeding step and its linear; see `octavo_cpu.lower`."""
    steps = lower(decoder()).steps
    for feeder, linear in pairwise(steps):
        if feeder.feed and linear.op == "linear" and not linear.logits:
            read = {b for b in feeder.inputs if b >= 0}
            assert not read & set(linear.outputs), f"{feeder.op} reads what {linear.matrices} writes"


@pytest.mark.parametrize("kernels", ["", "generic"])
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32},
        {"rope_type": "default", "partial_rotary_factor": 0.5},
        {"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.75},
        {
            "rope_type": "longrope", "original_max_position_embeddings": 32, "factor": 4.0,
            "short_factor": [1.0] * 8, "long_factor": [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 5.0, 8.0],
        },
    ],
    ids=lambda rope: str(rope["rope_type"]),
)  # fmt: skip
def test_scaled_and_partial_ropes_turn_as_the_oracle_does(rope: dict[str, Any], kernels: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_parameters": {"rope_theta": 1e4, **rope}}))
    tokens, model = random_tokens(100, seed=1), load_model(folder, max_length=600)
    wanted = exact(model, tokens)
    assert relative_error(Native(model, kernels).logits(tokens), wanted) < 0.01
    plain = load_model(tiny_checkpoint("llama", tmp_path / "plain"))
    assert relative_error(exact(plain, tokens), wanted) > 0.05, "the rope must matter"
