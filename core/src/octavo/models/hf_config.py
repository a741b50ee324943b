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
from octavo.graph.rope import FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec, Scaling
from octavo.models.config import ModelConfig

LOCAL, GLOBAL = "sliding_attention", "full_attention"

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu": "relu",
}
_ROPE_TYPES = ("default", "linear", "llama3", "factors")
_DEFAULT_THETA = 10000.0


class Fields:
    """Typed access to a config; a wrong type or a missing required key is a CheckpointError that names it."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._config, self._defaults = config, defaults

    def raw(self, name: str) -> Any:
        """The value, or the family's default where the key is absent, or None."""
        return self._config.get(name, self._defaults.get(name))

    def integer(self, name: str) -> int:
        value = self.optional_integer(name)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}")
        return value

    def optional_integer(self, name: str) -> int | None:
        value = self.raw(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise CheckpointError(f"config.json: {name} is {value!r}; it must be a whole number")

    def number(self, name: str) -> float:
        value = self.optional_number(name)
        if value is None:
            raise CheckpointError(f"config.json lacks {name}")
        return value

    def optional_number(self, name: str) -> float | None:
        value = self.raw(name)
        return None if value is None else _number(value, name)

    def flag(self, name: str) -> bool:
        return bool(self.raw(name))

    def mapping(self, name: str) -> Mapping[str, Any]:
        """The object under ``name``; empty where there is none."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise CheckpointError(f"config.json: {name} is {value!r}; it must be an object")
        return value


def decoder_config(family: str, fields: Fields, ropes: Callable[[Fields, int], RopeSpec] | None = None) -> ModelConfig:
    """The fields that all decoders share: full attention everywhere, one rope, no biases.

    A family replaces what is different about it. ``ropes`` reads the rope of heads of a given width where
    a family keeps it in other places than `rope` looks.
    """
    layers, heads, hidden = (
        fields.integer(name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    head_dim = fields.optional_integer("head_dim") or hidden // max(heads, 1)
    return ModelConfig(
        family=family,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=fields.optional_integer("num_key_value_heads") or heads,
        head_dim=head_dim,
        max_position=fields.integer("max_position_embeddings"),
        norm_eps=fields.number("rms_norm_eps"),
        activation=activation(fields),
        tied_embeddings=fields.flag("tie_word_embeddings"),
        ropes=((ropes or rope)(fields, head_dim),) * layers,
        windows=(None,) * layers,
        attention_scale=float(head_dim) ** -0.5,
        bos_token_id=fields.optional_integer("bos_token_id"),
        eos_token_ids=token_ids(fields.raw("eos_token_id"), "eos_token_id"),
    )


def activation(fields: Fields) -> str:
    """The MLP's activation in the graph's words."""
    name = fields.raw("hidden_activation") or fields.raw("hidden_act")
    if name not in _ACTIVATIONS:
        raise CheckpointError(f"config.json: activation {name!r} is not supported; known: {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def rope(fields: Fields, head_dim: int) -> RopeSpec:
    """How all layers rotate, from ``rope_parameters`` or the older keys."""
    parameters = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    if LOCAL in parameters or GLOBAL in parameters:
        raise CheckpointError(
            "config.json: rope_parameters differ by layer type, which this architecture does not have"
        )
    theta = parameters.get("rope_theta")
    if theta is None:
        theta = fields.raw("rope_theta")
    return rope_spec(parameters, head_dim, _DEFAULT_THETA if theta is None else theta, fields)


def rope_spec(parameters: Mapping[str, Any], head_dim: int, theta: Any, fields: Fields) -> RopeSpec:
    """One flat ``rope_parameters`` object as a RopeSpec; CheckpointError for a type that is not known."""
    kind = parameters.get("rope_type", parameters.get("type")) or "default"
    partial = parameters.get("partial_rotary_factor", fields.raw("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise CheckpointError(f"config.json: partial_rotary_factor is {partial!r}; only 1.0 is supported here")
    return RopeSpec(head_dim, _number(theta, "rope_theta"), _scaling(kind, parameters, fields))


def _scaling(kind: Any, parameters: Mapping[str, Any], fields: Fields) -> Scaling | None:
    def need(name: str) -> float:
        if name not in parameters:
            raise CheckpointError(f"config.json: rope type {kind} lacks {name}")
        return _number(parameters[name], name)

    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(need("factor"))
    if kind == "llama3":
        context = parameters.get("original_max_position_embeddings") or fields.integer("max_position_embeddings")
        return Llama3Scaling(
            need("factor"), need("low_freq_factor"), need("high_freq_factor"), int(_number(context, "original context"))
        )
    if kind == "factors":  # Octavo's own, see gguf_rope
        factors = parameters.get("factors")
        if not isinstance(factors, list) or not factors:
            raise CheckpointError("config.json: rope type factors lacks a list of factors")
        return FrequencyFactors(tuple(_number(factor, "a rope factor") for factor in factors))
    raise CheckpointError(f"config.json: rope type {kind!r} is not supported; known: {', '.join(_ROPE_TYPES)}")


def layer_types(fields: Fields, layers: int, otherwise: Sequence[str]) -> tuple[str, ...]:
    """`LOCAL` or `GLOBAL` per layer: ``layer_types`` where config.json has it, else ``otherwise``."""
    kinds = fields.raw("layer_types")
    if kinds is None:
        kinds = otherwise
    if not isinstance(kinds, Sequence) or len(kinds) != layers:
        raise CheckpointError(f"config.json: layer_types must be a list of {layers} entries, one per layer: {kinds!r}")
    for kind in kinds:
        if kind not in (LOCAL, GLOBAL):
            raise CheckpointError(f"config.json: layer type {kind!r} is not supported; known: {LOCAL}, {GLOBAL}")
    return tuple(kinds)


def windows(kinds: Sequence[str], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer: ``window`` for local ones, None for global ones."""
    return tuple(window if kind == LOCAL else None for kind in kinds)


def token_ids(value: Any, name: str) -> tuple[int, ...]:
    """A token id, a list of them, or null, as a tuple."""
    if value is None:
        return ()
    ids = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, int) and not isinstance(item, bool) for item in ids):
        raise CheckpointError(f"config.json: {name} is {value!r}; it must be a token id or a list of them")
    return tuple(ids)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CheckpointError(f"config.json: {name} is {value!r}; it must be a number")
    return float(value)
