"""The inter-token latency target: how many prompt tokens may join a step in which rows decode."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from octavo.scheduler.step_time import StepShape, StepTimes

LEAST_CHUNK = 16
"""Prompt tokens that go on in a step whatever the target: a target that cannot be held slows prefill, and never stops
it. It is about what costs little beside reading the weights, which a step of decodes alone must do too."""


class Allowance:
    """What the target leaves of one step for prompt chunks.

    The step holds ``step`` without them, and may take ``seconds``. ``padded`` gives the tokens that a step of so many
    runs as, ``multiple`` what a chunk is a multiple of.
    """

    def __init__(
        self, times: StepTimes, seconds: float, step: StepShape, padded: Callable[[int], int], multiple: int
    ) -> None:
        self._times = times
        self.seconds = seconds
        self._step = step
        self._padded = padded
        self.least = -(-LEAST_CHUNK // multiple) * multiple
        self.cut = False
        """A chunk was made shorter than the step had room for."""

    def predicted(self, count: int, computed: int) -> float:
        """The seconds of the step with ``count`` more tokens of a prompt that has ``computed`` in the cache."""
        step = self._step.with_chunk(count, computed)
        tokens = self._padded(step.tokens + step.decodes) - step.decodes
        return self._times.predict(step._replace(tokens=tokens))

    def clip(self, count: int, computed: int) -> int:
        """How many of ``count`` tokens may join, of a prompt with ``computed`` in the cache: as many as leave the
        predicted time within the target; for the step's first chunk at least ``least``.
        """
        fitting = bisect_right(range(1, count + 1), self.seconds, key=lambda n: self.predicted(n, computed))
        if fitting < self.least and not self._step.tokens:
            fitting = min(count, self.least)
        self.cut = self.cut or fitting < count
        return fitting

    def take(self, count: int, computed: int) -> None:
        """A chunk is in the step."""
        self._step = self._step.with_chunk(count, computed)
