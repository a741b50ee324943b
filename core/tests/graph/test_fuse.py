"""fuse keeps the meaning, merges what there is to merge, and is done after one go."""

from __future__ import annotations

from collections import Counter

import numpy as np
from graph.decoders import VOCAB, Shape, decoder, random_weights, shapes
from hypothesis import given, settings

from octavo.graph import Builder, Graph, Interpreter, KVArrays, fuse
from octavo.graph.reference import sequence_inputs

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]


def outputs(graph: Graph) -> dict[str, np.ndarray]:
    inputs = sequence_inputs(graph, TOKENS, block_size=4)
    kv = KVArrays(graph, 1 + inputs["block_tables"].size, 4, np.float64)
    return Interpreter(graph, random_weights(graph), np.float64).run(inputs, kv)


def assert_ordered(graph: Graph) -> None:
    """Every value is written once, before anyone reads it."""
    written = set(graph.inputs)
    for node in graph.nodes:
        assert written.issuperset(node.inputs), node
        assert written.isdisjoint(node.outputs), node
        written.update(node.outputs)
    assert written.issuperset(graph.outputs.values())


@settings(max_examples=100, deadline=None)
@given(shapes)
def test_a_fused_decoder_computes_the_same(shape: Shape) -> None:
    graph = decoder(shape)
    fused = fuse(graph)
    assert_ordered(fused)
    assert len(fused.nodes) < len(graph.nodes)
    expected, found = outputs(graph), outputs(fused)
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


@settings(max_examples=100, deadline=None)
@given(shapes)
def test_fusing_twice_changes_nothing_more(shape: Shape) -> None:
    fused = fuse(decoder(shape))
    assert fuse(fused) == fused


@settings(max_examples=50, deadline=None)
@given(shapes)
def test_nothing_is_left_to_fuse(shape: Shape) -> None:
    fused = fuse(decoder(shape))
    read = Counter((n.inputs[0], n.attrs["bias"]) for n in fused.nodes if n.op == "linear")
    assert max(read.values()) == 1
    for index, node in enumerate(fused.nodes):
        if node.op == "add":
            first = next((n for n in fused.nodes[index + 1 :] if node.outputs[0] in n.inputs), None)
            assert first is None or first.op != "rms_norm" or len(first.inputs) == 2


def test_a_llama_layer_becomes_seven_ops() -> None:
    ops = [n.op for n in fuse(decoder(Shape(windows=(None, None)))).nodes if n.scope == "model.layers.1"]
    assert ops == [
        "rms_norm",
        "linear",
        "rope",
        "attention",
        "linear",
        "rms_norm",
        "linear",
        "gated_activation",
        "linear",
    ]


def test_linears_of_one_input_merge_with_their_biases_last() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    a = g.linear(h, "a", 4, bias=True)
    b = g.linear(h, "b", 5)
    c, d = g.linear_split(h, ["c", "d"], [6, 7], bias=True)
    for name, value in zip("abcd", (a, b, c, d), strict=True):
        g.output(name, value)
    fused = fuse(g.build())
    assert [(n.weights, n.outputs) for n in fused.nodes[1:]] == [
        (("a.weight", "c.weight", "d.weight", "a.bias", "c.bias", "d.bias"), (a.name, c.name, d.name)),
        (("b.weight",), (b.name,)),
    ]
    for name, value in outputs(g.build()).items():
        np.testing.assert_array_equal(outputs(fused)[name], value)


def test_a_sum_that_is_an_output_is_still_one() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    total = g.add(h, g.scale(h, 2.0))
    g.output("sum", total)
    g.output("norm", g.rms_norm(total, "n", eps=1e-5))
    graph = g.build()
    fused = fuse(graph)
    assert [n.op for n in fused.nodes] == ["embed", "scale", "rms_norm"]
    for name, value in outputs(graph).items():
        np.testing.assert_array_equal(outputs(fused)[name], value)


def test_two_norms_of_one_sum_fuse_the_first() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    total = g.add(h, g.scale(h, 2.0))
    first, second = g.rms_norm(total, "first", eps=1e-5), g.rms_norm(total, "second", eps=1e-5)
    g.output("y", g.add(first, second))
    graph = g.build()
    fused = fuse(graph)
    assert [(n.op, len(n.inputs)) for n in fused.nodes if n.op == "rms_norm"] == [("rms_norm", 2), ("rms_norm", 1)]
    np.testing.assert_array_equal(outputs(fused)["y"], outputs(graph)["y"])


def test_a_sum_that_is_read_before_its_norm_stays() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    total = g.add(h, h)
    early = g.scale(total, 2.0)
    g.output("y", g.mul(g.rms_norm(total, "n", eps=1e-5), early))
    graph = g.build()
    assert fuse(graph) == graph


def test_a_sum_that_nobody_reads_stays() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    g.add(h, h)
    g.output("y", g.rms_norm(h, "n", eps=1e-5))
    assert fuse(g.build()) == g.build()


def test_a_chain_of_sums_fuses_from_the_end() -> None:
    """The second add reads the first sum before its norm does, until it has moved into its own norm."""
    g = Builder("m")
    h = g.embed("e", vocab=VOCAB, width=8)
    one = g.add(h, h)
    two = g.add(one, h)
    g.output("y", g.mul(g.rms_norm(one, "n1", eps=1e-5), g.rms_norm(two, "n2", eps=1e-5)))
    graph = g.build()
    fused = fuse(graph)
    assert [n.op for n in fused.nodes] == ["embed", "rms_norm", "rms_norm", "mul"]
    assert_ordered(fused)
    np.testing.assert_array_equal(outputs(fused)["y"], outputs(graph)["y"])
