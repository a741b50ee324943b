"""Server-sent events, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.server.errors import REQUEST_ID, ClientGone, Failure, failure_of
from octavo.server.streams import while_connected

_encode = msgspec.json.Encoder().encode

DONE = b"data: [DONE]\n\n"


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

    The first events are awaited before the headers are sent, so that what goes wrong before the first token
    is an HTTP status; what goes wrong later is what ``fail`` makes of it. A client that disconnects cancels the
    events.
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
        with suppress(ClientGone):  # with the status sent, the exception handlers could only complain
            await while_connected(receive, self._send_all(str(scope[REQUEST_ID]), send))

    async def _send_all(self, request_id: str, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = await anext(events, b"")
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await send({"type": "http.response.body", "body": first, "more_body": True})
                async for data in events:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                last = self._last
            except Exception as error:  # noqa: BLE001 - the status is sent, so the client learns of it from an event
                last = self._fail(failure_of(error, request_id))
        await send({"type": "http.response.body", "body": last, "more_body": False})
