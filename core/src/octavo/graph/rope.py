"""Rotary position embedding: which frequencies a model rotates by.

Source: RoFormer (Su et al., 2021); Llama 3's frequency scaling as its reference code defines it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from octavo.errors import GraphError


@dataclass(frozen=True)
class LinearScaling:
    """Positions are divided by ``factor`` (position interpolation)."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Low frequencies are divided by ``factor``, high ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class FrequencyFactors:
    """Each frequency is divided by a factor that the checkpoint stores, ``rotary_dim // 2`` of them."""

    factors: tuple[float, ...]


Scaling = LinearScaling | Llama3Scaling | FrequencyFactors
_KINDS: dict[str, type[LinearScaling] | type[Llama3Scaling] | type[FrequencyFactors]] = {
    "linear": LinearScaling,
    "llama3": Llama3Scaling,
    "factors": FrequencyFactors,
}


@dataclass(frozen=True)
class RopeSpec:
    """How one layer rotates its heads.

    The first ``rotary_dim`` of ``head_dim`` elements turn (all, if ``None``). ``interleaved`` pairs element
    2i with 2i+1; otherwise i with i + rotary_dim // 2, as Hugging Face checkpoints are laid out.
    """

    head_dim: int
    theta: float = 10000.0
    scaling: Scaling | None = None
    rotary_dim: int | None = None
    interleaved: bool = False

    @property
    def turned(self) -> int:
        """How many elements of a head turn."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    def to_attrs(self) -> dict[str, object]:
        """As node attributes."""
        attrs: dict[str, object] = {
            "head_dim": self.head_dim,
            "theta": float(self.theta),
            "rotary_dim": self.turned,
            "interleaved": self.interleaved,
        }
        if self.scaling is not None:
            kind = next(k for k, t in _KINDS.items() if isinstance(self.scaling, t))
            attrs["scaling"] = {"kind": kind, **asdict(self.scaling)}
        return attrs

    @staticmethod
    def from_attrs(attrs: Mapping[str, object]) -> RopeSpec:
        """The inverse of `to_attrs`; other attributes are ignored."""
        scaling: Scaling | None = None
        raw = attrs.get("scaling")
        if isinstance(raw, Mapping):
            fields = {k: v for k, v in raw.items() if k != "kind"}
            try:
                scaling = _KINDS[str(raw["kind"])](**fields)
            except (KeyError, TypeError) as error:
                raise GraphError(f"rope scaling {dict(raw)} is malformed: {error}") from None
        head_dim, theta, rotary = attrs["head_dim"], attrs["theta"], attrs["rotary_dim"]
        assert isinstance(head_dim, int) and isinstance(rotary, int) and isinstance(theta, float)
        return RopeSpec(head_dim, theta, scaling, rotary, bool(attrs.get("interleaved", False)))


def inverse_frequencies(spec: RopeSpec) -> npt.NDArray[np.float64]:
    """Radians per position of each rotated pair, shape [rotary_dim // 2], float64."""
    half = spec.turned // 2
    frequencies = spec.theta ** (-np.arange(half, dtype=np.float64) / half)
    match spec.scaling:
        case None:
            return frequencies
        case LinearScaling(factor):
            return frequencies / factor
        case FrequencyFactors(factors):
            if len(factors) != half:
                raise GraphError(f"rope has {len(factors)} frequency factors for {half} rotated pairs")
            return frequencies / np.asarray(factors, dtype=np.float64)
        case Llama3Scaling(factor, low, high, context):
            wavelengths = 2 * math.pi / frequencies
            blend = np.clip((context / wavelengths - low) / (high - low), 0.0, 1.0)
            return (1 - blend) * frequencies / factor + blend * frequencies
