"""The builder: names, axes and formats of weights, and errors that say where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graph.decoders import Shape, decoder

from octavo.errors import GraphError
from octavo.graph import Axis, Builder, Graph, RopeSpec, TensorType, Value, WeightSpec


def test_weights_have_checkpoint_names_shapes_axes_and_their_own_format() -> None:
    formats = {"layers.3.self_attn.k_proj.weight": "q4_1"}
    g = Builder("m", format_of=lambda name: formats.get(name, "bf16"))
    h = g.embed("embed_tokens", vocab=50, width=8)
    with g.scope("layers.3"):
        x = g.rms_norm(h, "norm", eps=1e-5)
        with g.scope("self_attn"):
            q, k = g.linear_split(x, ["q_proj", "k_proj"], [8, 4], axes=["heads", "kv_heads"], bias=True)
            q = g.rms_norm(q, "q_norm", eps=1e-5, width=4)
    g.output("q", g.layer_norm(q, "out_norm", eps=1e-5))
    g.output("k", k)
    assert g.build().weights == {
        "embed_tokens.weight": WeightSpec((50, 8), (Axis("vocab", 50), Axis("embed", 8)), "bf16"),
        "layers.3.norm.weight": WeightSpec((8,), (Axis("embed", 8),), "bf16"),
        "layers.3.self_attn.q_proj.weight": WeightSpec((8, 8), (Axis("heads", 8), Axis("embed", 8)), "bf16"),
        "layers.3.self_attn.k_proj.weight": WeightSpec((4, 8), (Axis("kv_heads", 4), Axis("embed", 8)), "q4_1"),
        "layers.3.self_attn.q_proj.bias": WeightSpec((8,), (Axis("heads", 8),), "bf16"),
        "layers.3.self_attn.k_proj.bias": WeightSpec((4,), (Axis("kv_heads", 4),), "bf16"),
        "layers.3.self_attn.q_norm.weight": WeightSpec((4,), (Axis("head_dim", 4),), "bf16"),
        "out_norm.weight": WeightSpec((8,), (Axis("embed", 8),), "bf16"),
        "out_norm.bias": WeightSpec((8,), (Axis("embed", 8),), "bf16"),
    }


def test_a_tied_weight_is_one_weight() -> None:
    graph = decoder()
    users = [n.op for n in graph.nodes if "model.embed_tokens.weight" in n.weights]
    assert users == ["embed", "linear"]


def test_every_value_is_written_once_before_it_is_read() -> None:
    graph = decoder(Shape(late_norm=True, split=False, qk_norm=True))
    written = set(graph.inputs)
    for node in graph.nodes:
        assert written.issuperset(node.inputs)
        assert written.isdisjoint(node.outputs)
        written.update(node.outputs)
    assert written == set(graph.types)
    assert written.issuperset(graph.outputs.values())


def test_step_inputs_count_the_kv_groups() -> None:
    graph = decoder(Shape(windows=(None, 4)))
    assert graph.inputs["slots"] == TensorType((2, "T"), "i32")
    assert graph.inputs["block_tables"] == TensorType((2, "R", "B"), "i32")
    assert graph.types["slots"] == graph.inputs["slots"]


def test_sinks_are_a_weight_whose_name_is_complete() -> None:
    g = Builder("m")
    h = g.embed("e", vocab=5, width=8)
    with g.scope("a"):
        y = g.attention(h, h, h, layer=0, heads=2, kv_heads=2, head_dim=4, scale=1.0, sinks="sinks")
    g.output("y", y)
    assert g.build().weights["a.sinks"] == WeightSpec((2,), (Axis("heads", 2),), "f32")


def test_attributes_that_are_not_given_are_not_there() -> None:
    attention = next(n for n in decoder().nodes if n.op == "attention")
    assert "window" not in attention.attrs
    assert "softcap" not in attention.attrs
    assert list(attention.attrs) == sorted(attention.attrs)


def attend(g: Builder, x: Value, layer: int, **changed: int) -> Value:
    sizes = {"heads": 2, "kv_heads": 2, "head_dim": 4, **changed}
    return g.attention(x, x, x, layer=layer, scale=1.0, **sizes)  # type: ignore[arg-type]


def wrong_width(g: Builder, x: Value) -> None:
    g.add(x, g.linear(x, "down", 6))


def reused(g: Builder, x: Value) -> None:
    g.linear(x, "up", 6)
    g.linear(x, "up", 7)


def late_layer(g: Builder, x: Value) -> None:
    attend(g, x, 1)


def same_layer_twice(g: Builder, x: Value) -> None:
    attend(g, attend(g, x, 0), 0)


def heads_do_not_fit(g: Builder, x: Value) -> None:
    attend(g, x, 0, head_dim=3)


def uneven_rope(g: Builder, x: Value) -> None:
    g.rope(x, x, RopeSpec(3))


def unknown_activation(g: Builder, x: Value) -> None:
    g.activation(x, "swish")


def infinite_scale(g: Builder, x: Value) -> None:
    g.scale(x, float("inf"))


def linear_of_ids(g: Builder, x: Value) -> None:
    g.linear(g.tokens, "up", 6)


def norm_of_ids(g: Builder, x: Value) -> None:
    g.rms_norm(g.positions, "norm", eps=1e-5)


def uneven_norm(g: Builder, x: Value) -> None:
    g.rms_norm(x, "norm", eps=1e-5, width=3)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (wrong_width, r"^m: add in layers\.2: .*f32\[T, 8\], f32\[T, 6\]"),
        (reused, r"^m: weight layers\.2\.up\.weight is used with shape \(7, 8\) and with \(6, 8\)"),
        (late_layer, r"^m: attention in layers\.2: layers are numbered in order: 1 came where 0 was due"),
        (same_layer_twice, r"^m: attention in layers\.2: .* 0 came where 1 was due"),
        (heads_do_not_fit, r"^m: attention in layers\.2: q is f32\[T, 8\], not 2 heads of 3"),
        (uneven_rope, r"^m: rope in layers\.2: rotary_dim must be even and at most head_dim 3, not 3"),
        (unknown_activation, r"^m: activation in layers\.2: activation 'swish' is not known"),
        (infinite_scale, r"^m: scale in layers\.2: an attribute cannot hold inf"),
        (linear_of_ids, r"^m: linear in layers\.2: i32\[T\] has no fixed width"),
        (norm_of_ids, r"^m: rms_norm in layers\.2: i32\[T\] has no fixed width"),
        (uneven_norm, r"^m: rms_norm in layers\.2: a norm of width 3 does not divide f32\[T, 8\]"),
    ],
)
def test_a_mistake_is_told_with_its_place(mistake: Callable[[Builder, Value], None], message: str) -> None:
    g = Builder("m")
    x = g.embed("e", vocab=5, width=8)
    with pytest.raises(GraphError, match=message), g.scope("layers"), g.scope("2"):
        mistake(g, x)
    with pytest.raises(GraphError, match="in the top scope"):  # the scopes were left in spite of the error
        g.add(x, g.linear(x, "other", 6))


def test_unlike_attention_layers_cannot_share_a_pool() -> None:
    g = Builder("m")
    x = g.embed("e", vocab=5, width=8)
    x = attend(g, attend(g, x, 0), 1, heads=4, kv_heads=4, head_dim=2)
    g.output("x", x)
    with pytest.raises(GraphError, match=r"^m: attention layer 1 keeps 4 KV heads of 2, layer 0 2 of 4"):
        g.build()


def test_a_graph_needs_an_output_and_each_its_own_name() -> None:
    g = Builder("m")
    x = g.embed("e", vocab=5, width=8)
    with pytest.raises(GraphError, match=r"^m: the graph has no output"):
        g.build()
    g.output("logits", x)
    with pytest.raises(GraphError, match=r"^m: output logits is given twice"):
        g.output("logits", x)


@pytest.mark.parametrize("value", [object(), {"a": [{"b": object()}]}, [float("nan")]])
def test_attributes_hold_what_json_holds(value: object) -> None:
    from octavo.graph.ir import freeze

    with pytest.raises(GraphError, match="an attribute cannot hold"):
        freeze(value)


def test_a_frozen_attribute_cannot_be_changed_and_does_not_follow_its_source() -> None:
    from octavo.graph.ir import freeze

    source = {"b": [1, [2.5, None]], "a": {"x": True}}
    frozen = freeze(source)
    source["b"].append(3)  # type: ignore[attr-defined]
    assert frozen == {"a": {"x": True}, "b": (1, (2.5, None))}
    with pytest.raises(TypeError, match="does not support item assignment"):
        frozen["a"]["x"] = False  # type: ignore[index]


def test_building_twice_gives_equal_graphs() -> None:
    def build() -> Graph:
        return decoder(Shape(windows=(3, None), bias=True))

    assert build() == build()
