"""The truth of sampling: what each draw of a batch may give, from the meaning of its settings, in float64.

Written from the words of the contract: mask, bias, then repetition, frequency and presence penalties, then temperature,
then top_k, min_p and top_p of what is left, then the smallest token whose running sum exceeds the draw's uniform.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F32, F64
from octavo_conformance.judge.rng import philox

CLOSE = 1e-9
"""A uniform number nearer than this to the edge of a token's share, or a sum nearer to top_p: either token is right."""


@dataclass(frozen=True)
class Draw:
    """One draw: the logits row it reads and its settings, by the contract's names."""

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
    bias: tuple[tuple[int, float], ...] = ()
    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = field(default=())
    allowed: tuple[int, ...] | None = None
    """The tokens of its mask."""

    @property
    def penalised(self) -> bool:
        """Whether its history counts."""
        return (self.repetition, self.presence, self.frequency) != (1.0, 0.0, 0.0)


def adjusted(logits: F32, draw: Draw) -> F64:
    """The row's logits after mask, bias and penalties."""
    changed = logits.astype(np.float64)
    if draw.allowed is not None:
        changed[~np.isin(np.arange(len(changed)), draw.allowed)] = -np.inf
    for token, value in draw.bias:
        changed[token] += value
    for token in {*draw.prompt, *draw.output}:
        changed[token] *= 1 / draw.repetition if changed[token] > 0 else draw.repetition
    for token in draw.output:
        changed[token] -= draw.frequency
    for token in set(draw.output):
        changed[token] -= draw.presence
    return changed


def probabilities(logits: F32, draw: Draw) -> F64:
    """The chance of every token."""
    changed = adjusted(logits, draw)
    if draw.temperature == 0:
        best: F64 = np.eye(1, len(changed), int(changed.argmax()))[0]
        return best
    weights = np.exp((changed - changed.max()) / float(np.float32(draw.temperature)))
    if 0 < draw.top_k < len(weights):
        weights[changed < np.sort(changed)[-draw.top_k]] = 0
    weights[weights < float(np.float32(draw.min_p))] = 0
    top_p = float(np.float32(draw.top_p))
    if top_p < 1:
        falling = np.sort(weights)[::-1]
        enough = np.cumsum(falling) >= top_p * weights.sum() * (1 - CLOSE)
        weights[weights < falling[int(enough.argmax())]] = 0
    shares: F64 = weights / weights.sum()
    return shares


def uniform(draw: Draw) -> float:
    """The draw's number: Philox keyed by the seed's words at (position, 0, sample, 0); 27 bits, then 26."""
    counter = np.array([[draw.position, 0, draw.sample_index, 0]], np.uint32)
    first, second = philox(counter, (draw.seed & 0xFFFFFFFF, draw.seed >> 32))[0, :2].tolist()
    return float((first >> 5) * 2**26 + (second >> 6)) / 2.0**53


def token(logits: F32, draw: Draw) -> tuple[int, int]:
    """The token of a draw; both that are right where its number lies on an edge (else twice the same)."""
    chances = probabilities(logits, draw)
    if draw.temperature == 0:
        best = int(chances.argmax())
        return best, best
    running, at = np.cumsum(chances), uniform(draw)
    low, high = (int(np.searchsorted(running, at + by, side="right")) for by in (-CLOSE, CLOSE))
    last = int(np.flatnonzero(chances)[-1])
    return min(low, last), min(high, last)


def tokens(logits: F32, draws: list[Draw], found: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
    """The tokens of draws; of two that are right the one ``found``, if it is one of them."""
    pairs = [token(logits[draw.row], draw) for draw in draws]
    seen = [first for first, _ in pairs] if found is None else np.asarray(found).tolist()
    return np.array([s if s in pair else pair[0] for s, pair in zip(seen, pairs, strict=True)])


def log_softmax(logits: F32) -> F64:
    """Of raw logits, before anything is done to them."""
    x = logits.astype(np.float64)
    shifted = x - x.max(-1, keepdims=True)
    result: F64 = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def plain(draws: list[Draw], **changes: object) -> list[Draw]:
    """The same draws with some settings replaced: for wrong answers."""
    known = {f.name for f in fields(Draw)}
    assert set(changes) <= known
    return [replace(draw, **changes) for draw in draws]  # type: ignore[arg-type]
