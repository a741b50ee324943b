"""How long a step will take: a small model, fitted to the steps that the engine has measured.

The seconds of a step are taken to be a constant, and a term each for prompt tokens, decode rows, pairs that prompts
attend to and context that decodes read, none negative, times a slack for what the fit does not explain (other work on
the machine, say).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from octavo.step_plan import StepPlan

_Array = npt.NDArray[np.float64]

_KEPT = 12
"""Steps kept of each size. Sizes are apart so that a thousand decodes do not wash out what is known of prefill, nor
small chunks what is known of large ones."""
_WATCHED = 32
_ALLOWED = 2
"""Of the last ``_WATCHED`` steps with prompt tokens, so many may have taken longer than predicted: the slack follows a
machine that slows down at the third slow step, and forgets it slowly."""
_ROUNDS = 4
_TOLERANCE = 0.1
"""Relative deviation from the fit beyond which a step counts less, so that stalls do not move it (Huber's weights)."""
_SCALE = np.array([1.0, 16.0, 1.0, 16.0 * 1024, 1024.0])
"""Sizes at which the five terms are about as long as each other; few measurements are split between terms by it."""
_RIDGE = 1e-6


class StepShape(NamedTuple):
    """What a step's time depends on."""

    tokens: int = 0
    """Prompt tokens, and those a static shape pads the step with."""
    decodes: int = 0
    """Rows with one new token."""
    pairs: int = 0
    """Pairs of a prompt token and a token that it attends to."""
    context: int = 0
    """Tokens that the decodes attend to, all together."""

    def with_chunk(self, count: int, computed: int) -> StepShape:
        """The shape with ``count`` more tokens of a prompt that has ``computed`` in the cache."""
        pairs = count * computed + count * (count + 1) // 2
        return self._replace(tokens=self.tokens + count, pairs=self.pairs + pairs)


def shape_of(plan: StepPlan) -> StepShape:
    """The shape of a planned step. A prompt's chunk of one token is as much work as a decode, and counts as one."""
    decodes = context = pairs = 0
    for count, computed in zip(plan.counts, plan.computed, strict=True):
        if count == 1:
            decodes += 1
            context += computed + 1
        else:
            pairs += count * computed + count * (count + 1) // 2
    tokens = sum(plan.counts) if plan.bucket.tokens is None else plan.bucket.tokens
    return StepShape(tokens - decodes, decodes, pairs, context)


class StepTimes:
    """Predicts the seconds of a step from those of steps before. Same observations, same predictions."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[tuple[StepShape, float]]] = {}  # by the magnitude of the prompt tokens
        self._watched: deque[tuple[StepShape, float]] = deque(maxlen=_WATCHED)
        self._terms = [0.0] * 5
        self._slack = 1.0
        self._stale = False

    def observe(self, shape: StepShape, seconds: float) -> None:
        """A step of this shape took so long. A time that is not positive says nothing, and is left out."""
        if seconds <= 0:
            return
        self._kept.setdefault(shape.tokens.bit_length(), deque(maxlen=_KEPT)).append((shape, seconds))
        if shape.tokens:
            self._watched.append((shape, seconds))
        self._stale = True

    def predict(self, shape: StepShape) -> float:
        """The seconds that all but the slowest steps of this shape stay within; 0 before the first observation.

        Never falls when the shape grows.
        """
        if self._stale:
            self._fit()
        constant, token, decode, pair, read = self._terms
        tokens, decodes, pairs, context = shape
        return self._slack * (constant + token * tokens + decode * decodes + pair * pairs + read * context)

    def _fit(self) -> None:
        self._stale = False
        steps = [step for kept in self._kept.values() for step in kept]
        columns, seconds = _columns([shape for shape, _ in steps]), np.array([time for _, time in steps])
        weights, terms = 1 / seconds, np.zeros(5)  # what counts is the relative deviation
        for _ in range(_ROUNDS):
            terms = _least_squares(columns * weights[:, None], seconds * weights)
            fitted = np.maximum(columns @ terms, 1e-9)
            off = np.maximum(np.abs(seconds / fitted - 1), _TOLERANCE)
            weights = np.sqrt(_TOLERANCE / off) / fitted
        self._terms = [float(term) for term in terms / _SCALE]
        self._slack = 1.0
        if len(self._watched) > _ALLOWED:
            fitted = np.maximum(_columns([shape for shape, _ in self._watched]) @ terms, 1e-9)
            ratios = np.sort(np.array([time for _, time in self._watched]) / fitted)
            self._slack = max(1.0, float(ratios[-1 - _ALLOWED]))


def _columns(shapes: list[StepShape]) -> _Array:
    columns: _Array = np.array([(1, *shape) for shape in shapes], np.float64) / _SCALE
    return columns


def _least_squares(columns: _Array, values: _Array) -> _Array:
    """The terms, none negative, that come closest: the most negative one is left out until there is none."""
    gram, product = columns.T @ columns, columns.T @ values
    gram += np.eye(len(gram)) * _RIDGE * np.trace(gram)
    terms = np.zeros(len(gram))
    used = list(range(len(gram)))
    while used:
        found = np.linalg.solve(gram[np.ix_(used, used)], product[used])
        if found.min() >= 0:
            terms[used] = found
            break
        del used[int(found.argmin())]
    return terms
