"""The server's own OpenAPI 3.1 document, made from what the routes really read and write.

Bodies are read by hand and replies are structs, so FastAPI knows neither. Each route is declared here by one line;
a test fails for a route that is not, and another sends the server what the document allows and compares the answers.

    declared.py   what is said of a route                errors.py     what is said of failures, by API
    of_*.py       the lines, by API                      document.py   lines -> document
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Response

from octavo.server.openapi import of_files, of_messages, of_responses, of_server, of_text, of_vectors
from octavo.server.openapi.declared import Route
from octavo.server.openapi.document import written
from octavo.server.openapi.of_server import PATH
from octavo.server.generation.service import json_response

ROUTES: Sequence[Route] = (
    *of_text.ROUTES, *of_vectors.ROUTES, *of_responses.ROUTES, *of_messages.ROUTES, *of_files.ROUTES, *of_server.ROUTES,
)  # fmt: skip


def document(routes: Sequence[Route] = ROUTES) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    return written(routes)


def routes() -> APIRouter:
    """The route that serves the document."""
    router = APIRouter()
    response = json_response(document())

    @router.get(PATH)
    async def openapi() -> Response:
        return Response(response.body, media_type="application/json")

    return router
