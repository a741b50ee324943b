"""Whether and how the server serves: /health and SageMaker's /ping, /version, /load."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from msgspec import Struct
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo._version import version
from octavo.server.generation.service import Service, json_response


class Health(Struct):
    """Answer of GET /health and /ping."""

    status: Literal["ok"] = "ok"


class Version(Struct):
    """Answer of GET /version."""

    version: str


class Load(Struct):
    """Answer of GET /load: requests that ask for work and are not answered yet."""

    server_load: int


def routes(service: Service) -> APIRouter:
    """The routes for probes and balancers; the first two answer 503 when the engine is dead."""
    router = APIRouter()

    @router.api_route("/ping", methods=["GET", "HEAD"])
    @router.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        await service.backend.health()
        return json_response(Health())

    @router.get("/version")
    async def served_version() -> Response:
        return json_response(Version(version()))

    @router.get("/load")
    async def load() -> Response:
        return json_response(Load(service.load))

    return router


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
