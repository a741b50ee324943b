"""Reads Hugging Face's config.json, in the vocabularies of transformers 4 and 5.

transformers 5 writes ``rope_parameters`` (nested by layer type where layers differ) and ``layer_types``;
before, it was ``rope_theta``, ``rope_scaling``, ``rope_local_base_freq``, ``sliding_window_pattern`` and
``max_window_layers``. Both live on the hub. A key that is absent means the default of transformers'
configuration class, so each family passes those it relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from octavo.errors import CheckpointError
from octavo.models.config import ModelConfig
from octavo.models.fields import Fields, positive, shown
from octavo.models.hf_rope import GLOBAL, LOCAL, Rotation, rope

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
}
_WIDEST_HEAD = 65536  # frequencies are computed for each pair; no model has a hundredth of this
MOST_LAYERS = 4096  # a graph has an entry for each; no model has a tenth of this


def decoder_config(family: str, fields: Fields, ropes: Callable[[Fields, int], Rotation] | None = None) -> ModelConfig:
    """The fields that all decoders share: full attention everywhere, one rope, no biases.

    A family replaces what is different about it. ``ropes`` reads the rope of heads of a given width where
    a family keeps it in other places than `rope` looks.
    """
    layers, heads, hidden = layer_count(fields), fields.integer("num_attention_heads"), fields.integer("hidden_size")
    head_dim = fields.optional_integer("head_dim") or hidden // max(heads, 1)
    if head_dim < 1:
        raise CheckpointError(f"config.json: hidden_size {hidden} has no room for {heads} heads (num_attention_heads)")
    if head_dim > _WIDEST_HEAD:
        raise CheckpointError(f"config.json: heads have {head_dim} elements (head_dim); {_WIDEST_HEAD} is the most")
    kv_heads = fields.optional_integer("num_key_value_heads")
    turned = (ropes or rope)(fields, head_dim)
    return ModelConfig(
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=head_dim,
        max_position=max(fields.integer("max_position_embeddings"), turned.max_position),
        norm_eps=fields.number("rms_norm_eps"),
        activation=activation(fields),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        ropes=(turned.spec,) * layers,
        attention_factors=(turned.attention_factor,) * layers,
        windows=(None,) * layers,
        attention_scale=float(head_dim) ** -0.5,
        causal=is_causal(fields),
        bos_token_id=fields.optional_integer("bos_token_id"),
        eos_token_ids=token_ids(fields.raw("eos_token_id"), "eos_token_id"),
    )


def layer_count(fields: Fields) -> int:
    """``num_hidden_layers``."""
    layers = fields.integer("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise CheckpointError(f"config.json: num_hidden_layers is {layers}; it can be {MOST_LAYERS} at most")
    return layers


def is_causal(fields: Fields) -> bool:
    """Whether a token sees only those before it: yes, unless ``is_causal`` says no (source: transformers' masks)."""
    return fields.raw("is_causal") is None or fields.flag("is_causal")


def activation(fields: Fields) -> str:
    """The MLP's activation in the graph's words."""
    older = fields.raw("hidden_act")
    name = fields.raw("hidden_activation") or older
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise CheckpointError(
            f"config.json: activation {shown(name)} is not supported; known: {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def layer_types(fields: Fields, layers: int, otherwise: Sequence[str]) -> tuple[str, ...]:
    """`LOCAL` or `GLOBAL` per layer: ``layer_types`` where config.json has it, else ``otherwise``."""
    kinds = fields.raw("layer_types")
    if kinds is None:
        kinds = otherwise
    if isinstance(kinds, str) or not isinstance(kinds, Sequence) or len(kinds) != layers:
        raise CheckpointError(
            f"config.json: layer_types must be a list of {layers} entries, one per layer: {shown(kinds)}"
        )
    for kind in kinds:
        if kind not in (LOCAL, GLOBAL):
            raise CheckpointError(f"config.json: layer type {shown(kind)} is not supported; known: {LOCAL}, {GLOBAL}")
    return tuple(kinds)


def windows(kinds: Sequence[str], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer: ``window`` for local ones, None for global ones."""
    if window is None and LOCAL in kinds:
        raise CheckpointError(
            f"config.json: layer_types has {LOCAL}, but sliding_window gives no window; name one, or make all layers "
            f"{GLOBAL}"
        )
    return tuple(window if kind == LOCAL else None for kind in kinds)


def inverse_root(value: Any, name: str) -> float:
    """``value ** -0.5``; CheckpointError unless it is a number above 0."""
    return float(positive(value, name) ** -0.5)


def token_ids(value: Any, name: str) -> tuple[int, ...]:
    """A token id, a list of them, or null, as a tuple."""
    if value is None:
        return ()
    ids = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) and -1 <= item < 2**31 for item in ids):
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be a token id or a list of them")
    return tuple(item for item in ids if item >= 0)


def text_config(config: Mapping[str, Any], outer: Sequence[str]) -> Mapping[str, Any]:
    """The language model's part of a multimodal config; the keys ``outer`` may stand outside."""
    text = config.get("text_config")
    if text is None:
        return config
    if not isinstance(text, Mapping):
        raise CheckpointError(f"config.json: text_config is {shown(text)}; it must be an object")
    return {**{key: config[key] for key in outer if key in config}, **text}
