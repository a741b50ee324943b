"""Time at the engine's seams: a clock that only steps move, each by as long as its shape says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.platform import Executable, StepInput, StepOutput


@dataclass
class SimulatedClock:
    """Seconds since the start. A step takes ``constant``, ``token`` for each new token and ``pair`` for each token that
    one of them attends to, all times ``slowness``.
    """

    constant: float = 2e-3
    token: float = 250e-6
    pair: float = 2e-7
    slowness: float = 1.0
    now: float = 0.0
    steps: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def run(self, step: StepInput) -> None:
        """Let the time of a step pass."""
        counts = np.diff(step.query_starts)
        pairs = int((counts * (step.context_lens - counts) + counts * (counts + 1) // 2).sum())
        seconds = self.slowness * (self.constant + self.token * len(step.tokens) + self.pair * pairs)
        self.steps.append(seconds)
        self.now += seconds


class TimedExecutable:
    """An executable whose steps take the clock's time."""

    def __init__(self, inner: Executable, clock: SimulatedClock) -> None:
        self._inner, self._clock = inner, clock

    def submit(self, step: StepInput, kv: Any) -> object:
        self._clock.run(step)
        return self._inner.submit(step, kv)

    def collect(self, ticket: Any) -> StepOutput:
        return self._inner.collect(ticket)
