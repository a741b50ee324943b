"""specialise: symbols become the sizes of a bucket."""

from __future__ import annotations

import pytest
from graph.decoders import Shape, decoder

from octavo.errors import GraphError
from octavo.graph import Builder, Graph, TensorType, specialise


def symbols(graph: Graph) -> set[str]:
    types = [*graph.types.values(), *graph.inputs.values()]
    return {dim for t in types for dim in t.shape if isinstance(dim, str)}


def pooled() -> Graph:
    g = Builder("m")
    h = g.embed("e", vocab=5, width=8)
    g.output("pooled", g.pool(h, "mean"))
    g.output("logits", g.linear(g.take_rows(h), "e", 5))
    return g.build()


def test_every_symbol_is_replaced_everywhere() -> None:
    for graph in (decoder(Shape(windows=(None, 3))), pooled()):
        assert symbols(graph) == {"T", "R", "S", "B", "R+1"}
        fixed = specialise(graph, {"T": 64, "R": 8, "S": 6, "B": 32})
        assert symbols(fixed) == set()
        assert fixed.inputs["tokens"] == TensorType((64,), "i32")
        assert fixed.inputs["query_starts"] == TensorType((9,), "i32")
        groups = len(graph.kv_windows)
        assert fixed.inputs["block_tables"] == TensorType((groups, 8, 32), "i32")
        assert all(fixed.types[name] == t for name, t in fixed.inputs.items())
        assert fixed.types[fixed.outputs["logits"]].shape[0] == 6
        assert (fixed.nodes, fixed.weights, fixed.kv) == (graph.nodes, graph.weights, graph.kv)
    assert fixed.types[fixed.outputs["pooled"]].shape == (8, 8)


def test_symbols_that_are_not_named_stay_free() -> None:
    graph = decoder()
    assert symbols(specialise(graph, {"T": 16})) == {"R", "S", "B", "R+1"}
    assert symbols(specialise(graph, {"R": 16})) == {"T", "S", "B"}
    assert specialise(graph, {}) == graph


def test_fixing_in_turn_is_fixing_at_once() -> None:
    graph = decoder()
    assert specialise(specialise(graph, {"T": 4, "S": 1}), {"R": 2, "B": 3}) == specialise(
        graph, {"B": 3, "R": 2, "S": 1, "T": 4}
    )


@pytest.mark.parametrize("name", ["X", "t", "R+1", ""])
def test_an_unknown_symbol_is_refused(name: str) -> None:
    with pytest.raises(GraphError, match="symbols T, R, S, B, not"):
        specialise(decoder(), {"T": 4, name: 3})
