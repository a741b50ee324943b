"""Requests to the app from inside its process: no socket between, and everything else as for a client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Scope

from octavo.server.batch.lines import ENDPOINTS
from octavo.server.transport.owner import OWNER


@dataclass(frozen=True)
class Reply:
    """What the app answered."""

    status: int
    headers: dict[str, str]
    body: bytes


class Inside:
    """A client of ``app`` that acts for ``owner``."""

    def __init__(self, app: ASGIApp, owner: str = "") -> None:
        self._app = app
        self._owner = owner

    async def post(self, path: str, body: bytes, request_id: str) -> Reply:
        """Send JSON. Cancelling it is what a client that goes away would bring about."""
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        return await self._call("POST", path, [*headers, (b"x-request-id", request_id.encode())], body)

    async def get(self, path: str) -> Reply:
        """Send a request to the app."""
        return await self._call("GET", path, [], b"")

    async def _call(self, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Reply:
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"batch"), *headers],
            "client": ("batch", 0),
            "server": None,
            OWNER: self._owner,
        }
        incoming: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        status, told, received = 0, {}, bytearray()

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await asyncio.get_running_loop().create_future()  # nobody hangs up; whoever asks is cancelled in the end
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status, told
            if message["type"] == "http.response.start":
                status = message["status"]
                told = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
            elif message["type"] == "http.response.body":
                received.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        return Reply(status, told, bytes(received))


def endpoints_of(app: Starlette) -> frozenset[str]:
    """What lines may ask of this app."""
    return frozenset(path for path in ENDPOINTS if any(_posts(route, path) for route in app.routes))


def _posts(route: BaseRoute, path: str) -> bool:
    match, _ = route.matches({"type": "http", "method": "POST", "path": path, "root_path": "", "headers": []})
    return match.value == 2  # FULL: path and method
