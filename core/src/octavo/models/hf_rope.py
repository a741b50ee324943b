"""How Hugging Face configs say that positions are rotated, as a `RopeSpec`: scaling by every type there is.

A graph has one table of frequencies. Types whose frequencies depend on the length of the sequence (``dynamic``,
``longrope``) take those of the longest sequence that is served (see `SERVED_LENGTH`); the reference implementation
changes them with the length of each sequence. See docs/long-context.md.

Sources: transformers' ``modeling_rope_utils``; Peng et al. 2023 (YaRN), Ding et al. 2024 (LongRoPE), Chen et al. 2023
(linear), and for ``dynamic`` the NTK-aware scaling that bloc97 and emozilla published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.graph.rope import FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec, Scaling, inverse_frequencies
from octavo.models.fields import Fields, finite, positive, shown

LOCAL, GLOBAL = "sliding_attention", "full_attention"

SERVED_LENGTH = "octavo_served_length"
"""A key that `octavo.models.load` adds to a config: tokens of the longest sequence that will be served, where the user
set it. No checkpoint's own key of this name is read."""

_DEFAULT_THETA = 10000.0
_BETA_FAST, _BETA_SLOW = 32.0, 1.0
_ROUNDING = 1e-6  # factors like 0.4 have no exact binary form: 0.4 * 80 is 32


@dataclass(frozen=True)
class Rotation:
    """How the layers of one kind rotate queries and keys."""

    spec: RopeSpec
    attention_factor: float = 1.0
    """What rotated queries and keys are multiplied by, each (YaRN's and LongRoPE's temperature)."""
    max_position: int = 0
    """Positions that the scaling reaches; 0: no more than the config's own."""


@dataclass(frozen=True)
class _Rope:
    """One flat object of rope parameters while it is read. ``plain`` are the frequencies without scaling [pairs]."""

    kind: str
    parameters: Mapping[str, Any]
    fields: Fields
    theta: float
    plain: npt.NDArray[np.float64]

    def number(self, name: str) -> float:
        if self.parameters.get(name) is None:
            raise CheckpointError(f"config.json: rope type {self.kind} lacks {name}")
        return positive(self.parameters[name], name)

    def optional(self, name: str) -> float | None:
        value = self.parameters.get(name)
        return None if value is None else positive(value, name)

    def factors(self, name: str) -> npt.NDArray[np.float64]:
        values = self.parameters.get(name)
        if not isinstance(values, list) or not values:
            raise CheckpointError(f"config.json: rope type {self.kind} lacks a list of {name}")
        if len(values) != self.plain.size:
            raise CheckpointError(
                f"config.json: {name} of the rope has {len(values)} entries for {self.plain.size} rotated pairs"
            )
        return np.array([positive(value, f"an entry of {name}") for value in values])

    @property
    def max_position(self) -> int:
        return _length(self.fields.raw("max_position_embeddings"), "max_position_embeddings")

    @property
    def original(self) -> int:
        """Positions before scaling. Beside the rope's parameters it comes first, as in the reference."""
        name = "original_max_position_embeddings"
        value = self.fields.raw(name)
        if value is None:
            value = self.parameters.get(name)
        return self.max_position if value is None else _length(value, name)

    @property
    def served(self) -> int | None:
        return self.fields.optional_integer(SERVED_LENGTH)

    def rotation(self, scaled: npt.NDArray[np.float64], factor: float = 1.0, max_position: int = 0) -> Rotation:
        """With the frequencies ``scaled`` [pairs], as divisors of the plain ones."""
        with np.errstate(all="ignore"):
            divisors = FrequencyFactors(tuple(float(f) for f in self.plain / scaled))
        scaling = None if all(f == 1.0 for f in divisors.factors) else divisors
        return Rotation(RopeSpec(0, self.theta, scaling), factor, max_position)

    def scaled_by(self, scaling: Scaling | None) -> Rotation:
        return Rotation(RopeSpec(0, self.theta, scaling))


def rope(fields: Fields, head_dim: int) -> Rotation:
    """How all layers rotate, from ``rope_scaling``, ``rope_parameters`` and the older keys beside them."""
    scaling, parameters = fields.mapping("rope_scaling"), fields.mapping("rope_parameters")
    chosen = scaling or parameters
    if LOCAL in chosen or GLOBAL in chosen:
        raise CheckpointError(
            "config.json: rope_parameters differ by layer type, which this architecture does not have"
        )
    theta, beside = chosen.get("rope_theta"), fields.raw("rope_theta")
    if theta is None:
        theta = beside
    if theta is None:
        theta = parameters.get("rope_theta")
    return rotation(chosen, head_dim, _DEFAULT_THETA if theta is None else theta, fields)


