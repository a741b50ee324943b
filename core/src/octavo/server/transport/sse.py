"""Server-sent events, as OpenAI's clients read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.transport.connection import while_connected
from octavo.server.transport.deadline import expired
from octavo.server.transport.errors import LIMITS, REQUEST_ID, SERVER_SEND, ClientGone, Failure, failure_of
from octavo.server.transport.timing import sent

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients skip and proxies take for a sign of life."""


def event(value: Any, name: str = "") -> bytes:
    """One event with a JSON value, and with a name where the API has names.

    Some clients split lines as Unicode does, so the three line breaks that JSON leaves bare are escaped.
    Their bytes cannot be part of another character: UTF-8 synchronises itself.
    """
    data = _encode(value)
    if not data.isascii():
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        data = data.replace(b"\xc2\x85", b"\\u0085")
    head = b"event: " + name.encode() + b"\ndata: " if name else b"data: "
    return head + data + b"\n\n"


def error_event(failure: Failure) -> bytes:
    """A failure after the status was sent, and the end of the stream."""
    return event(failure.body()) + DONE


class EventStream(Response):
    """Streams events, then ``last``: ``[DONE]``, or nothing in an API whose streams end by a named event.

    The first events are awaited before the headers are sent, so that what goes wrong before the first token is an HTTP
    status; what goes wrong later is what ``fail`` makes of it. After a while without events (the limit
    keep_alive_seconds) a comment is sent, headers first if need be: a proxy that hears nothing gives up. A client that
    disconnects cancels the events, and so does the end of the request's time.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        last: bytes = DONE,
        fail: Callable[[Failure], bytes] = error_event,
    ) -> None:
        # Proxies must neither keep nor gather the events.
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._last = last
        self._fail = fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. Raises what the first events raise."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        out = _Sender(send, scope.get(SERVER_SEND, send), start)
        request_id = str(scope[REQUEST_ID])
        try:
            with suppress(ClientGone):  # with the status sent, the exception handlers could only complain
                await while_connected(receive, self._send_all(request_id, scope[LIMITS].keep_alive_seconds, out))
        except asyncio.CancelledError:
            if not out.open:
                raise  # there is no status yet, or nothing left to say
            error = expired(scope)
            if error is None:
                raise
            await out.send(self._fail(failure_of(error, request_id)), more=False)

    async def _send_all(self, request_id: str, keep_alive: float, out: _Sender) -> None:
        keeper = asyncio.create_task(out.keep_alive(keep_alive)) if keep_alive else None
        try:
            async with aclosing(self._events) as events:
                async for data in events:
                    await out.send(data)
                    sent()
            last = self._last
        except Exception as error:
            if not out.open:
                raise
            last = self._fail(failure_of(error, request_id))  # the status is sent, so the client learns of it this way
        finally:
            if keeper is not None:
                keeper.cancel()
        await out.send(last, more=False)


class _Sender:
    """The ASGI side of one stream: headers before the first bytes, comments into its silences.

    Headers go through ``send``, with all the middleware that looks at them. What follows goes ``straight`` to the
    server: each layer would cost on every token.
    """

    def __init__(self, send: Send, straight: Send, start: dict[str, Any]) -> None:
        self._send = send
        self._straight = straight
        self._start: dict[str, Any] | None = start
        self._sending = 0
        self._sent_at = asyncio.get_running_loop().time()
        self.open = False
        """Whether the headers are sent, and the end is not."""

    async def send(self, data: bytes, *, more: bool = True) -> None:
        self._sending += 1
        try:
            if self._start is not None:
                start, self._start = self._start, None
                self.open = True
                await self._send(start)
            self.open = more
            await self._straight({"type": "http.response.body", "body": data, "more_body": more})
        finally:
            self._sending -= 1
            self._sent_at = asyncio.get_running_loop().time()

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment whenever nothing was sent for so long; runs until it is cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            silent = now() - self._sent_at
            if silent < seconds:
                await asyncio.sleep(seconds - silent)
            elif self._sending:  # to a client that does not read: what it would need is not a comment
                await asyncio.sleep(seconds)
            else:
                await self.send(KEEP_ALIVE)
