"""The waiting queue."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from octavo.scheduler.request import Request, Status


class WaitingQueue:
    """Waiting requests by `Request.key`. Push and pop are O(log n), everything else is O(1), amortised.

    Keys are unique, and a preempted request keeps its own: it comes before all that arrived later.
    An aborted request stays in the heap as a dead entry until it surfaces or the dead outnumber the living.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int, int], Request]] = []
        self._dead = 0
        self.tokens = 0
        """Of all waiting requests together."""

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def push(self, request: Request) -> None:
        """Queue a request in WAITING."""
        heappush(self._heap, (request.key, request))
        self.tokens += len(request.tokens)

    def head(self) -> Request | None:
        """The request that is next, or ``None``."""
        while self._heap:
            request = self._heap[0][1]
            if request.status is Status.WAITING:
                return request
            heappop(self._heap)
            self._dead -= 1
        return None

    def pop(self) -> Request:
        """Take the request that ``head`` has just shown."""
        request = heappop(self._heap)[1]
        self.tokens -= len(request.tokens)
        return request

    def discard(self, request: Request) -> None:
        """This queued request has just left WAITING for good."""
        self.tokens -= len(request.tokens)
        self._dead += 1
        if self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[1].status is Status.WAITING]
            heapify(self._heap)
            self._dead = 0
