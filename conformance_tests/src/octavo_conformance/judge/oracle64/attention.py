"""Attention over one whole sequence, query by query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge import floats
from octavo_conformance.judge.floats import F64


@dataclass(frozen=True)
class Attention:
    """What a layer does: query head h reads KV head h // (heads / kv_heads); ``window`` counts the positions seen, the
    query's own included; ``sinks`` are logits, one a head, that take part in the softmax and have no value.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: tuple[float, ...] | None = None
    causal: bool = True


def visible(spec: Attention, queries: npt.ArrayLike, length: int) -> npt.NDArray[np.bool_]:
    """[queries, length]: whether the query at each of the positions ``queries`` sees each of 0 … length - 1."""
    seen = np.zeros((len(np.asarray(queries)), length), bool)
    for row, p in enumerate(np.asarray(queries).tolist()):
        last = p if spec.causal else length - 1
        first = 0 if spec.window is None else max(0, p - spec.window + 1)
        seen[row, first : last + 1] = True
    return seen


def attention(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, spec: Attention, queries: npt.ArrayLike | None = None,
    seen: npt.NDArray[np.bool_] | None = None,
) -> F64:  # fmt: skip
    """[queries, heads * head_dim]. ``q`` [length, heads * head_dim], ``k`` and ``v`` [length, kv_heads * head_dim] are
    the whole sequence; ``queries`` picks positions (all, if left out). ``seen`` replaces the mask, for wrong answers.
    """
    weights, values = _weights(q, k, v, spec, queries, seen)
    return _mixed(weights, values).reshape(weights.shape[0], -1)


def attention_bound(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, spec: Attention, kv_dtype: str, dtype: str,
    queries: npt.ArrayLike | None = None,
) -> F64:  # fmt: skip
    """The most that each element may be off: one rounding of the output, and of each softmax weight the rounding of the
    cache's type, with that of the scores it comes from.

    The result is a convex combination of values, so an error of the weights costs at most the sum of weight times size.
    """
    weights, values = _weights(q, k, v, spec, queries, None)
    size = _mixed(weights, np.abs(values))
    unit = max(floats.UNIT[kv_dtype], floats.UNIT[dtype])
    scores = _scores(np.abs(_heads(q, spec.heads)), np.abs(_shared(k, spec)), spec.scale, queries)
    worst = np.where(weights > 0, scores, 0.0).max(-1)
    # A score is off by unit times the sum of its terms' sizes (queries rounded), its weight by as much relatively.
    per_weight = 2 * unit + (2 * unit + spec.head_dim * floats.UNIT["f32"]) * worst
    out: F64 = np.abs(_mixed(weights, values)) * floats.UNIT[dtype] + per_weight[..., None] * size
    return out.reshape(weights.shape[0], -1)


def _mixed(weights: F64, values: F64) -> F64:
    """Values [n, heads, d] added by their weights [queries, heads, n]: [queries, heads, d]."""
    mixed: F64 = np.matmul(weights.transpose(1, 0, 2), values.transpose(1, 0, 2)).transpose(1, 0, 2)
    return mixed


def _heads(x: npt.ArrayLike, heads: int) -> F64:
    array = np.asarray(x, np.float64)
    return array.reshape(len(array), heads, -1)


def _shared(x: npt.ArrayLike, spec: Attention) -> F64:
    """Keys or values with the KV heads repeated for the query heads that read them."""
    return np.repeat(_heads(x, spec.kv_heads), spec.heads // spec.kv_heads, axis=1)


def _scores(q: F64, k: F64, scale: float, queries: npt.ArrayLike | None) -> F64:
    at = np.arange(len(q)) if queries is None else np.asarray(queries)
    scores: F64 = np.matmul(q[at].transpose(1, 0, 2), k.transpose(1, 2, 0)).transpose(1, 0, 2) * scale
    return scores


def _weights(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, spec: Attention, queries: npt.ArrayLike | None,
    seen: npt.NDArray[np.bool_] | None,
) -> tuple[F64, F64]:  # fmt: skip
    at = np.arange(len(np.asarray(q))) if queries is None else np.asarray(queries)
    keys, values = _shared(k, spec), _shared(v, spec)
    scores = _scores(_heads(q, spec.heads), keys, spec.scale, at)
    if spec.softcap is not None:
        scores = spec.softcap * np.tanh(scores / spec.softcap)
    mask = visible(spec, at, len(keys)) if seen is None else seen
    scores = np.where(mask[:, None, :], scores, -np.inf)
    extra = np.full((1, spec.heads), -np.inf) if spec.sinks is None else np.asarray(spec.sinks, np.float64)[None]
    peak = np.maximum(scores.max(-1), extra)
    shares = np.exp(scores - peak[..., None])
    return shares / (shares.sum(-1) + np.exp(extra - peak))[..., None], values
