"""Tiny checkpoints of every family, written by transformers from a seed, and the same models as GGUF files.

The GGUF writer here follows llama.cpp's converter (names from the `gguf` package, q and k rows of Llama
interleaved, Gemma's norms plus one), not Octavo's reader, so that the two check each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file

VOCAB = 300
BOS, EOS = 1, 2

_SHARED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class _Kind:
    """How transformers calls a family, and what makes its tiny model interesting."""

    architecture: str
    config: str
    gguf: str
    fields: Mapping[str, Any]


_KINDS: dict[str, _Kind] = {
    "llama": _Kind("LlamaForCausalLM", "LlamaConfig", "llama", {"tie_word_embeddings": False}),
    "llama3": _Kind(
        "LlamaForCausalLM",
        "LlamaConfig",
        "llama",
        {
            "tie_word_embeddings": True,
            # Of the eight frequencies one stays, two are blended, the rest are divided.
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": _Kind("MistralForCausalLM", "MistralConfig", "llama", {"sliding_window": 8}),
    "qwen2": _Kind("Qwen2ForCausalLM", "Qwen2Config", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": _Kind("Qwen3ForCausalLM", "Qwen3Config", "qwen3", {"head_dim": 32}),
    "gemma3": _Kind(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        "gemma3",
        {
            "num_hidden_layers": 4,
            "num_key_value_heads": 1,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            "final_logit_softcapping": 10.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
}

FAMILIES: tuple[str, ...] = tuple(_KINDS)


def tiny_checkpoint(family: str, tmp_path: Path, *, seed: int = 0, shard: str = "1GB", **fields: Any) -> Path:
    """Write a float32 checkpoint of ``family`` (one of `FAMILIES`) into a new folder below ``tmp_path``.

    ``fields`` override the config's; ``shard`` is transformers' ``max_shard_size``. Equal arguments give equal bytes.
    """
    kind = _KINDS[family]
    config = getattr(transformers, kind.config)(**{**_SHARED, **kind.fields, **fields})
    model = getattr(transformers, kind.architecture)(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(_random(name, weight.shape, generator))
    folder = tmp_path / family
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def _random(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    """Weights large enough that every part of the model moves the logits."""
    values = torch.randn(shape, generator=generator)
    if "norm" in name:
        return 1 + 0.3 * values
    if name.endswith("bias"):
        return 0.3 * values
    return values if "embed" in name else values / math.sqrt(shape[-1])


def reference_model(folder: Path) -> transformers.PreTrainedModel:
    """The checkpoint in transformers: float32, eager attention."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def reference_logits(folder: Path, tokens: list[int]) -> np.ndarray:
    """Transformers' logits at every position of ``tokens``: float32 [len(tokens), vocab]."""
    with torch.no_grad():
        return reference_model(folder)(torch.tensor([tokens])).logits[0].numpy()


def random_tokens(count: int, seed: int = 0) -> list[int]:
    """``count`` token ids below `VOCAB`."""
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCAB, count)]


# -- the same models as GGUF ------------------------------------------------------------------------


def tiny_gguf(folder: Path, path: Path, *, quantization: str = "F32", **split: Any) -> Path:
    """Write the checkpoint in ``folder`` as a GGUF file, as llama.cpp's converter would.

    ``quantization`` is a type name that `gguf.quants` can quantize to; vectors stay float32, as in real files.
    ``split`` are the package's options to write several parts, beside ``path``.
    """
    config = json.loads((folder / "config.json").read_text())
    kind = next(k for k in _KINDS.values() if k.architecture == config["architectures"][0])
    writer = gguf.GGUFWriter(path, kind.gguf, **split)
    _write_metadata(writer, kind.gguf, config)
    architecture = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == kind.gguf)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    form = gguf.GGMLQuantizationType[quantization]
    for name, tensor in stored_tensors(folder).items():
        values = _converted(kind.gguf, name, tensor, config)
        stored = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else form
        writer.add_tensor(
            names.get_name(name, try_suffixes=(".weight", ".bias")),
            gguf.quants.quantize(values, stored),
            raw_dtype=stored,
        )
    rope = config.get("rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config))
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_tensors(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a folder by name, as the safetensors library reads them, in float32."""
    return {
        name: tensor.float().numpy()
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def _write_metadata(writer: gguf.GGUFWriter, architecture: str, config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_vocab_size(config["vocab_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    if architecture == "gemma3":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
        writer.add_float32("gemma3.final_logit_softcapping", config["final_logit_softcapping"])
        rope = rope["full_attention"]
    elif config.get("sliding_window") and architecture == "llama":
        writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_freq_base(rope["rope_theta"])
    if (part := rope.get("partial_rotary_factor")) is not None:
        writer.add_rope_dimension_count(int(head_dim * part))
    if rope["rope_type"] in ("yarn", "longrope"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "longrope":
        writer.add_rope_scaling_attn_factors(rope["attention_factor"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(config["vocab_size"])])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(EOS + 1)


def _converted(architecture: str, name: str, tensor: np.ndarray, config: Mapping[str, Any]) -> np.ndarray:
    if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        rows = tensor.reshape(heads, tensor.shape[0] // heads, *tensor.shape[1:])
        turned = int(rows.shape[1] * config["rope_parameters"].get("partial_rotary_factor", 1.0))
        split = rows[:, :turned].reshape(heads, 2, turned // 2, *tensor.shape[1:]).swapaxes(1, 2)
        return np.concatenate([split.reshape(heads, turned, *tensor.shape[1:]), rows[:, turned:]], 1).reshape(
            tensor.shape
        )
    if architecture == "gemma3" and name.endswith("norm.weight"):
        return tensor + np.float32(1)
    return tensor


def llama3_divisors(config: Mapping[str, Any]) -> np.ndarray:
    """The converter's ``rope_freqs.weight`` for a config with ``head_dim`` and llama3 ``rope_parameters``."""
    rope = config["rope_parameters"]
    context, low, high = (
        rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    divisors = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / head_dim)
        if wavelength < context / high:
            divisors.append(1.0)
        elif wavelength > context / low:
            divisors.append(rope["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)
