"""The chip's queue: work goes in and comes back later, in order, from a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_Item = tuple["Future[Any]", Callable[[], Any]]


class Queue:
    """One thread that does what it is given, one thing after the other, each no sooner than a delay after the last.

    Delays follow a pattern of five, from none to ``delay`` seconds. The thread ends when the queue is closed, or when
    nobody has the queue any more.
    """

    def __init__(self, delay: float) -> None:
        self._inbox: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._inbox, delay), name="fakechip", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, self._inbox.put, None)

    def put(self, work: Callable[[], T]) -> Future[T]:
        """Do this when its turn comes; returns at once."""
        done: Future[T] = Future()
        self._inbox.put((done, work))
        return done

    def close(self) -> None:
        """Finish what is in the queue and end the thread."""
        self._end()
        self._thread.join()


def _work(inbox: queue.SimpleQueue[_Item | None], delay: float) -> None:
    count = 0
    while (item := inbox.get()) is not None:
        time.sleep(delay * (count * 3 % 5) / 4)
        count += 1
        done, work = item
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 - it is told to whoever waits for the work
            done.set_exception(error)
        del item, done, work  # or the last one would be kept while the chip has nothing to do
