"""JSON and back, and what the canonical hash depends on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from graph.decoders import Shape, decoder, shapes
from hypothesis import given, settings

from octavo.errors import GraphError
from octavo.graph import (
    Axis,
    Builder,
    FrequencyFactors,
    Graph,
    Llama3Scaling,
    Node,
    RopeSpec,
    from_json,
    fuse,
    graph_hash,
    specialise,
    to_json,
    to_text,
)  # fmt: skip


def with_nested_attributes() -> Graph:
    g = Builder("nested", "bf16", lambda name: "q8_0")
    q = g.embed("e", vocab=7, width=32)
    k = q
    for spec in (
        RopeSpec(8, scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192)),
        RopeSpec(8, scaling=FrequencyFactors((1.0, 2.5, 3.0, 4.0))),
    ):
        q, k = g.rope(q, k, spec)
    g.output("k", k)
    g.output("q", q)
    return g.build()


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_json_restores_an_equal_graph(shape: Shape) -> None:
    for graph in (decoder(shape), fuse(decoder(shape)), specialise(decoder(shape), {"T": 8, "B": 3})):
        again = from_json(to_json(graph))
        assert again == graph
        assert to_json(again) == to_json(graph)
        assert graph_hash(again) == graph_hash(graph)
        assert to_text(again) == to_text(graph)


def test_json_restores_nested_attributes() -> None:
    graph = with_nested_attributes()
    again = from_json(to_json(graph))
    assert again == graph
    assert again.nodes[1].attrs["scaling"]["low_freq_factor"] == 1.0  # type: ignore[index, call-overload]
    assert RopeSpec.from_attrs(again.nodes[2].attrs).scaling == FrequencyFactors((1.0, 2.5, 3.0, 4.0))


def test_json_keeps_a_float_a_float() -> None:
    node = next(n for n in from_json(to_json(decoder())).nodes if n.op == "rope")
    assert isinstance(node.attrs["theta"], float)
    assert isinstance(node.attrs["head_dim"], int)


@pytest.mark.parametrize("dialect", ["3.0", "1.0", "22.0", "two", ""])
def test_a_foreign_dialect_is_refused(dialect: str) -> None:
    text = json.dumps({**json.loads(to_json(decoder())), "dialect": dialect})
    with pytest.raises(GraphError, match=f"speaks dialect {dialect}, this version 2.0"):
        from_json(text)


def test_a_later_minor_of_the_dialect_is_read() -> None:
    text = json.dumps({**json.loads(to_json(decoder())), "dialect": "2.7"})
    assert from_json(text).dialect == "2.7"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"dialect": "2.0"}', '{"dialect": null}', to_json(decoder())[:-20]],
)
def test_what_is_no_graph_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match=r"no graph in JSON|speaks dialect"):
        from_json(text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw.pop("nodes"),
        lambda raw: raw["nodes"][0].pop("op"),
        lambda raw: raw["nodes"].append(7),
        lambda raw: raw["kv"][0].update(size=3),
        lambda raw: raw.update(types=[]),
        lambda raw: raw["weights"].update(x=None),
    ],
)
def test_a_graph_with_a_part_missing_is_refused(damage: Callable[[dict[str, Any]], object]) -> None:
    raw = json.loads(to_json(decoder()))
    damage(raw)
    with pytest.raises(GraphError, match="this is no graph in JSON"):
        from_json(json.dumps(raw))


def renamed(graph: Graph) -> Graph:
    """Every value but the step's inputs under another name, in another order of the dictionaries."""
    new = {name: name if name in graph.inputs else f"x{len(graph.types) - i}" for i, name in enumerate(graph.types)}
    return replace(
        graph,
        nodes=tuple(
            replace(n, inputs=tuple(new[v] for v in n.inputs), outputs=tuple(new[v] for v in n.outputs))
            for n in graph.nodes
        ),
        types={new[v]: graph.types[v] for v in reversed(list(graph.types))},
        outputs={k: new[v] for k, v in graph.outputs.items()},
        weights=dict(reversed(list(graph.weights.items()))),
    )


