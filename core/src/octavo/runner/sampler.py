"""Sampling semantics, in numpy: the meaning that every device's sampler must reproduce, token for token.

For one draw over float32 logits l[V]:

1. bias: ``l[t] += value`` for each entry (-inf forbids t);
2. repetition penalty r, for every t of prompt and output: ``l[t] = l[t] / r if l[t] > 0 else l[t] * r``; frequency penalty f and
   presence penalty p, for every t of the output: ``l[t] -= f * count(t) + p``;
3. temperature 0: the largest l, the smallest id among equals. Otherwise, in float64, ``w = exp((l - max l) / temperature)``;
4. min_p: w below min_p falls to 0; top_k: w below the k-th largest falls to 0; top_p: with the rest in falling order, find the
   shortest prefix that holds top_p of the sum; w below its last value falls to 0 (equals stay together in both);
5. u is the draw's uniform (`octavo.runner.philox`); the token is the smallest id whose running sum of w exceeds ``u * sum(w)``.

Logprobs are of the raw logits, before step 1: ``l - log(sum(exp(l)))``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.platform.step import Floats, Ints, SamplingBatch, Samples
from octavo.runner.philox import uniforms


class HostSampler:
    """The reference `Sampler`."""

    def sample(self, logits: Floats, batch: SamplingBatch) -> Samples:
        """See `octavo.platform.Sampler`."""
        if batch.plain_greedy:
            best = logits.argmax(axis=-1)[batch.row]
            return Samples(best.astype(np.int32), ~np.isfinite(logits[batch.row, best]))
        raw = logits[batch.row]
        # The largest value is NaN if any is, -inf if all are: one look decides whether a row can be sampled.
        failed = ~np.isfinite(raw.max(axis=-1))
        tokens = np.zeros(batch.draws, np.int32)
        drawn = uniforms(batch.seed, batch.sample_index, batch.position)
        shaped = _shape(raw, batch)
        for draw in np.flatnonzero(~failed).tolist():
            if batch.target[draw] >= 0:
                tokens[draw] = batch.target[draw]
            elif batch.temperature[draw] == 0.0:
                tokens[draw] = shaped[draw].argmax()
            else:
                tokens[draw] = _draw(shaped[draw], batch, draw, drawn[draw])
                failed[draw] = tokens[draw] < 0
        if not (batch.logprobs >= 0).any():
            return Samples(tokens, failed)
        return _with_logprobs(raw, batch, tokens, failed)


def _shape(raw: Floats, batch: SamplingBatch) -> Floats:
    """Steps 1 and 2 on a copy; ``raw`` itself if there is nothing to do."""
    draws, ids, values = batch.bias
    starts, prompts, history = batch.history
    if not len(draws) and not len(history):
        return raw
    shaped = raw.copy()
    np.add.at(shaped, (draws, ids), values)
    for draw in np.flatnonzero(np.diff(starts)).tolist():
        sequence = history[starts[draw] : starts[draw + 1]]
        row = shaped[draw]
        seen = np.unique(sequence)
        penalty = batch.repetition[draw]
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
        made, counts = np.unique(sequence[prompts[draw] :], return_counts=True)
        row[made] -= batch.frequency[draw] * counts.astype(np.float32) + batch.presence[draw]
    return shaped


def _draw(logits: Floats, batch: SamplingBatch, draw: int, uniform: float) -> int:
    """Steps 3 to 5 for one draw; -1 if nothing can be drawn."""
    peak = logits.max()
    if not np.isfinite(peak):  # everything was forbidden
        return -1
    weights = np.exp((logits.astype(np.float64) - peak) / np.float64(batch.temperature[draw]))
    if batch.min_p[draw] > 0:
        weights[weights < np.float64(batch.min_p[draw])] = 0.0
    top_k = int(batch.top_k[draw])
    if 0 < top_k < len(weights):
        weights[weights < np.partition(weights, -top_k)[-top_k]] = 0.0
    if batch.top_p[draw] < 1.0:
        weights[weights < _nucleus_edge(weights, float(batch.top_p[draw]))] = 0.0
    running = np.cumsum(weights)
    chosen = int(np.searchsorted(running, uniform * running[-1], side="right"))
    # uniform < 1, yet its product with the sum may round up to the sum itself
    return min(chosen, int(np.flatnonzero(weights)[-1]))


def _nucleus_edge(weights: npt.NDArray[np.float64], top_p: float) -> float:
    """The smallest weight that stays under top_p."""
    falling = np.sort(weights[weights > 0])[::-1]
    running = np.cumsum(falling)
    last = int(np.searchsorted(running, top_p * running[-1], side="left"))
    return float(falling[min(last, len(falling) - 1)])


def _with_logprobs(raw: Floats, batch: SamplingBatch, tokens: Ints, failed: npt.NDArray[np.bool_]) -> Samples:
    """Logprob and rank of each chosen token and the K best alternatives, from the raw logits."""
    draws = np.arange(batch.draws)
    with np.errstate(invalid="ignore"):  # failed rows hold NaN; nobody reads what comes of them
        peak = raw.max(axis=-1, keepdims=True)
        total = np.exp(raw - peak).sum(axis=-1, keepdims=True, dtype=np.float64)
        normaliser = (peak + np.log(total)).astype(np.float32)
        chosen = raw[draws, tokens]
        ranks = (raw > chosen[:, None]).sum(axis=-1) + 1
        most = min(int(batch.logprobs.max()), raw.shape[1])
        top_ids = _largest(raw, most)
        top = raw[draws[:, None], top_ids] - normaliser
    return Samples(tokens, failed, chosen - normaliser[:, 0], ranks.astype(np.int32), top_ids, top)


def _largest(raw: Floats, count: int) -> Ints:
    """Ids of the ``count`` largest of each row, in falling order, the smaller id first among equals."""
    if count == 0:
        return np.empty((len(raw), 0), np.int32)
    candidates = np.sort(np.argpartition(raw, -count, axis=-1)[:, -count:], axis=-1)
    values = np.take_along_axis(raw, candidates, axis=-1)
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.take_along_axis(candidates, order, axis=-1).astype(np.int32)
