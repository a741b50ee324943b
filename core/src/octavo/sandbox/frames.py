"""Messages between a killable process and its parent: a kind, a length, and as many bytes."""

from __future__ import annotations

import socket
import struct
import time

OK, FAILED, OUT_OF_MEMORY = range(3)
"""Kinds: a payload or a result; a failure, in words; nothing but that memory has run out."""

_HEAD = struct.Struct("<BI")
_MOST = 2**20
"""Bytes taken from a socket at once."""


class Closed(Exception):
    """The other side is gone."""


def send(channel: socket.socket, kind: int, payload: bytes, deadline: float | None = None) -> None:
    """Send one message. Raises Closed, TimeoutError at ``deadline`` (of `time.monotonic`)."""
    _wait_until(channel, deadline)
    try:
        channel.sendall(_HEAD.pack(kind, len(payload)) + payload)
    except TimeoutError:
        raise
    except OSError as error:
        raise Closed from error


def receive(channel: socket.socket, deadline: float | None = None, *, longest: int = 2**32) -> tuple[int, bytes]:
    """Kind and bytes of the next message. Raises Closed, also for a message of more than ``longest`` bytes, and
    TimeoutError.
    """
    kind, size = _HEAD.unpack(_read(channel, _HEAD.size, deadline))
    if size > longest:
        raise Closed
    return kind, _read(channel, size, deadline)


def _read(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait_until(channel, deadline)
        try:
            more = channel.recv(min(size - len(data), _MOST))
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed from error
        if not more:
            raise Closed
        data += more
    return bytes(data)


def _wait_until(channel: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        channel.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    channel.settimeout(left)
