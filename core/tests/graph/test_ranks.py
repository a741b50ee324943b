"""Passes over ranks: whatever the mesh, a model computes what it computes on one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from graph.decoders import Shape, decoder, random_weights, shapes
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import GraphError
from octavo.graph import (
    OPS,
    Graph,
    Interpreter,
    KVArrays,
    Part,
    WeightSpec,
    from_json,
    fuse,
    graph_hash,
    run_ranks,
    shard,
    stage,
    to_json,
)
from octavo.graph.reference import run_sequence, sequence_inputs

Array = npt.NDArray[np.float64]
TOKENS = [3, 22, 7, 7, 0, 11, 18, 5]


def part_of(weight: Array, spec: WeightSpec) -> Array:
    """What a rank reads of a weight."""
    for dim, start, stop in spec.parts:
        weight = weight.take(range(start, stop), axis=dim)
    return np.pad(weight, [(0, wanted - found) for wanted, found in zip(spec.shape, weight.shape, strict=True)])


def run_mesh(graph: Graph, weights: Mapping[str, Array], tokens: Sequence[int], *, tp: int, pp: int) -> list[Array]:
    """The logits of every rank of the last stage."""
    inputs: dict[str, Array] = dict(sequence_inputs(graph, tokens, block_size=4))
    blocks = 1 + inputs["block_tables"].size
    outputs: list[dict[str, Array]] = []
    for part in stage(graph, pp):
        graphs = [fuse(shard(part, rank, tp)) for rank in range(tp)]
        ranks = [
            Interpreter(g, {name: part_of(weights[name], spec) for name, spec in g.weights.items()}, np.float64)
            for g in graphs
        ]
        outputs = run_ranks(ranks, inputs, [KVArrays(g, blocks, 4, np.float64) for g in graphs])
        inputs |= {name: value for name, value in outputs[0].items() if name.startswith("carried.")}
    return [found["logits"] for found in outputs]


@given(shapes, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]))
def test_logits_are_those_of_one_rank(shape: Shape, tp: int, pp: int) -> None:
    """Four ranks share two KV heads, and pad an MLP of 10 and a vocabulary of 23."""
    graph = decoder(shape)
    weights = random_weights(graph)
    expected = run_sequence(graph, weights, TOKENS, np.float64)
    found = run_mesh(graph, weights, TOKENS, tp=tp, pp=min(pp, len(shape.windows)))
    assert len(found) == tp
    for logits in found:
        np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    if tp == 1:
        assert np.array_equal(found[0], expected), "stages add nothing of their own"


def test_all_ranks_run_the_same_program() -> None:
    graph = decoder(Shape(bias=True, output_bias=True))
    parts = [shard(graph, rank, 4) for rank in range(4)]
    assert len({tuple((n.op, n.inputs, n.outputs) for n in part.nodes) for part in parts}) == 1
    assert len({tuple(part.types.items()) for part in parts}) == 1
    # All of the hash that differs is where a rank's part of the vocabulary begins.
    assert [n.attrs["first"] for part in parts for n in part.nodes if n.op == "embed"] == [0, 6, 12, 18]


def test_a_rank_has_its_heads_and_its_part_of_everything_else() -> None:
    part = shard(decoder(Shape(bias=True, output_bias=True)), 3, 4)
    layer = "model.layers.1"
    assert part.weights[f"{layer}.self_attn.q_proj.weight"].parts == (Part(0, 12, 16),)
    assert part.weights[f"{layer}.self_attn.k_proj.weight"].parts == (Part(0, 4, 8),), "the second of two KV heads"
    assert part.weights[f"{layer}.self_attn.k_proj.bias"].parts == (Part(0, 4, 8),)
    assert part.weights[f"{layer}.self_attn.o_proj.weight"].parts == (Part(1, 12, 16),)
    assert part.weights[f"{layer}.self_attn.o_proj.bias"].parts == (Part(0, 0, 0),), "rank 0 adds it"
    gate = part.weights[f"{layer}.mlp.gate_proj.weight"]
    assert (gate.parts, gate.shape) == ((Part(0, 9, 10),), (3, 12)), "two of its three rows are padding"
    assert part.weights["model.embed_tokens.weight"].parts == (Part(0, 18, 23),)
    assert [spec.kv_heads for spec in part.kv] == [1, 1]
    attention = next(node for node in part.nodes if node.op == "attention")
    assert (attention.attrs["heads"], attention.attrs["kv_heads"]) == (1, 1)


def test_quantized_weights_are_cut_between_blocks() -> None:
    """An MLP of 10 columns in blocks of 32 is one block: what the other rank has is padding. Heads are never padded."""
    with pytest.raises(
        GraphError,
        match=r"o_proj\.weight cannot be split over 2 ranks: 8 columns a rank are no whole number of q8_0 blocks of 32",
    ):
        shard(decoder(fmt="q8_0"), 0, 2)


@pytest.mark.parametrize(("ranks", "message"), [(3, "4 heads cannot be split over 3 ranks"), (8, "4 heads")])
def test_heads_that_do_not_divide_are_refused(ranks: int, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        shard(decoder(), 0, ranks)


def test_ranks_and_stages_that_there_are_not_are_refused() -> None:
    with pytest.raises(GraphError, match="there is no rank 2 among 2"):
        shard(decoder(), 2, 2)
    with pytest.raises(GraphError, match="2 layers cannot be shared out among 3 stages"):
        stage(decoder(), 3)


def test_one_rank_s_part_alone_is_no_model() -> None:
    graph = shard(decoder(), 0, 2)
    weights = {name: part_of(w, graph.weights[name]) for name, w in random_weights(decoder()).items()}
    with pytest.raises(GraphError, match="all_reduce joins 2 ranks, and one rank alone was run"):
        run_sequence(graph, weights, TOKENS)


def test_ranks_that_do_not_meet_are_an_error() -> None:
    one, other = (shard(decoder(shape), rank, 2) for rank, shape in enumerate([Shape(), Shape(windows=(None,))]))
    ranks = []
    for graph, shape in ((one, Shape()), (other, Shape(windows=(None,)))):
        weights = {name: part_of(w, graph.weights[name]) for name, w in random_weights(decoder(shape)).items()}
        ranks.append(Interpreter(graph, weights))
    inputs = sequence_inputs(one, TOKENS, block_size=4)
    with pytest.raises(GraphError, match="do not meet in the same collectives"):
        run_ranks(ranks, inputs, [KVArrays(g, 4, 4) for g in (one, other)])


def test_stages_keep_their_layers_and_the_groups_of_the_whole_model() -> None:
    graph = decoder(Shape(windows=(None, 3, 3, None, None)))
    first, second = stage(graph, 2)
    assert {node.layer for node in first.nodes} == {None, 0, 1, 2}
    assert {node.layer for node in second.nodes} == {None, 3, 4}
    assert [layer.group for layer in (*first.kv, *second.kv)] == [layer.group for layer in graph.kv]
    assert second.kv_slots <= graph.kv_slots
    assert list(first.outputs) == ["carried.0"]
    assert second.types["carried.0"] == second.inputs["carried.0"] == graph.types[first.outputs["carried.0"]]


def test_a_rank_s_graph_is_the_same_after_json() -> None:
    for graph in (shard(decoder(Shape(bias=True)), 1, 2), stage(decoder(), 2)[1]):
        assert from_json(to_json(graph)) == graph
        assert graph_hash(from_json(to_json(graph))) == graph_hash(graph)


def test_which_part_of_a_weight_is_read_is_no_matter_of_the_hash() -> None:
    one = stage(shard(decoder(), 0, 2), 2)[1]
    other = stage(shard(decoder(), 1, 2), 2)[1]
    assert one != other
    assert graph_hash(one) == graph_hash(other)


def test_collectives_sum_and_join_in_the_order_of_the_ranks() -> None:
    parts = np.random.default_rng(0).standard_normal((3, 2, 4))
    for op, attrs, expected in (
        ("all_reduce", {}, (parts[0] + parts[1]) + parts[2]),
        ("all_gather", {"width": 10}, np.concatenate(list(parts), axis=1)[:, :10]),
    ):
        from octavo.graph import Call

        across = OPS[op].across
        assert across is not None
        outputs = across([Call([x], [], {"group": "tp", "ranks": 3, **attrs}, np.float64) for x in parts])
        assert len(outputs) == 3
        assert all(np.array_equal(found, expected) for (found,) in outputs)
