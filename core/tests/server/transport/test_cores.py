"""Where the event loop runs beside threads that have cores of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from octavo.server.transport import cores

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2,
    reason="threads have affinities on Linux alone, and one is to keep off another's core",
)


@contextmanager
def pinned_to(core: int) -> Iterator[None]:
    """Another thread has this core for itself."""
    ready, over = threading.Event(), threading.Event()

    def run() -> None:
        os.sched_setaffinity(0, {core})
        ready.set()
        over.wait()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


def in_a_thread(check: Callable[[], None]) -> None:
    """The runner's own affinity shall stay what it is."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(check).result()


def test_the_loop_leaves_a_pinned_threads_core_and_has_it_back_in_the_end() -> None:
    every = os.sched_getaffinity(0)
    last = max(every)

    def check() -> None:
        with cores.pinned():
            assert os.sched_getaffinity(0) == every - {last}
        assert os.sched_getaffinity(0) == every

    with pinned_to(last):
        in_a_thread(check)


def test_threads_of_the_loop_roam() -> None:
    every = os.sched_getaffinity(0)

    def check() -> None:
        with cores.pinned(), ThreadPoolExecutor(1) as inherits, ThreadPoolExecutor(1, initializer=cores.unpin) as roams:
            assert inherits.submit(os.sched_getaffinity, 0).result() == every - {max(every)}
            assert roams.submit(os.sched_getaffinity, 0).result() == every

    with pinned_to(max(every)):
        in_a_thread(check)


def test_nothing_happens_where_no_thread_is_pinned() -> None:
    # in a process of its own: an engine of another test may have left pinned threads in this one
    script = """
import os
from octavo.server.transport import cores
every = os.sched_getaffinity(0)
with cores.pinned():
    assert os.sched_getaffinity(0) == every
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_loop_that_has_no_other_core_stays() -> None:
    core = min(os.sched_getaffinity(0))

    def check() -> None:
        os.sched_setaffinity(0, {core})
        with cores.pinned():
            assert os.sched_getaffinity(0) == {core}

    with pinned_to(core):
        in_a_thread(check)
