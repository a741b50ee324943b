"""The step: all that passes between core and a device while serving. Host values only.

Shape legend: T tokens, R rows, S logits rows, D draws, M of them masked, B blocks per row, G KV groups, C copies;
V vocabulary.
``Ints`` are int32, ``Floats`` float32, ``Words`` uint32; every array is C-contiguous.

A step in a static bucket arrives padded to it in T, R, S and B (see `octavo.platform.buckets.Bucket` for what padding
holds). D and C are never padded: they are work for the host or for a loop, and may be 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform.buckets import Bucket

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class SamplingBatch:
    """How to choose tokens: one entry per draw. The meaning is that of `octavo.runner.sampler`, draw by draw, and the
    uniform numbers are those of `octavo.runner.philox`; read both before you write a sampler.

    Several draws may read one logits row (the n samples of a request), and some rows none (padding). A draw with a
    ``target`` of 0 or more chooses that token and is made for its logprobs alone.
    """

    row: Ints
    """[D] logits row of each draw, below S."""
    target: Ints
    """[D] token to score, or -1 to sample."""
    temperature: Floats
    """[D] 0: the most probable token, the smallest id among equals."""
    top_k: Ints
    """[D] 0: all."""
    top_p: Floats
    """[D] 1: all."""
    min_p: Floats
    """[D] 0: all."""
    repetition: Floats
    """[D] 1: none."""
    presence: Floats
    """[D] 0: none."""
    frequency: Floats
    """[D] 0: none."""
    seed: npt.NDArray[np.uint64]
    """[D] the request's."""
    sample_index: Ints
    """[D] which of the request's n sequences is drawn for."""
    position: Ints
    """[D] index in its sequence of the token to be drawn: the counter of its random number."""
    logprobs: Ints
    """[D] alternatives to report, -1: no logprobs at all."""
    bias: tuple[Ints, Ints, Floats]
    """Sparse (draw, token, value), each of one length, added to the logits; -inf forbids a token."""
    history: tuple[Ints, Ints, Ints]
    """(starts [D + 1], prompt lengths [D], tokens): the sequence of each draw that has a penalty, empty for others."""
    plain_greedy: bool
    """No draw needs anything but the most probable token: no logprobs, bias, penalty, mask or target."""
    mask: tuple[Ints, Words] | None = None
    """(draws [M] ascending, words [M, ceil(V / 32)]), ``None`` if nothing is masked: draw ``draws[m]`` may choose token
    t only if bit t % 32 (from the least) of ``words[m, t // 32]`` is 1. No draw with a target is among them; bits
    beyond V mean nothing. For platforms that declare `Capabilities.masks`; others get biases of -inf instead."""

    @classmethod
    def plain(cls, rows: int, *, greedy: bool) -> SamplingBatch:
        """One draw from each of ``rows`` logits rows, greedy or at temperature 1, with nothing else asked for."""
        none, zeros = np.zeros(0, np.int32), np.zeros(rows, np.float32)
        return cls(
            row=np.arange(rows, dtype=np.int32),
            target=np.full(rows, -1, np.int32),
            temperature=np.full(rows, 0.0 if greedy else 1.0, np.float32),
            top_k=np.zeros(rows, np.int32),
            top_p=np.ones(rows, np.float32),
            min_p=zeros,
            repetition=np.ones(rows, np.float32),
            presence=zeros,
            frequency=zeros,
            seed=np.zeros(rows, np.uint64),
            sample_index=np.zeros(rows, np.int32),
            position=np.arange(rows, dtype=np.int32),
            logprobs=np.full(rows, -1, np.int32),
            bias=(none, none, np.zeros(0, np.float32)),
            history=(np.zeros(rows + 1, np.int32), np.zeros(rows, np.int32), none),
            plain_greedy=greedy,
        )

    @property
    def draws(self) -> int:
        """D."""
        return len(self.row)


@dataclass(frozen=True)
class Samples:
    """The tokens of a step, draw by draw, and the logprobs asked for.

    Logprobs are of the raw logits, before bias, penalties and temperature. The four arrays are ``None`` if no draw
    asked for any, and mean nothing for a draw that did not.
    """

    tokens: Ints
    """[D]"""
    failed: npt.NDArray[np.bool_]
    """[D] the draw's logits were not finite, or every token was forbidden; its token means nothing."""
    logprobs: Floats | None = None
    """[D] of the chosen token"""
    ranks: Ints | None = None
    """[D] of the chosen token; 1 is the most probable"""
    top_ids: Ints | None = None
    """[D, K] the most probable tokens in falling order, K the most that any draw asked for"""
    top_logprobs: Floats | None = None
    """[D, K]"""


@dataclass(frozen=True)
class StepInput:
    """One step of any mix of rows. Row r has the tokens ``query_starts[r] : query_starts[r + 1]``, which are the last
    of its ``context_lens[r]``; those before are in the cache already.
    """

    tokens: Ints
    """[T] ids, below the vocabulary's size"""
    positions: Ints
    """[T] of each token in its sequence, from 0. In models that embed positions (RoBERTa) a padding token inside a text
    has -1 and is not counted, and the graph's ``map_ids`` gives it its place."""
    query_starts: Ints
    """[R + 1] ascending from 0; tokens from ``query_starts[R]`` on are padding"""
    context_lens: Ints
    """[R] tokens of each row after this step; 0 for a padding row"""
    slots: Ints
    """[G, T] where each token's key and value go: block * block_size + offset, -1: nowhere"""
    block_tables: Ints
    """[G, R, B] the blocks of each row in order, every entry below the number of blocks in the pool: 0, the null block,
    where the group's window has left one and where the row has none. Nothing may come of what lies beyond
    ``context_lens``."""
    sample_rows: Ints
    """[S] index into the step's tokens of each logits row; ascending, but for padding, which is 0"""
    copies: Ints
    """[C, 2] (source, destination) blocks, every slot of them, copied one after the other before anything is written"""
    sampling: SamplingBatch
    """How to choose tokens from the logits; for devices that sample."""
    bucket: Bucket
    """The bucket whose executable is asked."""

    def graph_inputs(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by the names that graphs use (`octavo.graph.step_inputs`)."""
        return {
            "tokens": self.tokens,
            "positions": self.positions,
            "query_starts": self.query_starts,
            "context_lens": self.context_lens,
            "slots": self.slots,
            "block_tables": self.block_tables,
            "sample_rows": self.sample_rows,
        }


@dataclass(frozen=True)
class StepOutput:
    """What a step brings back: ``samples`` from a device that samples (`Capabilities.sampling`), else ``logits``; of a
    graph whose output is ``pooled``, that and nothing else.
    """

    logits: Floats | None = None
    """[S, V] in host memory; padding rows hold anything, finite or not."""
    samples: Samples | None = None
    """For all D draws; the logits are not looked at then."""
    pooled: Floats | None = None
    """[R, W] in host memory: a vector of each row's tokens in this step; padding rows hold anything."""
