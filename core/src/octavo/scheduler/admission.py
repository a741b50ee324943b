"""Whether one more request may wait, and when to come back if not."""

from __future__ import annotations

from octavo.errors import QueueFull
from octavo.scheduler.queue import WaitingQueue
from octavo.scheduler.request import Request

_SHORTEST, _LONGEST = 1.0, 60.0
"""Seconds: clients do not take more than a minute for an answer, and less than a second is no rest."""
_WEIGHT = 0.1
"""Of the newest interval in the average."""


class Admission:
    """The bounds of the waiting queue, and the pace at which it empties: the mean time between admissions of late."""

    def __init__(self, max_waiting: int | None = None, max_waiting_tokens: int | None = None) -> None:
        self._most = max_waiting
        self._most_tokens = max_waiting_tokens
        self._seconds = 0.0
        self._new = 0
        self._since: float | None = None

    def check(self, waiting: WaitingQueue, request: Request) -> None:
        """Raises QueueFull if the request may not wait as well."""
        if self._most is not None and len(waiting) >= self._most:
            raise QueueFull(
                f"{len(waiting)} requests wait already, and at most {self._most} may; try later",
                retry_after=self.until_half_of(len(waiting)),
            )
        most = self._most_tokens
        if most is not None and waiting and waiting.tokens + request.prompt_length > most:
            raise QueueFull(
                f"{waiting.tokens} tokens wait already; with the {request.prompt_length} of this request they would be "
                f"more than {most}; try later",
                retry_after=self.until_half_of(len(waiting)),
            )

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
