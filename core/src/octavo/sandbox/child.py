"""The child of `octavo.sandbox.worker`: loads the target, limits itself, answers calls until its parent is gone."""

from __future__ import annotations

import importlib
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from octavo.sandbox.frames import FAILED, OK, OUT_OF_MEMORY, Closed, receive, send

_GRACE = 1.0
"""Seconds after which the child ends itself, when the parent that should have done it is gone."""


def main(target: str, seconds: str, memory_bytes: str) -> None:
    """Serve the parent, whose end of a socket pair is our standard input."""
    channel = socket.socket(fileno=0)
    try:
        function = _load(target)
        _limit(int(memory_bytes))
    except Exception as error:  # noqa: BLE001 - whatever an import may raise, the parent is told
        send(channel, FAILED, f"{type(error).__name__}: {error}".encode())
        return
    try:
        send(channel, OK, b"")
        while _answer(channel, function, float(seconds)):
            pass
    except Closed:
        return


def _answer(channel: socket.socket, function: Callable[[bytes], bytes], seconds: float) -> bool:
    """One call; False if the process should not be used again."""
    _, payload = receive(channel)
    # Its default action ends the process whatever the interpreter is doing.
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE)
    try:
        kind, reply = OK, function(payload)
    except MemoryError:
        kind, reply = OUT_OF_MEMORY, b""
    except Exception as error:  # noqa: BLE001 - the caller's payload is to blame, or its target: it is told
        kind, reply = FAILED, f"{type(error).__name__}: {error}".encode(errors="replace")
    signal.setitimer(signal.ITIMER_REAL, 0)
    send(channel, kind, reply)
    return kind != OUT_OF_MEMORY


def _load(target: str) -> Callable[[bytes], bytes]:
    module, _, name = target.partition(":")
    function: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    return function


def _limit(memory_bytes: int) -> None:
    """No more than this above what the process has now; no core file, which would hold what clients have sent."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + memory_bytes, size + memory_bytes))
