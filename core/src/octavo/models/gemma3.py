"""Gemma 3, its language model: local layers with a window and a small rope base, every sixth one global.

Source: Gemma Team 2025, and transformers' Gemma3TextConfig. Norms multiply by ``1 + w``. A checkpoint with
vision (Gemma3ForConditionalGeneration) runs as text alone; its config lies under ``text_config``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.errors import CheckpointError
from octavo.graph.builder import Builder, Value
from octavo.graph.rope import RopeSpec
from octavo.models.blocks import attend, embed, gated_mlp, output_logits, project_qkv
from octavo.models.config import ModelConfig
from octavo.models.family import Family
from octavo.models.hf_config import GLOBAL, LOCAL, Fields, decoder_config, layer_types, rope_spec, windows

# The multimodal checkpoints leave out of text_config whatever is at its default.
_DEFAULTS = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
_PATTERN = 6
_OUTER = ("bos_token_id", "eos_token_id", "tie_word_embeddings")
_THETA = {GLOBAL: ("rope_theta", 1000000.0), LOCAL: ("rope_local_base_freq", 10000.0)}


def build(config: ModelConfig, g: Builder) -> None:
    """Decoder with norms before and after attention and MLP, and normalised queries and keys."""

    def norm(x: Value, name: str, width: int | None = None) -> Value:
        return g.rms_norm(x, name, eps=config.norm_eps, offset=1.0, width=width)

    h = g.scale(embed(config, g), math.sqrt(config.hidden_size))
    for i in range(config.layers):
        with g.scope(f"model.layers.{i}"):
            q, k, v = project_qkv(config, g, norm(h, "input_layernorm"))
            q = norm(q, "self_attn.q_norm", width=config.head_dim)
            k = norm(k, "self_attn.k_norm", width=config.head_dim)
            q, k = g.rope(q, k, config.ropes[i])
            h = g.add(h, norm(attend(config, g, i, q, k, v), "post_attention_layernorm"))
            x = gated_mlp(config, g, norm(h, "pre_feedforward_layernorm"))
            h = g.add(h, norm(x, "post_feedforward_layernorm"))
    output_logits(config, g, norm(g.take_rows(h), "model.norm"))


def parse(config: Mapping[str, Any]) -> ModelConfig:
    """Gemma3ForCausalLM, or the text part of Gemma3ForConditionalGeneration."""
    fields = Fields(_text_config(config), _DEFAULTS)
    if fields.flag("use_bidirectional_attention"):
        raise CheckpointError("config.json: use_bidirectional_attention is set, which is not supported")
    base = decoder_config("gemma3", fields, lambda fields, head_dim: _rope(fields, head_dim, GLOBAL))
    kinds = layer_types(fields, base.layers, _pattern(fields, base.layers))
    ropes = {kind: _rope(fields, base.head_dim, kind) for kind in (GLOBAL, LOCAL)}
    bias = fields.flag("attention_bias")
    return replace(
        base,
        ropes=tuple(ropes[kind] for kind in kinds),
        windows=windows(kinds, fields.optional_integer("sliding_window")),
        attention_scale=fields.number("query_pre_attn_scalar") ** -0.5,
        qkv_bias=bias,
        output_bias=bias,
        attention_softcap=fields.optional_number("attn_logit_softcapping"),
        logit_softcap=fields.optional_number("final_logit_softcapping"),
    )


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a multimodal config; its token ids may stand outside."""
    text = config.get("text_config")
    if text is None:
        return config
    if not isinstance(text, Mapping):
        raise CheckpointError(f"config.json: text_config is {text!r}; it must be an object")
    return {**{key: config[key] for key in _OUTER if key in config}, **text}


def _pattern(fields: Fields, layers: int) -> list[str]:
    """Layer types of a config that predates ``layer_types``: every n-th layer is global."""
    period = fields.optional_integer("sliding_window_pattern") or fields.optional_integer("_sliding_window_pattern")
    return [GLOBAL if (i + 1) % (period or _PATTERN) == 0 else LOCAL for i in range(layers)]


def _rope(fields: Fields, head_dim: int, kind: str) -> RopeSpec:
    """The rope of one kind of layer. ``rope_scaling``, in older configs, is that of the global layers."""
    key, default = _THETA[kind]
    parameters = dict(fields.mapping("rope_parameters").get(kind) or {})
    if kind == GLOBAL:
        parameters.update(fields.mapping("rope_scaling"))
    theta = parameters.get("rope_theta")
    if theta is None:
        theta = fields.raw(key)
    return rope_spec(parameters, head_dim, default if theta is None else theta, fields)


GEMMA3 = Family("gemma3", ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), parse, build)