def rotation(parameters: Mapping[str, Any], head_dim: int, theta: Any, fields: Fields) -> Rotation:
    """One flat ``rope_parameters`` object; CheckpointError for a type that is not known or lacks a number."""
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    build = _KINDS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise CheckpointError(f"config.json: rope type {shown(kind)} is not supported; known: {', '.join(_KINDS)}")
    partial, beside = parameters.get("partial_rotary_factor"), fields.raw("partial_rotary_factor")
    fields.raw("original_max_position_embeddings")  # without a meaning where nothing is scaled by it
    turned = _turned(head_dim, beside if partial is None else partial)
    base = positive(theta, "rope_theta")
    with np.errstate(all="ignore"):
        plain = inverse_frequencies(RopeSpec(turned, base))
    if not np.all(np.isfinite(plain) & (plain > 0)):
        raise CheckpointError(f"config.json: rope_theta is {shown(theta)}; no frequencies follow from it")
    found = build(_Rope(str(kind), parameters, fields, base, plain))
    if found.attention_factor != 1.0 and turned != head_dim:
        raise CheckpointError(
            f"config.json: rope type {kind} with the attention factor {found.attention_factor:g} is not supported "
            f"where only {turned} of {head_dim} elements of a head are rotated (partial_rotary_factor)"
        )
    spec = RopeSpec(head_dim, found.spec.theta, found.spec.scaling, None if turned == head_dim else turned)
    with np.errstate(all="ignore"):
        scaled = inverse_frequencies(spec)
    if not np.all(np.isfinite(scaled) & (scaled > 0)):
        raise CheckpointError(f"config.json: rope type {kind} leads to frequencies that are no numbers above 0")
    return Rotation(spec, found.attention_factor, found.max_position)


def _turned(head_dim: int, partial: Any) -> int:
    if partial is None:
        return head_dim
    part = finite(partial, "partial_rotary_factor")
    turned = int(head_dim * part + _ROUNDING)
    if not 0 < part <= 1 or turned < 2 or turned % 2:
        raise CheckpointError(
            f"config.json: partial_rotary_factor is {shown(partial)}, which rotates {turned} of {head_dim} elements of "
            "a head; it must rotate an even number of them, and no more than there are"
        )
    return turned


def _length(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 2 <= value < 2**31:
        raise CheckpointError(f"config.json: {name} is {shown(value)}; it must be a number of tokens, 2 or more")
    return int(value)


def _default(rope: _Rope) -> Rotation:
    return rope.scaled_by(None)


def _linear(rope: _Rope) -> Rotation:
    return rope.scaled_by(LinearScaling(rope.number("factor")))


def _llama3(rope: _Rope) -> Rotation:
    factor, low, high = (rope.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise CheckpointError(
            f"config.json: low_freq_factor of the rope is {low:g}; it must be below high_freq_factor, {high:g}"
        )
    return rope.scaled_by(Llama3Scaling(factor, low, high, rope.original))


def _stored_factors(rope: _Rope) -> Rotation:
    """Octavo's own type, see `octavo.models.gguf_rope`."""
    return rope.scaled_by(FrequencyFactors(tuple(float(f) for f in rope.factors("factors"))))


def _dynamic(rope: _Rope) -> Rotation:
    """Plain up to ``max_position_embeddings``; beyond it the base grows with the longest sequence served."""
    factor, trained, served = rope.number("factor"), rope.max_position, rope.served
    if served is None or served <= trained:
        return rope.scaled_by(None)
    served = min(served, int(factor * trained))
    pairs = rope.plain.size
    stretch = factor * served / trained - (factor - 1)
    if pairs < 2 or stretch <= 0:
        raise CheckpointError(f"config.json: rope type dynamic with factor {factor:g} cannot be applied to this model")
    theta = rope.theta * stretch ** (pairs / (pairs - 1))
    return Rotation(RopeSpec(0, theta), max_position=served)


def _yarn(rope: _Rope) -> Rotation:
    """Pairs that turn often are kept, those that turn less than once are interpolated, between them a ramp."""
    original = rope.original
    factor = rope.optional("factor")
    if factor is None:
        factor = rope.max_position / original
    if rope.theta <= 1:
        raise CheckpointError(f"config.json: rope_theta is {rope.theta:g}; rope type yarn needs more than 1")
    fast = rope.parameters.get("beta_fast") or _BETA_FAST
    slow = rope.parameters.get("beta_slow") or _BETA_SLOW
    width = 2 * rope.plain.size

    def pair_with(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_with(positive(fast, "beta_fast")), pair_with(positive(slow, "beta_slow"))
    if rope.parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    if low == high:
        high += 0.001
    interpolated = np.clip((np.arange(width // 2) - low) / (high - low), 0.0, 1.0)
    scaled = rope.plain * (interpolated / factor + (1 - interpolated))
    return rope.rotation(scaled, _yarn_attention(rope, factor), int(min(factor * original, 2**31 - 1)))


def _yarn_attention(rope: _Rope, factor: float) -> float:
    given = rope.optional("attention_factor")
    if given is not None:
        return given

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    above, below = rope.parameters.get("mscale"), rope.parameters.get("mscale_all_dim")
    if above and below:
        return positive(scale(finite(above, "mscale")) / scale(positive(below, "mscale_all_dim")), "mscale")
    return scale(1.0)


def _longrope(rope: _Rope) -> Rotation:
    """One factor for each frequency: ``short_factor`` where no sequence is longer than the original context."""
    original, most = rope.original, rope.max_position
    served = most if rope.served is None else min(rope.served, most)
    short, long = rope.factors("short_factor"), rope.factors("long_factor")
    attention = rope.optional("attention_factor")
    if attention is None:
        factor = rope.optional("factor")
        if factor is None:
            factor = most / original
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return rope.rotation(rope.plain / (long if served > original else short), attention)


_KINDS: Mapping[str, Callable[[_Rope], Rotation]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its name in the first configs that had it
    "llama3": _llama3,
    "factors": _stored_factors,
}

ROPE_KEYS: Sequence[str] = (
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "original_max_position_embeddings",
    "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor",
    "low_freq_factor", "high_freq_factor", "factors", "finetuned", LOCAL, GLOBAL,
)  # fmt: skip
"""What an object of rope parameters may hold; ``finetuned`` tells only how the model was made."""
