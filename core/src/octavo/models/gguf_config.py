"""GGUF metadata as a Hugging Face config.json and generation_config.json.

GGUF keys are ``<architecture>.<field>`` (source: the GGUF specification and llama.cpp's loader, whose
defaults are taken where a key is optional). The result uses the vocabulary of transformers 5
(``rope_parameters``, ``layer_types``), so that families parse one kind of config only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.models.fields import positive, shown
from octavo.models.gguf_file import GGUFFile
from octavo.models.gguf_rope import rope_scaling
from octavo.models.hf_config import MOST_LAYERS
from octavo.quant import dequantise

_GEMMA3_PATTERN = 6  # five local layers, then a global one
_GEMMA3_27B_LAYERS = 62
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


class _Keys:
    """Reads ``<architecture>.<field>``; a missing or ill-typed required field is a CheckpointError."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture

    def get(self, field: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.architecture}.{field}", default)

    def number(self, field: str, default: Any = None) -> Any:
        """A number; a list that holds one value for every layer counts as that value."""
        value = self.get(field, default)
        if isinstance(value, list):
            if not value or any(one != value[0] for one in value):
                raise CheckpointError(
                    f"{self.file.path}: {self.architecture}.{field} differs from layer to layer, which is not supported"
                )
            value = value[0]
        if value is None:
            raise CheckpointError(f"{self.file.path} lacks the metadata key {self.architecture}.{field}")
        if isinstance(value, (str, bool, list)):
            raise CheckpointError(f"{self.file.path}: {self.architecture}.{field} is {shown(value)}, not a number")
        return value

    def count(self, field: str, default: Any = None) -> int:
        """A whole number of at least 1."""
        value = self.number(field, default)
        if not isinstance(value, int) or value < 1:
            raise CheckpointError(
                f"{self.file.path}: {self.architecture}.{field} is {shown(value)}; it must be a whole number above 0"
            )
        return value

    def token(self, key: str) -> int | None:
        """A token id of the tokenizer's metadata, or None."""
        value = self.file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise CheckpointError(f"{self.file.path}: tokenizer.ggml.{key}_token_id is {shown(value)}, not a token id")
        return value


def hugging_face_config(file: GGUFFile) -> dict[str, Any]:
    """config.json for the model in ``file``; UnknownArchitecture if no graph of ours can run it."""
    architecture = file.metadata.get("general.architecture")
    fields_of = _ARCHITECTURES.get(str(architecture))
    if fields_of is None:
        raise UnknownArchitecture(
            f"{file.path} has architecture {architecture!r}; known in GGUF files: {', '.join(_ARCHITECTURES)}"
        )
    keys = _Keys(file, str(architecture))
    if keys.get("expert_count", 0) not in (0, None):
        raise UnknownArchitecture(f"{file.path} is a mixture of experts ({architecture}), which is not supported yet")
    return {**_shared(keys), **fields_of(keys)}


def generation_config(file: GGUFFile) -> dict[str, Any]:
    """generation_config.json: the ids that end a sequence, and the sampling defaults some files carry."""
    keys = _Keys(file, "")
    bos, pad, *ends = (keys.token(key) for key in ("bos", "padding", "eos", "eot", "eom"))
    stops = list(dict.fromkeys(token for token in ends if token is not None))
    config: dict[str, Any] = {"bos_token_id": bos, "eos_token_id": stops, "pad_token_id": pad}
    for key, name in _SAMPLING.items():
        if (value := file.metadata.get(f"general.sampling.{key}")) is not None:
            config[name] = value
    return {key: value for key, value in config.items() if value not in (None, [])}


