"""The cost model against what a step is counted to do by hand."""

from __future__ import annotations

import pytest
from graph.decoders import Shape, decoder

from octavo.graph import OPS, Builder, Cost, RopeSpec, Sizes, TensorType, WeightSpec, fuse, step_cost


def small(fmt: str = "bf16", window: int | None = None) -> Builder:
    """Width 32, 4 heads and 2 KV heads of 8, an MLP of 64, vocabulary 96; one layer."""
    g = Builder("small", "bf16", lambda name: "f32" if "norm" in name else fmt)
    h = g.embed("e", vocab=96, width=32)
    x = g.rms_norm(h, "norm", eps=1e-5)
    q, k, v = g.linear_split(x, ["q", "k", "v"], [32, 16, 16])
    q, k = g.rope(q, k, RopeSpec(8))
    a = g.attention(q, k, v, layer=0, heads=4, kv_heads=2, head_dim=8, scale=1.0, window=window)
    h = g.add(h, g.linear(a, "o", 32))
    gate, up = g.linear_split(h, ["gate", "up"], [64, 64])
    h = g.add(h, g.linear(g.gated_activation(gate, up, "silu"), "down", 32))
    g.output("logits", g.linear(g.take_rows(h), "e", 96))
    return g


def test_a_step_of_decodes_counted_by_hand() -> None:
    """5 rows of one token each, 21 tokens of context, 5 samples."""
    cost = step_cost(small().build(), Sizes(tokens=5, rows=5, samples=5, context=21))
    maps = 32 * (32 + 16 + 16) + 32 * 32 + 32 * 64 * 2 + 64 * 32  # weights of the layer's linear maps
    head = 96 * 32
    expected = (
        4 * 5 * 32  # norm: square, sum, scale, weight
        + 2 * 5 * maps
        + 3 * 5 * (32 + 16)  # rope
        + 4 * 5 * 21 * 32  # scores and mix: a multiply and an add each, for every position and element
        + 2 * 5 * 32  # two sums
        + 9 * 5 * 64  # gated activation
        + 2 * 5 * head
    )
    assert cost.operations == expected
    assert cost.weight_bytes == 2 * (5 * 32) + 4 * 32 + 2 * (maps + head)  # embed reads its rows; norm weights are f32
    assert cost.kv_bytes == 2 * 2 * 16 * (5 * 21 + 5)  # each context read once, each new token written
    moved = (
        5 * 32  # embed
        + 5 * (32 + 32)  # norm
        + 5 * (32 + 64)  # q, k, v
        + 5 * (48 + 48)  # rope
        + 5 * (32 + 16 + 16 + 32)  # attention
        + 5 * (32 + 32)  # o
        + 2 * 5 * (32 + 32 + 32)  # sums
        + 5 * (32 + 128)  # gate, up
        + 5 * (64 + 64 + 64)  # gated activation
        + 5 * (64 + 32)  # down
        + 5 * (32 + 32)  # take_rows
        + 5 * (32 + 96)  # head
    )
    assert cost.activation_bytes == 2 * moved


def attention_cost(window: int | None, causal: bool, sizes: Sizes) -> Cost:
    attrs = {"layer": 0, "heads": 4, "kv_heads": 2, "head_dim": 8, "scale": 1.0, "window": window, "causal": causal}
    q, k, ids = TensorType(("T", 32), "bf16"), TensorType(("T", 16), "bf16"), TensorType(("T",), "i32")
    return OPS["attention"].cost([q, k, k, ids, ids, ids, ids], [], attrs, sizes)


@pytest.mark.parametrize(
    ("before", "new", "window", "causal"),
    [(0, 8, None, True), (6, 4, None, True), (6, 4, None, False), (9, 1, 4, True), (3, 1, 4, True)],
)
def test_attention_counts_the_positions_that_are_seen(before: int, new: int, window: int | None, causal: bool) -> None:
    rows = 3
    seen = 0
    for position in range(before, before + new):
        last = position if causal else before + new - 1
        first = 0 if window is None else max(0, position - window + 1)
        seen += last - first + 1
    cost = attention_cost(window, causal, Sizes(rows * new, rows, rows, before + new))
    assert cost.operations == rows * seen * 4 * 32
    assert cost.activation_bytes == 2 * rows * new * (32 + 16 + 16 + 32)


def test_a_window_bounds_what_is_read_of_the_cache() -> None:
    sizes = Sizes(tokens=2, rows=2, samples=2, context=1000)
    per_token = 2 * 16 * 2
    assert attention_cost(None, True, sizes).kv_bytes == per_token * (2 * 1000 + 2)
    assert attention_cost(10, True, sizes).kv_bytes <= per_token * (2 * 11 + 2)


def test_weight_bytes_are_those_of_the_stored_format() -> None:
    wide, narrow = (step_cost(small(f).build(), Sizes(1, 1, 1, 1)).weight_bytes for f in ("bf16", "q4_0"))
    norm = 4 * 32
    assert (wide - norm) / (narrow - norm) == pytest.approx(2 / (18 / 32))


def test_embed_reads_a_row_a_token_and_not_its_table() -> None:
    ids, table = TensorType(("T",), "i32"), WeightSpec((1000, 32), ("vocab", "embed"), "q4_1")
    cost = OPS["embed"].cost([ids], [table], {"dtype": "f32"}, Sizes(7, 1, 1, 7))
    assert cost == Cost(0, weight_bytes=7 * 20, activation_bytes=7 * 32 * 4)


def test_fusing_saves_movement_and_no_arithmetic() -> None:
    graph = decoder(Shape(split=False))
    sizes = Sizes(tokens=12, rows=3, samples=3, context=20)
    plain, fused = step_cost(graph, sizes), step_cost(fuse(graph), sizes)
    adds = sum(n.op == "add" for n in graph.nodes) - sum(n.op == "add" for n in fuse(graph).nodes)
    assert adds == 4
    assert plain.operations - fused.operations == adds * 12 * 12, "the sum of a fused norm is not counted as its own op"
    assert fused.activation_bytes < plain.activation_bytes
    assert (fused.weight_bytes, fused.kv_bytes) == (plain.weight_bytes, plain.kv_bytes)


def test_costs_add_up() -> None:
    assert Cost(1, 2, 3, 4) + Cost(10, 20, 30, 40) == Cost(11, 22, 33, 44)


def test_a_model_without_attention_moves_no_keys_and_values() -> None:
    g = Builder("m")
    g.output("h", g.embed("e", vocab=5, width=8))
    assert step_cost(g.build(), Sizes(3, 1, 1, 3)).kv_bytes == 0
