"""Llama 2 and 3, and the many models of their shape: SmolLM, SmolLM2, TinyLlama, and Mistral.

Source: Touvron et al. 2023, Grattafiori et al. 2024, Jiang et al. 2023 (Mistral's sliding window), and the
defaults of transformers' LlamaConfig and MistralConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.graph.builder import Builder
from octavo.models.blocks import attend, embed, gated_mlp, output_logits, project_qkv
from octavo.models.config import ModelConfig
from octavo.models.config_keys import DECODERS, check_keys
from octavo.models.family import Family
from octavo.models.fields import Fields
from octavo.models.hf_config import decoder_config, layer_types, windows
from octavo.models.hf_rope import GLOBAL, LOCAL

_LLAMA_DEFAULTS = {
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_MISTRAL_DEFAULTS = {
    **_LLAMA_DEFAULTS,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "sliding_window": 4096,  # absent is not null: null means no window
}

# Of tensor-parallel training, equal but for rounding; and what the reference does not read.
_HARMLESS = (
    *DECODERS,
    "pretraining_tp",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "is_llama_config",
    "rope_interleaved",
)


def build(config: ModelConfig, g: Builder) -> None:
    """Pre-norm decoder with rotary grouped-query attention and a gated MLP."""
    h = embed(config, g)
    for i in range(config.layers):
        with g.scope(f"model.layers.{i}", layer=i):
            x = g.rms_norm(h, "input_layernorm", eps=config.norm_eps)
            q, k, v = project_qkv(config, g, x)
            q, k = g.rope(q, k, config.ropes[i])
            h = g.add(h, attend(config, g, i, q, k, v))
            x = g.rms_norm(h, "post_attention_layernorm", eps=config.norm_eps)
            h = g.add(h, gated_mlp(config, g, x))
    h = g.rms_norm(g.take_rows(h), "model.norm", eps=config.norm_eps)
    output_logits(config, g, h)


def parse_llama(config: Mapping[str, Any]) -> ModelConfig:
    """LlamaForCausalLM: optional biases; a window in the layers that ``layer_types`` names, if it names any."""
    fields = Fields(config, _LLAMA_DEFAULTS)
    bias, mlp_bias = fields.flag("attention_bias"), fields.flag("mlp_bias")
    base = decoder_config("llama", fields)
    kinds = layer_types(fields, base.layers, [GLOBAL] * base.layers)
    window = fields.positive_integer("sliding_window") if LOCAL in kinds else None
    check_keys(fields, _HARMLESS)
    return replace(base, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, windows=windows(kinds, window))


def parse_mistral(config: Mapping[str, Any]) -> ModelConfig:
    """MistralForCausalLM: no biases, one window for all layers or none; or as ``layer_types`` says."""
    fields = Fields(config, _MISTRAL_DEFAULTS)
    base = decoder_config("mistral", fields)
    window = fields.positive_integer("sliding_window")
    kinds = layer_types(fields, base.layers, [GLOBAL if window is None else LOCAL] * base.layers)
    check_keys(fields, DECODERS)
    return replace(base, windows=windows(kinds, window))


LLAMA = Family("llama", ("LlamaForCausalLM", "LlamaModel"), parse_llama, build)
MISTRAL = Family(
    "mistral",
    ("MistralForCausalLM", "MistralModel", "MinistralForCausalLM", "MinistralModel"),
    parse_mistral,
    build,
)
