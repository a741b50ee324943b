"""Around every request: its id, the limit on its body, the access log, and the answer of last resort."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import REQUEST_ID, failure_of
from octavo.server.settings import ServerSettings

access_logger = logging.getLogger("octavo.access")

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of clients go into headers and logs, so they are short and printable."""


def _too_large(limit: int) -> HTTPException:
    # The rest of the body is not read, so the connection cannot be used again.
    return HTTPException(
        413,
        f"The request body is larger than {limit} bytes, the limit of this server.",
        {"connection": "close"},
    )


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
        scope[REQUEST_ID] = request_id
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            length = headers.get("content-length", "")
            limit = self._settings.body_limit(scope["path"])
            if length.isdecimal() and int(length) > limit:
                raise _too_large(limit)
            await self._app(scope, _limited(receive, limit), send_with_id)
        except Exception as error:  # noqa: BLE001 - the last resort: the client gets an error object, the log the rest
            failure = failure_of(error, request_id)
            if status == 0:
                await failure.response()(scope, receive, send_with_id)
        finally:
            if self._settings.access_log and scope["path"] not in self._settings.quiet_paths:
                client = (scope.get("client") or ("-",))[0]
                milliseconds = (time.perf_counter() - started) * 1000
                access_logger.info(
                    "%s %s %r %d %.1fms %s", client, scope["method"], scope["path"], status, milliseconds, request_id
                )


def _limited(receive: Receive, limit: int) -> Receive:
    """``receive`` that refuses a body longer than ``limit`` bytes, for bodies that do not declare their length."""
    seen = 0

    async def receive_limited() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large(limit)
        return message

    return receive_limited