def _shared(keys: _Keys) -> dict[str, Any]:
    """Fields with one meaning in every architecture."""
    file = keys.file
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{file.path} has no token_embd.weight of two dimensions: it holds no language model")
    heads, hidden, head_dim = keys.count("attention.head_count"), keys.count("embedding_length"), _head_dim(keys)
    if keys.number("attention.value_length", head_dim) != head_dim:
        raise CheckpointError(
            f"{file.path}: {keys.architecture}.attention.value_length is {keys.number('attention.value_length')}, but "
            f"heads have {head_dim}; only equal widths are supported"
        )
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": keys.number("feed_forward_length"),
        "num_hidden_layers": keys.number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.number("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": keys.number("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": keys.token("bos"),
        "eos_token_id": keys.token("eos"),
        "pad_token_id": keys.token("padding"),
    }


def _head_dim(keys: _Keys) -> int:
    return keys.count(
        "attention.key_length", keys.count("embedding_length") // keys.count("attention.head_count") or None
    )


def _rope(keys: _Keys, theta: float) -> dict[str, Any]:
    """``rope_parameters``: the base, its scaling, and the part of a head that is rotated."""
    head_dim, scaling = _head_dim(keys), _scaling(keys)
    turned = keys.count("rope.dimension_count", head_dim)
    if turned > head_dim:
        raise CheckpointError(
            f"{keys.file.path}: {keys.architecture}.rope.dimension_count is {turned}, but heads have {head_dim}"
        )
    part = {} if turned == head_dim else {"partial_rotary_factor": turned / head_dim}
    if keys.architecture == "llama" and "rope_freqs.weight" in keys.file.tensors:
        divisors = dequantise(keys.file.tensor("rope_freqs.weight"))
        try:
            scaling = rope_scaling(divisors, keys.number("rope.freq_base", theta), turned)
        except CheckpointError as error:
            raise CheckpointError(f"{keys.file.path}: {error}") from error
    return {"rope_theta": keys.number("rope.freq_base", theta), **scaling, **part}


def _scaling(keys: _Keys) -> dict[str, Any]:
    """``rope_parameters`` without the base: rope_type and its numbers, as far as GGUF states them.

    Source: llama.cpp's loader. What it multiplies queries and keys by is ``attn_factor``; for YaRN
    ``1 + 0.1 ln(factor)`` times that.
    """
    kind = keys.get("rope.scaling.type")
    factor = keys.get("rope.scaling.factor", keys.get("rope.scale_linear"))
    if kind == "none" or (kind is None and factor in (None, 0.0, 1.0)):
        return {"rope_type": "default"}
    if keys.get("rope.scaling.yarn_log_multiplier") not in (None, 0.0):
        raise CheckpointError(
            f"{keys.file.path}: {keys.architecture}.rope.scaling.yarn_log_multiplier is set, which is not supported"
        )
    scaling: dict[str, Any] = {"rope_type": kind or "linear"}
    if factor not in (None, 0.0):
        scaling["factor"] = factor
    if (original := keys.get("rope.scaling.original_context_length")) is not None:
        scaling["original_max_position_embeddings"] = original
    if kind == "longrope":
        for name in ("long", "short"):
            scaling[f"{name}_factor"] = _stored_factors(keys, f"rope_factors_{name}.weight")
        scaling["attention_factor"] = keys.number("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":
        for name in ("beta_fast", "beta_slow"):
            if (value := keys.get(f"rope.scaling.yarn_{name}")) is not None:
                scaling[name] = value
        scale = keys.number("rope.scaling.attn_factor", keys.number("rope.scaling.yarn_attn_factor", 1.0))
        stretch = positive(keys.number("rope.scaling.factor"), "rope.scaling.factor")
        scaling["attention_factor"] = scale * (1.0 if stretch <= 1 else 1 + 0.1 * math.log(stretch))
    return scaling


def _stored_factors(keys: _Keys, name: str) -> list[float]:
    if name not in keys.file.tensors:
        raise CheckpointError(f"{keys.file.path} has no tensor {name}, which rope scaling longrope needs")
    return [float(value) for value in dequantise(keys.file.tensor(name)).reshape(-1)]


def _llama(keys: _Keys) -> dict[str, Any]:
    # llama.cpp has one architecture for Llama and Mistral; a window is what tells them apart.
    file, window = keys.file, keys.get("attention.sliding_window")
    return {
        "architectures": ["MistralForCausalLM" if window else "LlamaForCausalLM"],
        "model_type": "mistral" if window else "llama",
        "hidden_act": "silu",
        "rope_parameters": _rope(keys, 10000.0),
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "sliding_window": window or None,
    }


def _qwen2(keys: _Keys) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "rope_parameters": _rope(keys, 10000.0),
        "use_sliding_window": False,
    }


def _qwen3(keys: _Keys) -> dict[str, Any]:
    return {
        **_qwen2(keys),
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": "blk.0.attn_q.bias" in keys.file.tensors,
    }


def _gemma3(keys: _Keys) -> dict[str, Any]:
    layers, window = keys.count("block_count"), keys.get("attention.sliding_window")
    heads, hidden, head_dim = keys.count("attention.head_count"), keys.count("embedding_length"), _head_dim(keys)
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        # Not stored. The 27B model alone scales queries by its width per head (source: llama.cpp's loader).
        "query_pre_attn_scalar": hidden // heads if layers == _GEMMA3_27B_LAYERS else head_dim,
        "sliding_window": window or None,
        "layer_types": _gemma3_layer_types(keys, layers, bool(window)),
        "rope_parameters": {
            "full_attention": _rope(keys, 1000000.0),
            "sliding_attention": {"rope_theta": keys.number("rope.freq_base_swa", 10000.0), "rope_type": "default"},
        },
        "attn_logit_softcapping": keys.get("attn_logit_softcapping"),
        "final_logit_softcapping": keys.get("final_logit_softcapping"),
    }


def _gemma3_layer_types(keys: _Keys, layers: int, windowed: bool) -> list[str]:
    pattern = keys.get("attention.sliding_window_pattern", _GEMMA3_PATTERN)
    if not windowed:
        local = [False] * min(layers, MOST_LAYERS)
    elif isinstance(pattern, list):
        local = [bool(flag) for flag in pattern]
    else:
        period = keys.count("attention.sliding_window_pattern", _GEMMA3_PATTERN)
        local = [(layer + 1) % period != 0 for layer in range(min(layers, MOST_LAYERS))]
    if len(local) != min(layers, MOST_LAYERS):
        raise CheckpointError(
            f"{keys.file.path}: the sliding-window pattern names {len(local)} layers, the model has {layers}"
        )
    return ["sliding_attention" if flag else "full_attention" for flag in local]


_ARCHITECTURES: Mapping[str, Callable[[_Keys], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
}
