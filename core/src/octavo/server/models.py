"""GET /v1/models and GET /v1/models/{id}."""

from __future__ import annotations

from fastapi import APIRouter, Response

from octavo.server.params import served_name
from octavo.server.replies import ModelCard, ModelList
from octavo.server.service import Service, json_response


def routes(service: Service) -> APIRouter:
    """The routes of the models API."""
    router = APIRouter()
    backend = service.backend

    def card(name: str) -> ModelCard:
        return ModelCard(
            id=name, created=service.started, root=backend.model_names[0], max_model_len=backend.max_model_len
        )

    @router.get("/v1/models")
    async def list_models() -> Response:
        return json_response(ModelList(data=[card(name) for name in backend.model_names]))

    @router.get("/v1/models/{name:path}")  # the ids of hubs have slashes
    async def retrieve_model(name: str) -> Response:
        return json_response(card(served_name(name, backend.model_names)))

    return router
