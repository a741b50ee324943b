"""What the server adds to a token: from where the engine lets go of it to where its bytes lie with the socket.

That is the hand-over between two threads, detokenising, stop strings, parsers, encoding, and the event loop's other
work in between. It is measured always, and told at ``GET /octavo/timing``, where
``octavo bench serve`` reads it before and after.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from contextvars import ContextVar
from dataclasses import dataclass, field

from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

FLOOR = 1e-5
"""Seconds; upper end of the first bucket."""
STEP = 10 ** (1 / 20)
"""Each bucket ends at this times the end of the one before: percentiles are told to within 12 %."""
BUCKETS = 141
"""The last ends at 100 s and holds whatever took longer, too."""
_ENDS = [FLOOR * STEP**i for i in range(BUCKETS)]
_INNER_ENDS = _ENDS[:-1]


class TimingReport(Struct):
    """Answer of GET /octavo/timing."""

    added_seconds: list[float]
    """Upper ends of the buckets."""
    counts: list[int]
    """Writes whose token took up to as long; since the server started."""


@dataclass
class Timing:
    """A histogram of the times."""

    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def add(self, seconds: float) -> None:
        """One more write, this long after the engine had its token."""
        self.counts[bisect_left(_INNER_ENDS, seconds)] += 1

    def report(self) -> TimingReport:
        """The state as of now."""
        return TimingReport(_ENDS, list(self.counts))


@dataclass(slots=True)
class _Waiting:
    """When the engine let go of what one response is about to send."""

    timing: Timing
    since: float | None = None


_waiting: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)
# Between the engine's stream and the socket lie the modules of all APIs; so none of them need know of this.


def took(left_engine: float | None) -> None:
    """The response that this task works for has taken an item that left the engine at this time (monotonic seconds).

    A token whose text is held back (half a character, what may begin a stop string) goes with a later one and counts
    with that: the server does not add that wait.
    """
    waiting = _waiting.get()
    if waiting is not None:
        waiting.since = left_engine


def sent() -> None:
    """The socket has an event of the response that this task works for."""
    waiting = _waiting.get()
    if waiting is not None and waiting.since is not None:
        waiting.timing.add(time.monotonic() - waiting.since)
        waiting.since = None


class TimedStreams:
    """Plain ASGI around the app: between `took` and `sent`, a request's time is added to ``timing``."""

    def __init__(self, app: ASGIApp, timing: Timing) -> None:
        self._app = app
        self._timing = timing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request."""
        token = _waiting.set(_Waiting(self._timing))
        try:
            await self._app(scope, receive, send)
        finally:
            _waiting.reset(token)
