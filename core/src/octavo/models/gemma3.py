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
from octavo.models.blocks import attend, embed, gated_mlp, output_logits, project_qkv
from octavo.models.config import ModelConfig
from octavo.models.config_keys import DECODERS, check_keys
from octavo.models.family import Family
from octavo.models.fields import Fields, mapping
from octavo.models.hf_config import decoder_config, inverse_root, layer_types, text_config, windows
from octavo.models.hf_rope import GLOBAL, LOCAL, Rotation, rotation

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
# The reference reads attn_logit_softcapping and does not apply it: that was Gemma 2's.
_HARMLESS = (
    *DECODERS,
    "attn_logit_softcapping",
)
# Beside the language model: how pictures become tokens.
_OUTER_HARMLESS = (
    *DECODERS, "boi_token_index", "eoi_token_index", "image_token_id", "image_token_index", "mm_tokens_per_image",
    "vision_config",
)  # fmt: skip
_PATTERN = 6
_OUTER = ("bos_token_id", "eos_token_id", "tie_word_embeddings")
_THETA = {GLOBAL: ("rope_theta", 1000000.0), LOCAL: ("rope_local_base_freq", 10000.0)}


def build(config: ModelConfig, g: Builder) -> None:
    """Decoder with norms before and after attention and MLP, and normalised queries and keys."""

    def norm(x: Value, name: str, width: int | None = None) -> Value:
        return g.rms_norm(x, name, eps=config.norm_eps, offset=1.0, width=width)

    h = g.scale(embed(config, g), math.sqrt(config.hidden_size))
    for i in range(config.layers):
        with g.scope(f"model.layers.{i}", layer=i):
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
    fields = Fields(text_config(config, _OUTER), _DEFAULTS)
    if fields.config is not config:
        outer = Fields(config, {})
        outer.read.update(("text_config", *_OUTER))
        check_keys(outer, _OUTER_HARMLESS)
    if fields.flag("use_bidirectional_attention"):
        raise CheckpointError("config.json: use_bidirectional_attention is set, which is not supported")
    base = decoder_config("gemma3", fields, lambda fields, head_dim: _rope(fields, head_dim, GLOBAL))
    kinds = layer_types(fields, base.layers, _pattern(fields, base.layers))
    ropes = {kind: _rope(fields, base.head_dim, kind) for kind in (GLOBAL, LOCAL)}
    bias = fields.flag("attention_bias")
    seen = windows(kinds, fields.positive_integer("sliding_window"))
    logit_softcap = fields.positive_number("final_logit_softcapping")
    scale = inverse_root(fields.number("query_pre_attn_scalar"), "query_pre_attn_scalar")
    check_keys(fields, _HARMLESS)
    return replace(
        base,
        ropes=tuple(ropes[kind].spec for kind in kinds),
        attention_factors=tuple(ropes[kind].attention_factor for kind in kinds),
        windows=seen,
        attention_scale=scale,
        qkv_bias=bias,
        output_bias=bias,
        logit_softcap=logit_softcap,
    )


def _pattern(fields: Fields, layers: int) -> list[str]:
    """Layer types of a config that predates ``layer_types``: every n-th layer is global."""
    older = fields.positive_integer("_sliding_window_pattern")
    period = fields.positive_integer("sliding_window_pattern") or older or _PATTERN
    return [GLOBAL if (i + 1) % period == 0 else LOCAL for i in range(layers)]


def _rope(fields: Fields, head_dim: int, kind: str) -> Rotation:
    """The rope of one kind of layer. ``rope_scaling``, in older configs, is that of the global layers."""
    key, default = _THETA[kind]
    nested, scaling = fields.mapping("rope_parameters"), fields.mapping("rope_scaling")
    parameters = dict(mapping(nested.get(kind), f"rope_parameters.{kind}"))
    if LOCAL not in nested and GLOBAL not in nested:  # one object for all: as rope_scaling, that of the global layers
        scaling = {**nested, **scaling}
    if kind == GLOBAL:
        parameters.update(scaling)
    theta, beside = parameters.get("rope_theta"), fields.raw(key)
    if theta is None:
        theta = beside
    return rotation(parameters, head_dim, default if theta is None else theta, fields)


GEMMA3 = Family("gemma3", ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), parse, build)
