"""Rule T, made of R, X0 and C: an engine's distributions along given tokens, and the tokens that it chose.

Nothing stops at the first difference: every position has the truth for the very tokens before it, whoever chose them.
A position counts for the choice of tokens where the truth is decisive: where its best token leads by more than two
logits may be off together at the tier that allows the most errors of those in use, A1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from octavo_conformance.harness.numeric import Decoder
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.judge.floats import F64
from octavo_conformance.suite.verdict import Verdict

_LEEWAY = 4.0
"""Largest errors of the reference by which two logits may be apart: twice that for each."""


class Truth:
    """What a decoder must make of tokens: centred logprobs after each, and the reference's."""

    def __init__(self, t: Target, decoder: Decoder, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)
        self.exact = centred(decoder.exact(tokens))
        self.own = centred(decoder.own(tokens, t))

    @property
    def decisive(self) -> npt.NDArray[np.bool_]:
        """Where no right candidate can choose another token."""
        ordered = np.sort(self.exact, axis=-1)
        lead: F64 = ordered[:, -1] - ordered[:, -2]
        sure: npt.NDArray[np.bool_] = lead > _LEEWAY * np.abs(self.own - self.exact).max()
        return sure


def centred(logprobs: npt.ArrayLike) -> F64:
    """Logprobs less their mean: what all logits of a row have in common is no information, and its error, which is that
    of the normaliser, would count once for each token.
    """
    rows = np.asarray(logprobs, np.float64)
    made: F64 = rows - rows.mean(-1, keepdims=True)
    return made


def distributions(
    name: str, t: Target, truth: Truth, found: npt.ArrayLike, rows: slice = slice(None)
) -> Iterator[Verdict]:
    """R for logprobs ``found`` after the tokens of ``rows``, and X0 for the best token of each."""
    exact, own, logprobs = truth.exact[rows], truth.own[rows], centred(found)
    yield measure.budget(f"{name}: logprobs", logprobs, exact, own, t.dtype)
    if logprobs.shape == exact.shape:
        yield from chosen(f"{name}: best tokens", truth, logprobs.argmax(-1), rows)


def chosen(name: str, truth: Truth, tokens: npt.ArrayLike, rows: slice = slice(None)) -> Iterator[Verdict]:
    """X0 for the tokens that were chosen after those of ``rows``, where the truth is decisive, as it must mostly be."""
    best, sure = truth.exact[rows].argmax(-1), truth.decisive[rows]
    yield measure.within(f"{name}, positions that count", int(sure.sum()), len(best) // 2, len(best))
    found = np.asarray(tokens)
    if found.shape != best.shape:
        yield measure.integers(name, found, best)
    elif sure.any():
        yield measure.integers(name, found[sure], best[sure])


def alike(
    name: str, t: Target, truth: Truth, first: npt.ArrayLike, second: npt.ArrayLike, rows: slice = slice(None)
) -> Verdict:
    """M for two runs over the tokens of ``rows``."""
    return measure.metamorphic(name, centred(first), centred(second), truth.exact[rows], truth.own[rows], t.dtype)
