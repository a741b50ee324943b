"""uvicorn's HTTP protocol, with the limits that act on a connection rather than on a request.

uvicorn bounds neither headers nor the time that they take, nor how long a client may leave an answer unread, and it
answers in plain text. What is refused here has no request yet, so it has no request id and no line in the access log.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from octavo.server.transport.errors import Failure
from octavo.server.transport.limits import Limits

_SLOWEST_READER = 1024
"""Bytes a second. The slowest modem that anybody reads text over takes more."""

_TOO_MANY_BYTES = "The request line and headers are larger than {0} bytes, the limit of this server (header_bytes)."
_TOO_MANY_HEADERS = "The request has more than {0} headers, the limit of this server (headers)."
_TOO_SLOW = "The headers did not arrive within {0:g} s, the limit of this server (header_seconds)."
_TOO_MANY_CONNECTIONS = "The server has {0} connections open, as many as it takes (connections); try again in a second."


def limited_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol under these limits, for ``uvicorn.Config(http=…)``."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"limits": limits})


class _Refused(Exception):
    """Raised in the parser's callbacks, where nothing else stops it."""


class _LimitedProtocol(HttpToolsProtocol):
    limits: Limits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refusal: Failure | None = None
        self._in_head = False
        """Between a request's first byte and the end of its headers."""
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    # -- a connection ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # What is written goes to the socket at once, not when all that the loop has to do is done: of 32 streams that
        # get a token in one step, the first need not wait for the last.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, _TOO_MANY_CONNECTIONS.format(self.limits.connections), "too_many_connections")
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_bytes = 0
        for timer in (self._head_timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head and self._refusal is None:
            # A header that has not ended is not seen by `on_header`.
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes:
                self._refuse(431, _TOO_MANY_BYTES.format(self.limits.header_bytes), "headers_too_large")

    # -- a request's headers -----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        if self._answering():  # until that is done, the bytes may wait
            return
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self.limits.headers:
            self._refusal = _failure(431, _TOO_MANY_HEADERS.format(self.limits.headers), "headers_too_large")
            raise _Refused

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.limits.header_bytes:
            self._refusal = _failure(431, _TOO_MANY_BYTES.format(self.limits.header_bytes), "headers_too_large")
            raise _Refused
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_head and not self.transport.is_closing():  # of a request that came too early
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when the parser stops: the client's fault, or a limit."""
        self._answer(self._refusal or _failure(400, msg, "invalid_http"))

    def _await_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(self.limits.header_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._in_head:
            self._refuse(408, _TOO_SLOW.format(self.limits.header_seconds), "request_timeout")
        elif not self._answering():  # nothing was ever asked
            self.transport.close()

    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _refuse(self, status: int, message: str, code: str) -> None:
        self._answer(_failure(status, message, code))

    def _answer(self, failure: Failure) -> None:
        """Say why, and close. In the middle of another answer nothing can be said."""
        self._refusal = failure
        if self._answering() and self.cycle.response_started:
            self.transport.abort()
            return
        body = msgspec.json.encode(failure.body())
        headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
        head = [f"HTTP/1.1 {failure.status} {HTTPStatus(failure.status).phrase}"]
        head += [f"{name}: {value}" for name, value in {**headers, **failure.headers}.items()]
        self.transport.write("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        self.transport.close()

    # -- a client that does not read ---------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None

    def _watch_reader(self) -> None:
        """The answer waits in the transport's buffer. Nothing is added to it meanwhile."""
        seconds = self.limits.reader_seconds
        self._reader_timer = self.loop.call_later(seconds, self._reader_is_late, self._unread())

    def _reader_is_late(self, unread: int) -> None:
        if unread - self._unread() < _SLOWEST_READER * self.limits.reader_seconds:
            self.transport.abort()  # a close would wait for the buffer to be read
        else:
            self._watch_reader()

    def _unread(self) -> int:
        return self.transport.get_write_buffer_size()


def _failure(status: int, message: str, code: str) -> Failure:
    if status == 503:
        return Failure(status, message, "server_error", code=code, headers={"retry-after": "1"})
    return Failure(status, message, code=code)
