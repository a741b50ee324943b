"""Work that a stranger's input may turn into endless work, done in a process that can be killed.

What cannot be interrupted from within (a regex to an automaton, a loop in a chat template) runs in a process of its own
under a wall-clock limit and a memory limit. Between the processes pass bytes, never pickles: what a bad child can send
back is a reply that its caller has to parse.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

from octavo.errors import WorkerFailed, WorkerTimeout
from octavo.sandbox.frames import FAILED, OK, OUT_OF_MEMORY, Closed, receive, send

__all__ = ["Worker", "WorkerFailed", "WorkerTimeout"]

_START_SECONDS = 60.0
"""For a fresh interpreter and the target's imports: half a second, but far more on a machine that is overloaded."""

# The child sees the modules that its parent sees, and none of the working directory's.
_BOOT = "import sys; sys.path[:] = sys.argv[4:]; from octavo.sandbox.child import main; main(*sys.argv[1:4])"


class Worker:
    """Calls one function in another process.

    ``target`` is "module:function", a function of bytes to bytes. ``seconds`` bounds each call by the wall clock,
    ``memory_bytes`` what the process may take beyond what it has after its imports (enforced on Linux). ``processes``
    calls run at the same time; a further one waits for its turn, and the wait does not count as its time.

    A process is started by the first call that needs it, and kept. It dies with a call that exceeds a limit, and with
    the parent, however that ends. May be used by several threads.
    """

    def __init__(self, target: str, *, seconds: float, memory_bytes: int, processes: int = 1) -> None:
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        # Last in, first out: under little load one process does all, and the others are never started.
        self._free: queue.LifoQueue[_Process] = queue.LifoQueue()
        all_processes = [_Process(target, seconds, memory_bytes) for _ in range(processes)]
        for process in all_processes:
            self._free.put(process)
        # Also at the interpreter's exit; it must not refer to self, or self would never be collected.
        self._close: Callable[[], object] = weakref.finalize(self, _close_all, all_processes)

    def call(self, payload: bytes) -> bytes:
        """What the target makes of ``payload``; blocks.

        Raises WorkerTimeout, or WorkerFailed with what went wrong. Either way the next call finds a process that works.
        """
        process = self._free.get()
        try:
            return process.call(payload)
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End the processes. A call that runs fails, and so does every later one."""
        self._close()


def _close_all(processes: list[_Process]) -> None:
    for process in processes:
        process.close()


class _Process:
    """One child, started when it is needed; used by one call at a time."""

    def __init__(self, target: str, seconds: float, memory_bytes: int) -> None:
        self._target = target
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        """Over the two below: `close` comes from another thread than `call`."""
        self._child: tuple[subprocess.Popen[bytes], socket.socket] | None = None
        self._closed = False

    def call(self, payload: bytes) -> bytes:
        channel = self._channel()
        try:
            try:
                status, reply = self._exchange(channel, payload)
            except Closed:
                raise WorkerFailed(f"{self._target}: its process died ({self._ended()})") from None
            except TimeoutError:
                raise WorkerTimeout(f"{self._target} took longer than {self._seconds:g} s and was ended") from None
        except BaseException:  # whatever it was, the child's next answer would not be to the next question
            self._kill()
            raise
        if status == OK:
            return reply
        if status == OUT_OF_MEMORY:  # the child leaves by itself
            self._kill()
            raise WorkerFailed(f"{self._target} needs more than {self._memory_bytes // 2**20} MiB of memory")
        raise WorkerFailed(f"{self._target} failed: {reply.decode(errors='replace')}")

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._kill()

    def _exchange(self, channel: socket.socket, payload: bytes) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._seconds
        send(channel, OK, payload, deadline)
        return receive(channel, deadline, longest=self._memory_bytes)

    def _channel(self) -> socket.socket:
        """To a child that lives. One that died while idle (the kernel may end it) is replaced without a word."""
        with self._lock:
            if self._child is not None and self._child[0].poll() is None:
                return self._child[1]
        self._kill()
        return self._start()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        limits = (str(self._seconds), str(self._memory_bytes))
        with theirs, self._lock:
            if self._closed:
                ours.close()
                raise WorkerFailed(f"{self._target}: the worker was closed")
            child = subprocess.Popen(
                [sys.executable, "-c", _BOOT, self._target, *limits, *sys.path],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent; the child leaves when its channel closes
                # Each thread's arena would take 64 MiB of address space, which is what is limited.
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            )
            self._child = child, ours
        try:
            status, reply = receive(ours, time.monotonic() + _START_SECONDS, longest=2**16)
        except (Closed, TimeoutError) as error:
            ended = self._ended()
            self._kill()
            raise WorkerFailed(f"{self._target}: its process did not start ({ended})") from error
        if status == FAILED:
            self._kill()
            raise WorkerFailed(f"{self._target} cannot be loaded: {reply.decode(errors='replace')}")
        return ours

    def _ended(self) -> str:
        """How the child ended, as far as it has."""
        with self._lock:
            child = self._child
        if child is None:
            return "closed"
        try:
            code = child[0].wait(1)
        except subprocess.TimeoutExpired:
            return "no answer"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _kill(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child[0].kill()
            child[1].close()
            child[0].wait()
