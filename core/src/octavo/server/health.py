"""GET /health: whether requests would be served."""

from __future__ import annotations

from fastapi import APIRouter, Response

from octavo.server.service import Service, json_response


def routes(service: Service) -> APIRouter:
    """The route for probes: 200, or 503 when the engine is dead."""
    router = APIRouter()

    @router.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        await service.backend.health()
        return json_response({"status": "ok"})

    return router
