"""Qwen 2 and 2.5: Llama with biases on q, k and v, and an optional window in the upper layers.

Source: Yang et al. 2024, and the defaults of transformers' Qwen2Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.models import llama
from octavo.models.config import ModelConfig
from octavo.models.config_keys import DECODERS, check_keys
from octavo.models.family import Family
from octavo.models.fields import Fields
from octavo.models.hf_config import decoder_config, layer_types, windows
from octavo.models.hf_rope import GLOBAL, LOCAL

DEFAULTS = {
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
# The reference's classes have biases where they have them, whatever these say.
HARMLESS = (*DECODERS, "attention_bias", "use_mrope", "qkv_bias", "no_bias", "rotary_base", "seq_length")


def parse(config: Mapping[str, Any]) -> ModelConfig:
    """Qwen2ForCausalLM."""
    fields = Fields(config, DEFAULTS)
    base = decoder_config("qwen2", fields)
    seen = qwen_windows(fields, base.layers)
    check_keys(fields, HARMLESS)
    return replace(base, qkv_bias=True, windows=seen)


def qwen_windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Qwen's windows: none unless ``use_sliding_window``; then in the layers from ``max_window_layers`` on,
    or as ``layer_types`` says.
    """
    used, window = fields.flag("use_sliding_window"), fields.positive_integer("sliding_window")
    first = fields.optional_integer("max_window_layers")
    if not used or window is None:
        return windows(layer_types(fields, layers, [GLOBAL] * layers), None)
    first = layers if first is None else first
    return windows(layer_types(fields, layers, [LOCAL if i >= first else GLOBAL for i in range(layers)]), window)


QWEN2 = Family("qwen2", ("Qwen2ForCausalLM", "Qwen2Model"), parse, llama.build)
