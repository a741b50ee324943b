"""The shapes that make_model.py knows, and the random weights that fill them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_SLICE = 1 << 24  # weights drawn at a time


@dataclass(frozen=True)
class Tensor:
    """One weight of the model; a linear one is [outputs, inputs]."""

    name: str
    shape: tuple[int, ...]
    linear: bool = False


@dataclass(frozen=True)
class Shape:
    """A Llama: sizes, and what config.json says besides."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    theta: float
    rope_scaling: dict[str, Any] | None = None

    def tensors(self) -> list[Tensor]:
        """Every weight, in file order. The embedding table is the output matrix, too."""
        found = [Tensor("model.embed_tokens.weight", (self.vocab, self.hidden))]
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for i in range(self.layers):
            layer = f"model.layers.{i}"
            found += [
                Tensor(f"{layer}.input_layernorm.weight", (self.hidden,)),
                Tensor(f"{layer}.self_attn.q_proj.weight", (q, self.hidden), linear=True),
                Tensor(f"{layer}.self_attn.k_proj.weight", (kv, self.hidden), linear=True),
                Tensor(f"{layer}.self_attn.v_proj.weight", (kv, self.hidden), linear=True),
                Tensor(f"{layer}.self_attn.o_proj.weight", (self.hidden, q), linear=True),
                Tensor(f"{layer}.post_attention_layernorm.weight", (self.hidden,)),
                Tensor(f"{layer}.mlp.gate_proj.weight", (self.intermediate, self.hidden), linear=True),
                Tensor(f"{layer}.mlp.up_proj.weight", (self.intermediate, self.hidden), linear=True),
                Tensor(f"{layer}.mlp.down_proj.weight", (self.hidden, self.intermediate), linear=True),
            ]
        return [*found, Tensor("model.norm.weight", (self.hidden,))]

    def config(self) -> dict[str, Any]:
        """config.json."""
        return {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
            "torch_dtype": "bfloat16",
            "vocab_size": self.vocab, "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim, "max_position_embeddings": self.context, "rms_norm_eps": 1e-5,
            "rope_theta": self.theta, "rope_scaling": self.rope_scaling, "hidden_act": "silu", "attention_bias": False,
            "mlp_bias": False, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
        }  # fmt: skip


_LLAMA3_ROPE = {
    "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip

SHAPES = {
    "llama-3.2-1b": Shape(128256, 2048, 8192, 16, 32, 8, 64, 131072, 500000.0, _LLAMA3_ROPE),
    "tiny": Shape(300, 128, 256, 2, 4, 2, 32, 512, 10000.0, _LLAMA3_ROPE),
}


def draw(tensor: Tensor, seed: int) -> Iterator[np.ndarray]:
    """The weight as float32, a slice of rows at a time: ones for norms, else normal, of a size that lasts."""
    if len(tensor.shape) == 1:
        yield np.ones(tensor.shape, np.float32)
        return
    rows, columns = tensor.shape
    step = max(1, _SLICE // columns)
    generator = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    for start in range(0, rows, step):
        values = generator.standard_normal((min(step, rows - start), columns), np.float32)
        values *= np.float32(columns**-0.5)
        yield values
