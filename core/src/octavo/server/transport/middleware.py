"""Around every request: its id, its limits of size and time, the access log, and the answer of last resort."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.transport.deadline import in_time
from octavo.server.transport.errors import LIMITS, REQUEST_ID, SERVER_SEND, failure_of
from octavo.server.transport.owner import OWNER
from octavo.server.transport.settings import ServerSettings

access_logger = logging.getLogger("octavo.access")

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of clients go into headers and logs, so they are short and printable."""

_LONGEST_LENGTH = 18
"""Digits of a content length that is a number of bytes rather than mischief."""


class RequestContext:
    """Plain ASGI, because a middleware that wraps the response body would cost on every streamed token."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request; never raises for an error of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _SANE_ID.fullmatch(given) else uuid.uuid4().hex
        limits = self._settings.limits
        scope[REQUEST_ID], scope[LIMITS], scope[SERVER_SEND] = request_id, limits, send
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            length, most = headers.get("content-length", ""), limits.body_bytes_of(scope["path"])
            if length.isdecimal() and (len(length) > _LONGEST_LENGTH or int(length) > most):
                raise _too_large(most)
            # A batch has its own time; what it asks of the server may wait.
            async with in_time(0 if OWNER in scope else limits.request_seconds, scope):
                # A larger body may take longer, at the same pace.
                receive = _limited(receive, most, limits.body_seconds * max(1, most / limits.body_bytes))
                await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - the last resort: the client gets an error object, the log the rest
            failure = failure_of(error, request_id)
            if status == 0:
                await failure.response(scope)(scope, receive, send_with_id)
        finally:
            if self._settings.access_log and scope["path"] not in self._settings.quiet_paths:
                client = (scope.get("client") or ("-",))[0]
                milliseconds = (time.perf_counter() - started) * 1000
                access_logger.info(
                    "%s %s %r %d %.1fms %s", client, scope["method"], scope["path"], status, milliseconds, request_id
                )


def _too_large(limit: int) -> HTTPException:
    # The rest of the body is not read, so the connection cannot be used again.
    return HTTPException(
        413,
        f"The request body is larger than {limit} bytes, the limit of this server (body_bytes).",
        {"connection": "close"},
    )


def _too_slow(limit: float) -> HTTPException:
    return HTTPException(
        408,
        f"The request body did not arrive within {limit:g} s, the limit of this server (body_seconds).",
        {"connection": "close"},
    )


def _limited(receive: Receive, most: int, seconds: float) -> Receive:
    """``receive`` that refuses a body of more bytes, or one that takes longer."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    seen = 0
    complete = False

    async def receive_limited() -> Message:
        nonlocal seen, complete
        if complete:  # what comes is the disconnect, at any time
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, deadline - loop.time()))
        except asyncio.TimeoutError:  # not the builtin in Python 3.10
            raise _too_slow(seconds) from None
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if seen > most:
                raise _too_large(most)
        return message

    return receive_limited
