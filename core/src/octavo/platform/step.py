"""The step: all that passes between core and a device while serving. Host values only.

Shape legend: T tokens, R rows, S logits rows, D draws, B blocks per row, G KV groups, C copies; V vocabulary.
A step in a static bucket arrives padded to it (see `octavo.platform.buckets.Bucket`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform.buckets import Bucket

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SamplingBatch:
    """How to choose tokens: one entry per draw. Semantics: `octavo.sampling.SamplingParams`, `octavo.runner.sampler`.

    Several draws may read one logits row (the n samples of a request). A draw with a ``target`` of 0 or more
    chooses that token and is made for its logprobs alone.
    """

    row: Ints
    """[D] logits row of each draw."""
    target: Ints
    """[D] token to score, or -1 to sample."""
    temperature: Floats
    top_k: Ints
    """[D] 0: all."""
    top_p: Floats
    min_p: Floats
    repetition: Floats
    presence: Floats
    frequency: Floats
    seed: npt.NDArray[np.uint64]
    sample_index: Ints
    position: Ints
    """[D] index in its sequence of the token to be drawn: the counter of its random number."""
    logprobs: Ints
    """[D] alternatives to report, -1: no logprobs at all."""
    bias: tuple[Ints, Ints, Floats]
    """Sparse (draw, token, value) added to the logits; -inf forbids a token."""
    history: tuple[Ints, Ints, Ints]
    """(starts [D + 1], prompt lengths [D], tokens): the sequence of each draw that has a penalty, empty for others."""
    plain_greedy: bool
    """No draw needs anything but the most probable token: no logprobs, bias, penalty or target."""

    @property
    def draws(self) -> int:
        """D."""
        return len(self.row)


@dataclass(frozen=True)
class Samples:
    """The tokens of a step, draw by draw, and the logprobs asked for.

    ``failed[d]`` marks a draw whose logits were not finite; its token means nothing. ``top_ids`` and
    ``top_logprobs`` are [D, K], K the most that any draw asked for; ``None`` if none did.
    """

    tokens: Ints
    failed: npt.NDArray[np.bool_]
    logprobs: Floats | None = None
    ranks: Ints | None = None
    top_ids: Ints | None = None
    top_logprobs: Floats | None = None


@dataclass(frozen=True)
class StepInput:
    """One step of any mix of rows; see `octavo.graph.ir.step_inputs` for what the arrays mean."""

    tokens: Ints
    """[T]"""
    positions: Ints
    """[T]"""
    query_starts: Ints
    """[R + 1]"""
    context_lens: Ints
    """[R] tokens of each row after this step"""
    slots: Ints
    """[G, T] block * block_size + offset, -1: do not write"""
    block_tables: Ints
    """[G, R, B]; 0, the null block, where there is none"""
    sample_rows: Ints
    """[S] index into the step's tokens"""
    copies: Ints
    """[C, 2] (source, destination) blocks, copied in order before anything is written"""
    sampling: SamplingBatch
    bucket: Bucket

    def graph_inputs(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by the names that graphs use."""
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
    """What a step brings back: samples from a device that samples, else logits [S, V] in host memory.

    ``device_seconds`` is the device's own time for the step, where it is known.
    """

    logits: Floats | None = None
    samples: Samples | None = None
    device_seconds: float | None = None
