"""The watchdog: notices a device that does not come back.

A call into a device cannot be interrupted. What can be done is to notice, from another thread, and to tell everybody
who waits; the process is then good for nothing but being restarted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOKS = 8  # per timeout: it barks at most an eighth too late


class Watchdog:
    """Calls ``bark`` once, from its own thread, when a step has taken ``seconds``. 0: never.

    ``since`` says when the step in progress began, by `time.monotonic`, and ``None`` where there is none.
    """

    def __init__(self, seconds: float, since: Callable[[], float | None], bark: Callable[[], None]) -> None:
        self._seconds = seconds
        self._since = since
        self._bark = bark
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to watch; call it once."""
        if self._seconds > 0:
            threading.Thread(target=self._watch, name="octavo-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds / _LOOKS):
            since = self._since()
            if since is not None and time.monotonic() - since > self._seconds:
                self._bark()
                return
