"""The parts that decoder families have in common, so that a family's file shows what is its own.

Shapes: [T, width] throughout, heads flattened (see `octavo.graph.ir`). Weight names are Hugging Face's.
"""

from __future__ import annotations

from octavo.graph.builder import Builder, Value
from octavo.graph.ir import Axis
from octavo.models.config import ModelConfig


def embed(config: ModelConfig, g: Builder) -> Value:
    """The embedding of the step's tokens: [T, hidden]."""
    return g.embed("model.embed_tokens", vocab=config.vocab_size, width=config.hidden_size)


def project_qkv(config: ModelConfig, g: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Queries [T, heads * head_dim]; keys and values [T, kv_heads * head_dim]."""
    q, k, v = g.linear_split(
        x,
        ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        [config.heads * config.head_dim, config.kv_heads * config.head_dim, config.kv_heads * config.head_dim],
        axes=[Axis("heads", config.heads), *[Axis("kv_heads", config.kv_heads)] * 2],
        bias=config.qkv_bias,
    )
    return q, k, v


def attend(config: ModelConfig, g: Builder, layer: int, q: Value, k: Value, v: Value) -> Value:
    """Attention over the cache and its output projection: [T, hidden]."""
    a = g.attention(
        q,
        k,
        v,
        layer=layer,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        scale=config.attention_scale * (config.attention_factors[layer] ** 2 if config.attention_factors else 1.0),
        window=config.windows[layer],
        softcap=config.attention_softcap,
        causal=config.causal,
    )
    return g.linear(
        a, "self_attn.o_proj", config.hidden_size, axes=("embed", Axis("heads", config.heads)), bias=config.output_bias
    )


def gated_mlp(config: ModelConfig, g: Builder, x: Value) -> Value:
    """``down(activation(gate(x)) * up(x))``: [T, hidden]."""
    gate, up = g.linear_split(
        x,
        ["mlp.gate_proj", "mlp.up_proj"],
        [config.intermediate_size, config.intermediate_size],
        axes=["mlp", "mlp"],
        bias=config.mlp_bias,
    )
    x = g.gated_activation(gate, up, config.activation)
    return g.linear(x, "mlp.down_proj", config.hidden_size, axes=("embed", "mlp"), bias=config.mlp_bias)


def output_logits(config: ModelConfig, g: Builder, h: Value) -> None:
    """The output ``logits`` [S, vocab] from normalised hidden states [S, hidden]."""
    name = "model.embed_tokens" if config.tied_embeddings else "lm_head"
    logits = g.linear(h, name, config.vocab_size, axes=("vocab", "embed"))
    if config.logit_softcap is not None:
        logits = g.softcap(logits, config.logit_softcap)
    g.output("logits", logits)
