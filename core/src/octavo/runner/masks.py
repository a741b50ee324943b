"""Token masks as words of 32 bits, and what becomes of them where a platform takes none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from octavo.platform.step import SamplingBatch, Words


def word_count(vocab: int) -> int:
    """Words of a mask."""
    return -(-vocab // 32)


def pack(tokens: Iterable[int], vocab: int) -> Words:
    """The mask of some tokens; those outside the vocabulary are left out."""
    bits = np.zeros(word_count(vocab) * 32, np.uint8)
    bits[[t for t in tokens if 0 <= t < vocab]] = 1
    return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def remove(words: Words, tokens: Iterable[int]) -> None:
    """Take tokens from a mask."""
    for token in tokens:
        words[token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))


def allowed_tokens(words: Words, vocab: int) -> npt.NDArray[np.bool_]:
    """A mask as one boolean per token."""
    octets = np.ascontiguousarray(words).astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(octets, count=vocab, bitorder="little").view(np.bool_)


def as_bias(batch: SamplingBatch, vocab: int) -> SamplingBatch:
    """The same batch with biases of -inf in place of its mask: slower, and understood by every platform."""
    if batch.mask is None:
        return batch
    draws, words = batch.mask
    which, tokens = np.nonzero([~allowed_tokens(row, vocab) for row in words])
    owners, ids, values = batch.bias
    bias = (
        np.concatenate([owners, draws[which]]),
        np.concatenate([ids, tokens.astype(np.int32)]),
        np.concatenate([values, np.full(len(which), -np.inf, np.float32)]),
    )
    return replace(batch, bias=bias, mask=None)
