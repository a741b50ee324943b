"""Draws one by one, as tests like to write them, and the batch that a device gets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import Samples, SamplingBatch
from octavo.runner import HostSampler
from octavo.runner.masks import pack

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Draw:
    """One draw; the fields of `SamplingBatch`, with the values that change nothing."""

    row: int = 0
    target: int = -1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    seed: int = 0
    sample_index: int = 0
    position: int = 0
    logprobs: int = -1
    bias: Mapping[int, float] = field(default_factory=dict)
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    allowed: frozenset[int] | None = None
    vocab: int = 0
    """With ``allowed``."""


def make_batch(draws: Sequence[Draw]) -> SamplingBatch:
    def column(name: str, dtype: Any) -> Any:
        return np.array([getattr(d, name) for d in draws], dtype)

    bias = [(i, token, value) for i, d in enumerate(draws) for token, value in d.bias.items()]
    histories = [[*d.prompt, *d.output] for d in draws]
    return SamplingBatch(
        **{n: column(n, np.int32) for n in ("row", "target", "top_k", "sample_index", "position", "logprobs")},
        **{
            n: column(n, np.float32)
            for n in ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
        },
        seed=column("seed", np.uint64),
        bias=(
            np.array([b[0] for b in bias], np.int32),
            np.array([b[1] for b in bias], np.int32),
            np.array([b[2] for b in bias], np.float32),
        ),
        history=(
            np.cumsum([0] + [len(h) for h in histories]).astype(np.int32),
            np.array([len(d.prompt) for d in draws], np.int32),
            np.array([t for h in histories for t in h], np.int32),
        ),
        plain_greedy=all(
            d == Draw(row=d.row, temperature=0.0, seed=d.seed, sample_index=d.sample_index, position=d.position)
            for d in draws
        ),
        mask=_mask(draws),
    )  # fmt: skip


def _mask(draws: Sequence[Draw]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32]] | None:
    masked = [(i, pack(d.allowed, d.vocab)) for i, d in enumerate(draws) if d.allowed is not None]
    return (np.array([i for i, _ in masked], np.int32), np.stack([w for _, w in masked])) if masked else None


def sample(logits: Logits, *draws: Draw) -> Samples:
    return HostSampler().sample(logits, make_batch(draws))


# -- the semantics again, token by token in Python floats -------------------------------------------


def shaped(logits: Sequence[float], draw: Draw) -> list[float]:
    """Bias and penalties, in float32 as the definition says."""
    row = [np.float32(x if draw.allowed is None or t in draw.allowed else -math.inf) for t, x in enumerate(logits)]
    for token, value in draw.bias.items():
        row[token] += np.float32(value)
    for token in {*draw.prompt, *draw.output}:
        penalty = np.float32(draw.repetition)
        row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
    for token in set(draw.output):
        count = np.float32(list(draw.output).count(token))
        row[token] -= np.float32(draw.frequency) * count + np.float32(draw.presence)
    return [float(x) for x in row]


def distribution(logits: Sequence[float], draw: Draw) -> tuple[list[float], float]:
    """Unnormalised weights after min_p, top_k and top_p; and how near the closest call was, relative to the sum."""
    row = shaped(logits, draw)
    peak, temperature = max(row), float(np.float32(draw.temperature))
    weights = [math.exp((x - peak) / temperature) for x in row]
    near = [1.0]
    min_p, top_p = float(np.float32(draw.min_p)), float(np.float32(draw.top_p))
    if min_p > 0:
        near += [abs(w - min_p) for w in weights]
        weights = [w if w >= min_p else 0.0 for w in weights]
    if 0 < draw.top_k < len(weights):
        kth = sorted(weights, reverse=True)[draw.top_k - 1]
        weights = [w if w >= kth else 0.0 for w in weights]
    if top_p < 1:
        falling = sorted(weights, reverse=True)
        running = 0.0
        for edge in falling:
            running = math.fsum([running, edge])
            near.append(abs(running - top_p * sum(weights)) / sum(weights))
            if running >= top_p * sum(weights):
                break
        weights = [w if w >= edge else 0.0 for w in weights]
    return weights, min(near)


def drawn(weights: Sequence[float], uniform: float) -> tuple[int, float]:
    """The token that a uniform number picks, and how near it came to another."""
    total, running, near = sum(weights), 0.0, 1.0
    token = None
    for t, w in enumerate(weights):
        running += w
        near = min(near, abs(running - uniform * total) / total)
        if token is None and running > uniform * total:
            token = t
    assert token is not None
    return token, near
