"""How fast waiting requests get in, for those that are told to come back later."""

from __future__ import annotations

_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds: clients do not take more than a minute for an answer, and less than a second is no rest."""
_WEIGHT = 0.1
"""Of the newest interval in the average."""


class AdmissionPace:
    """The mean time from one admission to the next, of late."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._new = 0
        self._since: float | None = None

    def admitted(self) -> None:
        """A request got in."""
        self._new += 1

    def tick(self, now: float) -> None:
        """The time, on a clock that does not go back."""
        if not self._new:
            return
        if self._since is not None:
            interval = (now - self._since) / self._new
            weight = _WEIGHT if self._seconds else 1.0
            self._seconds += weight * (interval - self._seconds)
        self._since, self._new = now, 0

    def until_half_of(self, waiting: int) -> float:
        """Seconds until half of so many will have got in, if all goes on as it did; 1 to 60."""
        return min(max(waiting / 2 * self._seconds, _SHORTEST), _LONGEST)
