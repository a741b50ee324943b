"""What a model is, once its config.json has been understood: the values graphs are built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from octavo.errors import CheckpointError
from octavo.graph.rope import RopeSpec


@dataclass(frozen=True)
class ModelConfig:
    """The shape of one model. Families parse config.json into this; nothing else reads config.json.

    Raises CheckpointError for sizes that fit no model.
    """

    family: str
    """Name of the `Family` that parsed it."""
    vocab_size: int
    """Rows of the embedding table; the tokenizer may know fewer tokens."""
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_position: int
    """Tokens of one sequence that the model was made for."""
    norm_eps: float
    activation: str
    """Of the MLP, as `octavo.graph` names it: silu, gelu, gelu_tanh, relu."""
    tied_embeddings: bool
    """Whether the embedding table is the output matrix as well."""
    ropes: tuple[RopeSpec, ...]
    """One per layer; empty where nothing is rotated."""
    windows: tuple[int | None, ...]
    """One per layer: how many positions a query sees, itself included; None: all."""
    attention_scale: float
    """What q·k is multiplied by."""
    attention_factors: tuple[float, ...] = ()
    """One per layer: what rotated queries and keys are multiplied by, each; empty: 1. Of YaRN and LongRoPE."""
    causal: bool = True
    """Whether a token sees only those before it; False in embedding models that were made of a decoder."""
    position_pad_id: int | None = None
    """A token that positions do not count: its own is -1, the next one's as if it were not there (RoBERTa)."""
    qkv_bias: bool = False
    output_bias: bool = False
    """Whether the attention's output projection has a bias."""
    mlp_bias: bool = False
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    token_types: int = 1
    """Kinds of text that one prompt may be made of: 2 for models that read pairs. A token of kind k has the id
    ``k * vocab_size + id``."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What one family alone needs."""

    def __post_init__(self) -> None:
        if self.vocab_size * max(self.token_types, 1) > 2**31 - 1:
            raise CheckpointError(
                f"the checkpoint has {self.vocab_size} tokens of {self.token_types} types; ids have 31 bits"
            )
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "layers",
            "heads",
            "kv_heads",
            "head_dim",
            "max_position",
            "token_types",
        ):
            if getattr(self, name) < 1:
                raise CheckpointError(f"the checkpoint's {name} is {getattr(self, name)}; it must be at least 1")
        if self.heads % self.kv_heads:
            raise CheckpointError(
                f"the checkpoint has {self.heads} query heads and {self.kv_heads} key-value heads; "
                "the first must be a multiple of the second"
            )
        if self.ropes and self.head_dim % 2:
            raise CheckpointError(f"the checkpoint's head_dim is {self.head_dim}; rope needs an even number")
        assert len(self.windows) == self.layers, "windows: one entry per layer"
        if self.norm_eps < 0:
            raise CheckpointError(f"the checkpoint's norm_eps is {self.norm_eps:g}; it must not be negative")
        assert len(self.attention_factors) in (0, self.layers), "attention_factors: one entry per layer, or none"
        assert len(self.ropes) in (0, self.layers), "ropes: one entry per layer, or none"
