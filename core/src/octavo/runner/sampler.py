"""Sampling semantics, in numpy: the meaning that every device's sampler must reproduce, token for token.

For one draw over float32 logits l[V]:

1. mask: l[t] becomes -inf where its bit is 0; bias: ``l[t] += value`` for each entry (-inf forbids t);
2. repetition penalty r, for every t of prompt and output: ``l[t] = l[t] / r if l[t] > 0 else l[t] * r``; frequency
   penalty f and presence penalty p, for every t of the output: ``l[t] -= f * count(t) + p``;
3. temperature 0: the largest l, the smallest id among equals. Otherwise ``w = exp((l - max l) / temperature)``, to the
   last bit as `octavo.runner.weights` defines it: every sum of w below is exact, whatever its order;
4. top_k: w of every l below the k-th largest l falls to 0; min_p: w below min_p falls to 0; top_p: with the rest in
   falling order, find the shortest prefix that holds ``top_p * sum(w)``; w below its last value falls to 0 (so equals
   stay together);
5. u is the draw's uniform (`octavo.runner.philox`); the token is the smallest id whose running sum of w exceeds
   ``u * sum(w)``. Both products are rounded to float64.

A draw fails if a raw logit is NaN or +inf, if all are -inf, or if nothing is left after steps 1 and 2.
Logprobs are of the raw logits, before step 1: ``l - (max l + log(sum(w)))`` with w at temperature 1, in float64,
rounded once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from octavo.platform.step import Floats, Ints, Samples, SamplingBatch, Words
from octavo.runner.masks import allowed_tokens
from octavo.runner.philox import uniforms
from octavo.runner.weights import Weights, spread, weigh

_Bias = tuple[Ints, Floats]  # token ids, what is added to their logits
_NO_BIAS: _Bias = (np.zeros(0, np.int32), np.zeros(0, np.float32))
_ONE = np.float32(1)
_BLOCK = 512  # weights whose sum is looked at before they are


class HostSampler:
    """The reference `Sampler`."""

    def sample(self, logits: Floats, batch: SamplingBatch) -> Samples:
        """See `octavo.platform.Sampler`."""
        if batch.plain_greedy:
            best = logits.argmax(axis=-1)  # the first NaN, if there is one
            failed = ~np.isfinite(logits[np.arange(len(logits)), best])
            return Samples(best.astype(np.int32)[batch.row], failed[batch.row])
        # The largest value is NaN if any is, -inf if all are: one look decides whether a row can be sampled.
        failed = ~np.isfinite(logits.max(axis=-1))[batch.row]
        tokens = np.maximum(batch.target, 0)
        drawn = uniforms(batch.seed, batch.sample_index, batch.position)
        biases, masks = _by_draw(batch), _masks(batch)
        for draw in np.flatnonzero(~failed & (batch.target < 0)).tolist():
            token = _draw(_shaped(logits[batch.row[draw]], batch, draw, biases, masks), batch, draw, drawn[draw])
            if token is None:
                failed[draw] = True
            else:
                tokens[draw] = token
        if not (batch.logprobs >= 0).any():
            return Samples(tokens, failed)
        return _with_logprobs(logits, batch, tokens, failed)


def _by_draw(batch: SamplingBatch) -> dict[int, _Bias]:
    """The sparse bias, draw by draw."""
    draws, ids, values = batch.bias
    return {draw: (ids[draws == draw], values[draws == draw]) for draw in np.unique(draws).tolist()}


def _masks(batch: SamplingBatch) -> dict[int, Words]:
    """The words of each masked draw."""
    return {} if batch.mask is None else dict(zip(batch.mask[0].tolist(), batch.mask[1], strict=True))


def _shaped(
    logits: Floats, batch: SamplingBatch, draw: int, biases: dict[int, _Bias], masks: dict[int, Words]
) -> Floats:
    """Steps 1 and 2 on a copy; ``logits`` itself if there is nothing to do."""
    starts, prompts, history = batch.history
    sequence = history[starts[draw] : starts[draw + 1]]
    if draw not in biases and draw not in masks and not len(sequence):
        return logits
    shaped = logits.copy()
    if draw in masks:
        shaped[~allowed_tokens(masks[draw], len(logits))] = -np.inf
    np.add.at(shaped, *biases.get(draw, _NO_BIAS))  # an id may come twice
    seen = np.unique(sequence)
    penalty = batch.repetition[draw]
    with np.errstate(over="ignore"):  # a tiny penalty may make a logit infinite, which fails the draw
        shaped[seen] = np.where(shaped[seen] > 0, shaped[seen] / penalty, shaped[seen] * penalty)
    made, counts = np.unique(sequence[prompts[draw] :], return_counts=True)
    shaped[made] -= batch.frequency[draw] * counts.astype(np.float32) + batch.presence[draw]
    return shaped


def _draw(logits: Floats, batch: SamplingBatch, draw: int, uniform: float) -> int | None:
    """Steps 3 to 5 for one draw; ``None`` if nothing can be drawn."""
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        return None
    if batch.temperature[draw] == 0.0:
        return best
    ids, vocab, top_k = None, len(logits), int(batch.top_k[draw])
    if 0 < top_k < vocab:
        ids = np.flatnonzero(logits >= np.partition(logits, -top_k)[-top_k])
    weights = weigh(logits if ids is None else logits[ids], logits[best], batch.temperature[draw], spread(vocab))
    edge = float(batch.min_p[draw])  # what is below falls to 0; the largest weight is 1
    if batch.top_p[draw] < 1.0:
        edge = _nucleus_edge(weights[weights >= edge], float(batch.top_p[draw]))
    if edge > 0:
        kept = np.flatnonzero(weights >= edge)
        ids, weights = kept if ids is None else ids[kept], weights[kept]
    at = _pick(weights, uniform)
    return at if ids is None else int(ids[at])


def _pick(weights: Weights, uniform: float) -> int:
    """The first index whose running sum exceeds its share of the whole. Sums are exact: those of blocks come first."""
    blocks = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK))
    running = np.cumsum(blocks)
    # uniform is at most 1 - 2**-53, whose product with the sum never rounds up to the sum: some token exceeds it
    target = uniform * running[-1]
    block = int(np.searchsorted(running, target, side="right"))
    start = block * _BLOCK
    within = running[block] - blocks[block] + np.cumsum(weights[start : start + _BLOCK])
    return start + int(np.searchsorted(within, target, side="right"))


def _nucleus_edge(weights: Weights, top_p: float) -> float:
    """The smallest weight that stays under top_p."""
    total = weights.sum()
    # All weights below this share of the rest, together, are less than the rest: they need not be sorted.
    falling = np.sort(weights[weights >= (1.0 - top_p) * total / len(weights)])[::-1]
    return float(falling[np.searchsorted(np.cumsum(falling), top_p * total, side="left")])


def _with_logprobs(logits: Floats, batch: SamplingBatch, tokens: Ints, failed: npt.NDArray[np.bool_]) -> Samples:
    """Adds logprob and rank of the token, and the best alternatives, for each draw that asked and did not fail.

    Row by row: a scored prompt has as many draws as tokens, and a float64 copy of all its logits would not be small.
    """
    most = min(int(batch.logprobs.max()), logits.shape[1])
    logprobs, ranks = np.zeros(batch.draws, np.float32), np.zeros(batch.draws, np.int32)
    top_ids, top = np.zeros((batch.draws, most), np.int32), np.zeros((batch.draws, most), np.float32)
    for draw in np.flatnonzero((batch.logprobs >= 0) & ~failed).tolist():
        raw = logits[batch.row[draw]]
        peak = raw.max()
        exact = raw.astype(np.float64)
        exact -= np.float64(peak) + math.log(weigh(raw, peak, _ONE, spread(len(raw))).sum())
        best = _largest(raw, min(int(batch.logprobs[draw]), most))
        logprobs[draw] = exact[tokens[draw]]
        ranks[draw] = np.count_nonzero(raw > raw[tokens[draw]]) + 1
        top_ids[draw, : len(best)], top[draw, : len(best)] = best, exact[best]
    return Samples(tokens, failed, logprobs, ranks, top_ids, top)


def _largest(raw: Floats, count: int) -> npt.NDArray[np.intp]:
    """Ids of the ``count`` largest, in falling order, the smaller id first among equals."""
    if count == 0:
        return np.zeros(0, np.intp)
    least = np.partition(raw, -count)[-count]
    candidates = np.flatnonzero(raw >= least)  # more than ``count``, where several equal the least
    return candidates[np.argsort(-raw[candidates], kind="stable")][:count]
