"""Where the event loop runs, when threads of the device have cores of their own.

A loop that wakes on the core of such a thread waits until that is let go of, behind the clients of this machine that it
woke itself: on two cores, with 32 streams, that tripled the time that it adds to a token, in one run of three.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def pinned() -> Iterator[None]:
    """Within it the calling thread keeps off the cores that other threads of this process are pinned to.

    Threads that it starts inherit that, until they `unpin`. Nothing happens where no thread is pinned, where they have
    all cores there are, and on systems without affinities.
    """
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    pinned = {core for cores in _affinities() if len(cores) == 1 for core in cores}
    _move(before - pinned or before)
    try:
        yield
    finally:
        _move(before)


def unpin() -> None:
    """Let the calling thread run wherever threads of this process may. What `settled` does is meant for the loop."""
    if sys.platform == "linux":
        _move(set[int]().union(*_affinities()))


def _affinities() -> Iterator[set[int]]:
    """The cores of each thread of this process."""
    with contextlib.suppress(FileNotFoundError):  # no /proc
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                yield os.sched_getaffinity(int(thread.name))


def _move(cores: set[int]) -> None:
    with contextlib.suppress(OSError):  # a sandbox may forbid it, and has no need of a reason
        os.sched_setaffinity(0, cores)