@settings(max_examples=20, deadline=None)
@given(shapes)
def test_the_hash_is_of_meaning_not_of_names(shape: Shape) -> None:
    graph = decoder(shape)
    same = [
        renamed(graph),
        replace(graph, name="other"),
        replace(graph, nodes=tuple(replace(n, scope="elsewhere") for n in graph.nodes)),
        decoder(shape),
    ]
    assert {graph_hash(g) for g in same} == {graph_hash(graph)}


def change_node(index: int, change: Callable[[Node], Node]) -> Callable[[Graph], Graph]:
    def changed(graph: Graph) -> Graph:
        nodes = list(graph.nodes)
        nodes[index] = change(nodes[index])
        return replace(graph, nodes=tuple(nodes))

    return changed


def other(value: object) -> object:
    """A different value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case None:
            return 1
    raise AssertionError(value)


def test_the_hash_depends_on_every_attribute_of_every_node() -> None:
    graph = decoder(Shape(windows=(3, None), qk_norm=True, bias=True))
    hashes = [graph_hash(graph)]
    for index, node in enumerate(graph.nodes):
        for name, value in node.attrs.items():
            changed = {**node.attrs, name: other(value)}
            hashes.append(graph_hash(change_node(index, lambda n, a=changed: replace(n, attrs=a))(graph)))  # type: ignore[misc]
        hashes.append(graph_hash(change_node(index, lambda n: replace(n, attrs={**n.attrs, "new": 1}))(graph)))
        hashes.append(graph_hash(change_node(index, lambda n: replace(n, op=n.op + "2"))(graph)))
    assert len(hashes) > 100
    assert len(set(hashes)) == len(hashes)


def test_the_hash_depends_on_nested_attributes() -> None:
    graph = with_nested_attributes()
    deeper = dict(graph.nodes[1].attrs["scaling"], factor=9.0)  # type: ignore[arg-type, call-overload]
    changed = change_node(1, lambda n: replace(n, attrs={**n.attrs, "scaling": deeper}))(graph)
    assert graph_hash(changed) != graph_hash(graph)


def swap(graph: Graph, a: int, b: int) -> Graph:
    nodes = list(graph.nodes)
    nodes[a], nodes[b] = nodes[b], nodes[a]
    return replace(graph, nodes=tuple(nodes))


def test_the_hash_depends_on_shapes_formats_order_and_wiring() -> None:
    shape = Shape(windows=(None, 4), split=False)
    graph = decoder(shape)
    weight = "model.layers.0.mlp.up_proj.weight"
    spec = graph.weights[weight]
    linears = [i for i, n in enumerate(graph.nodes) if n.op == "linear"]
    k, v = linears[1], linears[2]  # neighbours that read the same value: either order is a valid graph
    first_add = next(i for i, n in enumerate(graph.nodes) if n.op == "add")
    sliced = replace(spec, shape=(5, 12))
    variants = {
        "dtype": decoder(shape, dtype="bf16"),
        "all formats": decoder(shape, fmt="bf16"),
        "one format": replace(graph, weights={**graph.weights, weight: replace(spec, format="bf16")}),
        "weight shape": replace(graph, weights={**graph.weights, weight: sliced}),
        "axes": replace(
            graph, weights={**graph.weights, weight: replace(spec, axes=(Axis("embed", 1), Axis("mlp", 1)))}
        ),
        "weight name": replace(graph, weights={**graph.weights, "another": spec}),
        "dialect": replace(graph, dialect="2.1"),
        "order": swap(graph, k, v),
        "operands": change_node(first_add, lambda n: replace(n, inputs=n.inputs[::-1]))(graph),
        "kv": decoder(replace(shape, windows=(4, None))),
        "window": decoder(replace(shape, windows=(None, 5))),
        "bucket": specialise(graph, {"T": 16}),
        "bigger bucket": specialise(graph, {"T": 32}),
        "outputs": replace(graph, outputs={"scores": graph.outputs["logits"]}),
        "fused": fuse(graph),
        "itself": graph,
    }
    hashes = {name: graph_hash(g) for name, g in variants.items()}
    assert len(set(hashes.values())) == len(hashes), hashes
    assert v == k + 1


def test_the_hash_is_stable_across_versions_of_the_code() -> None:
    """It names artifacts on disk. Change this value only together with the dialect."""
    assert (
        graph_hash(decoder(Shape(windows=(3, None))))
        == "da0b3f57bbe4ffd91d9694516523451c219af56e2bd4ea41e633577b335dc1af"
    )
