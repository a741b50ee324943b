"""Small decoders of every structure that the passes meet, and weights for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from octavo.graph import Axis, Builder, Graph, RopeSpec, Value

Weights = dict[str, npt.NDArray[np.float64]]
VOCAB, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP = 23, 12, 4, 2, 4, 10
Q, KV = Axis("heads", HEADS), Axis("kv_heads", KV_HEADS)


@dataclass(frozen=True)
class Shape:
    """A decoder's structure. ``windows`` has one entry a layer."""

    windows: tuple[int | None, ...] = (None, None)
    split: bool = True
    """linear_split, or three linears in a row with something between them."""
    bias: bool = False
    output_bias: bool = False
    """Of the output projection of attention."""
    qk_norm: bool = False
    post_norm: bool = False
    """Norms of the branches before they are added, as in Gemma."""
    parallel: bool = False
    """Attention and MLP read norms of the same sum."""
    late_norm: bool = False
    """A norm of an earlier sum after the next one was made."""
    hidden_output: bool = False
    """The last sum is an output of the step as well."""
    activation: str = "silu"


def decoder(shape: Shape = Shape(), name: str = "tiny", dtype: str = "f32", fmt: str = "f32") -> Graph:
    g = Builder(name, dtype, lambda weight: fmt)
    h = g.embed("model.embed_tokens", vocab=VOCAB, width=WIDTH)
    for i, window in enumerate(shape.windows):
        with g.scope(f"model.layers.{i}", layer=i):
            h = _layer(g, h, i, window, shape)
    h = g.rms_norm(h, "model.norm", eps=1e-5)
    if shape.hidden_output:
        g.output("hidden", h)
    g.output("logits", g.linear(g.take_rows(h), "model.embed_tokens", VOCAB, axes=("vocab", "embed")))
    return g.build()


def _layer(g: Builder, h: Value, layer: int, window: int | None, shape: Shape) -> Value:
    x = g.rms_norm(h, "input_layernorm", eps=1e-5)
    names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
    if shape.split:
        q, k, v = g.linear_split(x, names, sizes, axes=[Q, KV, KV], bias=shape.bias)
    else:
        q = g.linear(x, names[0], sizes[0], axes=(Q, "embed"), bias=shape.bias)
        q = g.scale(q, 0.5)
        k, v = (g.linear(x, names[i], sizes[i], axes=(KV, "embed"), bias=shape.bias) for i in (1, 2))
    if shape.qk_norm:
        q = g.rms_norm(q, "self_attn.q_norm", eps=1e-5, offset=1.0, width=HEAD_DIM)
        k = g.rms_norm(k, "self_attn.k_norm", eps=1e-5, offset=1.0, width=HEAD_DIM)
    q, k = g.rope(q, k, RopeSpec(HEAD_DIM, 100.0))
    a = g.attention(
        q, k, v, layer=layer, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, scale=HEAD_DIM**-0.5, window=window
    )
    a = g.linear(a, "self_attn.o_proj", WIDTH, axes=("embed", Q), bias=shape.output_bias)
    if shape.post_norm:
        a = g.rms_norm(a, "post_attention_norm", eps=1e-5)
    first = g.add(h, a)
    if shape.late_norm:
        # The second sum is made before anyone reads the norm of the first: what reads the first sum first is an add.
        second = g.add(first, a)
        y = g.rms_norm(first, "post_attention_layernorm", eps=1e-5)
        first = g.add(first, g.rms_norm(second, "late_norm", eps=1e-5))
    else:
        y = g.rms_norm(h if shape.parallel else first, "post_attention_layernorm", eps=1e-5)
    gate, up = g.linear_split(y, ["mlp.gate_proj", "mlp.up_proj"], [MLP, MLP], axes=["mlp", "mlp"], bias=shape.bias)
    m = g.linear(g.gated_activation(gate, up, shape.activation), "mlp.down_proj", WIDTH, axes=("embed", "mlp"))
    if shape.post_norm:
        m = g.rms_norm(m, "post_mlp_norm", eps=1e-5)
    return g.add(first, m)


shapes = st.builds(
    Shape,
    windows=st.lists(st.none() | st.sampled_from([1, 3, 6]), min_size=1, max_size=3).map(tuple),
    split=st.booleans(),
    bias=st.booleans(),
    output_bias=st.booleans(),
    qk_norm=st.booleans(),
    post_norm=st.booleans(),
    parallel=st.booleans(),
    late_norm=st.booleans(),
    hidden_output=st.booleans(),
    activation=st.sampled_from(["silu", "gelu_tanh"]),
)


def random_weights(graph: Graph, seed: int = 0) -> Weights:
    """Large enough that every part of the graph shows in the logits."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(graph.weights[name].shape) for name in sorted(graph.weights)}
