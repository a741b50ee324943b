"""Whether and how the server serves: /health and SageMaker's /ping, /version, /load."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo._version import version
from octavo.server.generation.service import Service, json_response
from octavo.server.routing.route import route


class Health(Struct):
    """Answer of GET /health and /ping."""

    status: Literal["ok"] = "ok"


class Version(Struct):
    """Answer of GET /version."""

    version: str


class Load(Struct):
    """Answer of GET /load: requests that ask for work and are not answered yet."""

    server_load: int


class HealthApi:
    """The routes for probes and load balancers."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route("GET", "/health", "Whether requests would be served", reply=Health, head=True)
    @route("GET", "/ping", "The same, for SageMaker", reply=Health, head=True)
    async def health(self, _request: Request) -> Response:
        """Raises EngineDead, a 503."""
        await self._service.backend.health()
        return json_response(Health())

    @route("GET", "/version", "The version of the server", reply=Version)
    async def served_version(self, _request: Request) -> Response:
        return json_response(Version(version()))

    @route("GET", "/load", "How many requests are being answered", reply=Load)
    async def load(self, _request: Request) -> Response:
        return json_response(Load(self._service.load))


class LoadMeter:
    """Counts the requests being answered that ask for work: those with a body. Plain ASGI, one step per request."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._service.load += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._service.load -= 1
