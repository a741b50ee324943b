"""How long rows waited from one token to the next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

BOUNDS = tuple(0.0005 * 1.25**i for i in range(53))
"""Upper bounds of the intervals in seconds, each a quarter longer than the one before, up to about a minute; one more
interval has no upper bound."""


@dataclass(frozen=True)
class Latencies:
    """A histogram of waits since the start: ``counts[i]`` were at most ``bounds[i]`` seconds and above the bound
    before; the last count is of longer ones.
    """

    bounds: tuple[float, ...] = BOUNDS
    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0
    """The sum of all."""

    @property
    def count(self) -> int:
        """How many waits there were."""
        return sum(self.counts)

    def percentile(self, percent: float) -> float:
        """The wait in seconds that ``percent`` of 100 do not exceed, right to within an interval; 0 if there are none,
        and the last bound for what lies beyond it.
        """
        wanted, below = self.count * percent / 100, 0
        for i, number in enumerate(self.counts):
            if number and below + number >= wanted:
                low, high = (self.bounds[i - 1] if i else 0.0), self.bounds[min(i, len(self.bounds) - 1)]
                return low + (high - low) * max(0.0, wanted - below) / number
            below += number
        return 0.0


class LatencyRecorder:
    """Counts waits."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def add(self, begun: Mapping[float | None, int], now: float) -> None:
        """So many rows waited until ``now``, by when their waits began; ``None``: those did not wait."""
        for since, rows in begun.items():
            if since is not None:
                self._counts[bisect_left(BOUNDS, now - since)] += rows
                self._seconds += (now - since) * rows

    def snapshot(self) -> Latencies:
        """What there is now."""
        return Latencies(BOUNDS, tuple(self._counts), self._seconds)
