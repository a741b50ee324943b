"""Faults in the choice of tokens. A device that samples within its steps has them too: their logits never leave it, so
these mutants are for platforms whose logits do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from octavo.platform import Capabilities, Sampler, Samples, SamplingBatch, StepOutput
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped

Floats = npt.NDArray[np.float32]


def _shares(logits: Floats, batch: SamplingBatch, draw: int) -> npt.NDArray[np.float64]:
    """Softmax of a draw's logits at its temperature, without bias and penalties."""
    x = logits[batch.row[draw]].astype(np.float64) / max(float(batch.temperature[draw]), 1e-6)
    weights = np.exp(x - x.max())
    shares: npt.NDArray[np.float64] = weights / weights.sum()
    return shares


def _forbidding(batch: SamplingBatch, masks: dict[int, npt.NDArray[np.bool_]]) -> SamplingBatch:
    """The batch with only the tokens of a mask left to each of its draws, and no other filter on them."""
    draws, ids, values = (list(part) for part in batch.bias)
    top_k, top_p, min_p = batch.top_k.copy(), batch.top_p.copy(), batch.min_p.copy()
    for draw, allowed in masks.items():
        top_k[draw], top_p[draw], min_p[draw] = 0, 1.0, 0.0
        forbidden = np.flatnonzero(~allowed).tolist()
        draws += [draw] * len(forbidden)
        ids += forbidden
        values += [-np.inf] * len(forbidden)
    bias = (np.array(draws, np.int32), np.array(ids, np.int32), np.array(values, np.float32))
    return replace(batch, top_k=top_k, top_p=top_p, min_p=min_p, bias=bias)


@mutant("M29.boundary", "top_p leaves out the token that reaches it", killed_by=("smp.topp_set",))
class NoBoundary(Wrapped):
    """Keeps the tokens whose running sum lies below top_p, and the first."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        masks = {}
        for draw in np.flatnonzero((batch.top_p < 1) & (batch.temperature > 0)).tolist():
            shares = _shares(logits, batch, draw)
            order = np.argsort(-shares, kind="stable")
            kept = np.cumsum(shares[order]) < batch.top_p[draw]
            kept[0] = True
            masks[draw] = np.isin(np.arange(len(shares)), order[kept])
        return sampler.sample(logits, _forbidding(batch, masks))


@mutant("M29.order", "top_p comes before top_k", killed_by=("smp.topk_set", "smp.order_of_ops"))
class TopPFirst(Wrapped):
    """The nucleus of the whole distribution, then the k largest of it."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        masks = {}
        for draw in np.flatnonzero((batch.top_p < 1) & (batch.top_k > 0) & (batch.temperature > 0)).tolist():
            shares = _shares(logits, batch, draw)
            order = np.argsort(-shares, kind="stable")
            enough = int((np.cumsum(shares[order]) >= batch.top_p[draw]).argmax()) + 1
            kept = order[: min(enough, int(batch.top_k[draw]))]
            masks[draw] = np.isin(np.arange(len(shares)), kept)
        return sampler.sample(logits, _forbidding(batch, masks))


@mutant("M29.temperature", "every draw has the temperature of the first",
        killed_by=("smp.temperature_limits", "smp.per_request_params"))  # fmt: skip
class OneTemperature(Wrapped):
    """As a kernel that reads its settings once."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        return sampler.sample(logits, replace(batch, temperature=np.full_like(batch.temperature, batch.temperature[0])))


@mutant("M29.penalties", "penalties of the output fall on the prompt too", killed_by=("smp.penalties",))
class PenalisesPrompt(Wrapped):
    """Presence and frequency count the whole sequence."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        starts, prompts, tokens = batch.history
        return sampler.sample(logits, replace(batch, history=(starts, np.zeros_like(prompts), tokens)))


@mutant("M29.bias", "a bias falls on every draw", killed_by=("smp.logit_bias_mask", "smp.per_request_params"))
class BiasForAll(Wrapped):
    """The biases of all draws are added to the logits that they share."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        draws, ids, values = batch.bias
        changed = logits.copy()
        for draw, token, value in zip(draws.tolist(), ids.tolist(), values.tolist(), strict=True):
            changed[batch.row[draw], token] += value
        none = (draws[:0], ids[:0], values[:0])
        return sampler.sample(changed, replace(batch, bias=none))


@mutant("M30.seed", "seeds are ignored",
        killed_by=("smp.seed_reproducible", "smp.topk_set", "smp.topp_set", "smp.minp", "smp.order_of_ops",
                   "smp.per_request_params", "smp.temperature_limits", "smp.distribution"))  # fmt: skip
class NoSeed(Wrapped):
    """All draws of a step, and of every step, take one stream, by their place in the step; and of that every number
    twice, as where two lanes share a state.
    """

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        at = np.arange(batch.draws, dtype=np.int32) // 8
        return sampler.sample(logits, replace(batch, seed=np.zeros_like(batch.seed), position=at))


@mutant("M30.shared", "all draws of a step share one random number",
        killed_by=("smp.seed_reproducible", "smp.seed_independence", "smp.distribution"))  # fmt: skip
class OneNumber(Wrapped):
    """That of the first draw."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        one = {name: np.full_like(getattr(batch, name), getattr(batch, name)[0])
               for name in ("seed", "sample_index", "position")}  # fmt: skip
        return sampler.sample(logits, replace(batch, **one))


