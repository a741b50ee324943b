"""Qwen 3, dense: every head of q and k is normalised before it is rotated; no biases unless asked for.

Source: Yang et al. 2025, and the defaults of transformers' Qwen3Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.graph.builder import Builder
from octavo.models.blocks import attend, embed, gated_mlp, output_logits, project_qkv
from octavo.models.config import ModelConfig
from octavo.models.config_keys import check_keys
from octavo.models.family import Family
from octavo.models.fields import Fields
from octavo.models.hf_config import decoder_config
from octavo.models.qwen2 import DEFAULTS, HARMLESS, qwen_windows


def build(config: ModelConfig, g: Builder) -> None:
    """Pre-norm decoder as Llama's, with normalised queries and keys."""
    h = embed(config, g)
    for i in range(config.layers):
        with g.scope(f"model.layers.{i}", layer=i):
            x = g.rms_norm(h, "input_layernorm", eps=config.norm_eps)
            q, k, v = project_qkv(config, g, x)
            q = g.rms_norm(q, "self_attn.q_norm", eps=config.norm_eps, width=config.head_dim)
            k = g.rms_norm(k, "self_attn.k_norm", eps=config.norm_eps, width=config.head_dim)
            q, k = g.rope(q, k, config.ropes[i])
            h = g.add(h, attend(config, g, i, q, k, v))
            x = g.rms_norm(h, "post_attention_layernorm", eps=config.norm_eps)
            h = g.add(h, gated_mlp(config, g, x))
    h = g.rms_norm(g.take_rows(h), "model.norm", eps=config.norm_eps)
    output_logits(config, g, h)


def parse(config: Mapping[str, Any]) -> ModelConfig:
    """Qwen3ForCausalLM."""
    fields = Fields(config, {**DEFAULTS, "head_dim": 128})
    base = decoder_config("qwen3", fields)
    bias = fields.flag("attention_bias")
    seen = qwen_windows(fields, base.layers)
    check_keys(fields, HARMLESS)
    return replace(base, qkv_bias=bias, output_bias=bias, windows=seen)


QWEN3 = Family("qwen3", ("Qwen3ForCausalLM", "Qwen3Model"), parse, build)
