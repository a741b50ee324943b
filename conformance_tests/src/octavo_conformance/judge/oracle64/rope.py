"""Rotary position embedding: pairs of elements as complex numbers that turn with the position."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F64


def frequencies(rotary_dim: int, theta: float, scaling: Mapping[str, object] | None = None) -> F64:
    """Radians a position of each pair. ``scaling`` as a rope node holds it: kind linear, llama3 or factors."""
    pairs = rotary_dim // 2
    plain = [math.exp(-math.log(theta) * 2 * i / rotary_dim) for i in range(pairs)]
    if scaling is None:
        return np.array(plain)
    kind = scaling["kind"]
    if kind == "linear":
        return np.array([f / _number(scaling, "factor") for f in plain])
    if kind == "factors":
        factors = scaling["factors"]
        assert isinstance(factors, list | tuple)
        return np.array([f / float(by) for f, by in zip(plain, factors, strict=True)])
    if kind == "llama3":
        return np.array([_llama3(f, scaling) for f in plain])
    raise ValueError(f"there is no rope scaling {kind!r}")


def _llama3(frequency: float, scaling: Mapping[str, object]) -> float:
    """Turns within the original context: few turns are slowed down by the factor, many are kept, between is mixed."""
    factor, low, high = (_number(scaling, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = _number(scaling, "original_context") * frequency / (2 * math.pi)
    if turns <= low:
        return frequency / factor
    if turns >= high:
        return frequency
    kept = (turns - low) / (high - low)
    return kept * frequency + (1 - kept) * frequency / factor


def _number(scaling: Mapping[str, object], name: str) -> float:
    value = scaling[name]
    assert isinstance(value, int | float), f"{name} is {value!r}"
    return float(value)


def rope(
    x: npt.ArrayLike,
    positions: npt.ArrayLike,
    head_dim: int,
    theta: float = 10000.0,
    *,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Mapping[str, object] | None = None,
) -> F64:
    """The heads of ``x`` [N, heads * head_dim] turned by their positions [N]."""
    turned = head_dim if rotary_dim is None else rotary_dim
    heads = np.array(x, np.float64).reshape(len(np.asarray(x)), -1, head_dim)
    angles = np.asarray(positions, np.float64)[:, None] * frequencies(turned, theta, scaling)
    turn = np.exp(1j * angles)[:, None, :]
    part = heads[..., :turned]
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, turned // 2), slice(turned // 2, None))
    )
    pairs = (part[..., first] + 1j * part[..., second]) * turn
    part[..., first], part[..., second] = pairs.real, pairs.imag
    return heads.reshape(np.asarray(x).shape)