@mutant("M31", "a padded token can win", killed_by=("lin.vocab_pad",))
class PaddedVocabulary(Wrapped):
    """Logits come out as wide as the device's padded matrix, with zeros beyond the vocabulary."""

    def output(self, output: StepOutput) -> StepOutput:
        if output.logits is None:
            return output
        width = -(-(output.logits.shape[1] + 1) // 16) * 16
        wide = np.zeros((len(output.logits), width), np.float32)
        wide[:, : output.logits.shape[1]] = output.logits
        return replace(output, logits=wide)


@mutant("M46.logprobs", "logprobs are those after bias and temperature", killed_by=("smp.logprobs",))
class ShapedLogprobs(Wrapped):
    """What a sampler has at hand, which is not what was asked for."""

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        samples = sampler.sample(logits, batch)
        if samples.logprobs is None:
            return samples
        heat = np.where(batch.temperature > 0, batch.temperature, 1.0)
        return replace(samples, logprobs=(samples.logprobs / heat).astype(np.float32))


@mutant("M29.mask", "a mask falls on every draw", killed_by=("smp.token_mask",))
class OneMask(Wrapped):
    """The first mask of the step, as of a kernel that forgets whose it is."""

    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities(), masks=True)

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        if batch.mask is None:
            return sampler.sample(logits, batch)
        every = np.flatnonzero(batch.target < 0).astype(np.int32)
        words = np.repeat(batch.mask[1][:1], len(every), axis=0)
        return sampler.sample(logits, replace(batch, mask=(every, words)))


@mutant("M29.mask_late", "a mask comes after top_k", killed_by=("smp.token_mask",))
class MaskLate(Wrapped):
    """The k largest of all tokens, and of them what the mask leaves; the mask alone if that is nothing."""

    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities(), masks=True)

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        if batch.mask is None:
            return sampler.sample(logits, batch)
        words = batch.mask[1].copy()
        for row, draw in zip(words, batch.mask[0].tolist(), strict=True):
            if 0 < batch.top_k[draw] < logits.shape[1]:
                best = np.argsort(-logits[batch.row[draw]], kind="stable")[: batch.top_k[draw]]
                kept = row & np.bitwise_or.reduce(_bits(best, len(row)), axis=0)
                row[:] = kept if kept.any() else row
        return sampler.sample(logits, replace(batch, mask=(batch.mask[0], words)))


@mutant("M29.mask_tail", "a mask's last word does not count", killed_by=("smp.token_mask",))
class MaskTail(Wrapped):
    """As of a kernel that masks whole words, and lets what is left of the vocabulary through."""

    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities(), masks=True)

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        if batch.mask is None or logits.shape[1] % 32 == 0:
            return sampler.sample(logits, batch)
        words = batch.mask[1].copy()
        words[:, -1] = 0xFFFFFFFF
        return sampler.sample(logits, replace(batch, mask=(batch.mask[0], words)))


@mutant("M46.mask_logprobs", "logprobs are of what a mask leaves", killed_by=("smp.mask_logprobs",))
class MaskedLogprobs(Wrapped):
    """Ranks count the allowed tokens alone."""

    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities(), masks=True)

    def sample(self, sampler: Sampler, logits: Floats, batch: SamplingBatch) -> Samples:
        samples = sampler.sample(logits, batch)
        if samples.ranks is None or batch.mask is None:
            return samples
        ranks = samples.ranks.copy()
        for draw, row in zip(batch.mask[0].tolist(), batch.mask[1], strict=True):
            own = logits[batch.row[draw]]
            larger = np.flatnonzero(own > own[samples.tokens[draw]])
            ranks[draw] = 1 + sum(int(row[token // 32]) >> (token % 32) & 1 for token in larger.tolist())
        return replace(samples, ranks=ranks)


def _bits(tokens: npt.NDArray[np.intp], words: int) -> npt.NDArray[np.uint32]:
    """[tokens, words] with the one bit of each token."""
    bits = np.zeros((len(tokens), words), np.uint32)
    bits[np.arange(len(tokens)), tokens // 32] = np.uint32(1) << (tokens % 32).astype(np.uint32)
    return bits
