"""GET /v1/models and GET /v1/models/{id}, in the shapes of OpenAI or, for Anthropic's clients, of Anthropic."""

from __future__ import annotations

from datetime import datetime, timezone

from fastapi import APIRouter, Request, Response

from octavo.server.transport.errors import ANTHROPIC_VERSION
from octavo.server.generation.params import served_name
from octavo.server.generation.replies import AnthropicModel, AnthropicModels, ModelCard, ModelList
from octavo.server.generation.service import Service, json_response


def routes(service: Service) -> APIRouter:
    """The routes of the models API."""
    router = APIRouter()
    backend = service.backend
    since = datetime.fromtimestamp(service.started, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def card(name: str) -> ModelCard:
        return ModelCard(
            id=name,
            created=service.started,
            root=backend.model_names[0],
            max_model_len=backend.max_model_len,
            generation_config=dict(backend.default_params),
        )

    def anthropic(name: str) -> AnthropicModel:
        return AnthropicModel(
            id=name,
            display_name=name,
            created_at=since,
            max_input_tokens=backend.max_model_len,
            max_tokens=backend.max_model_len,
        )

    @router.get("/v1/models")
    async def list_models(request: Request) -> Response:
        names = backend.model_names
        if ANTHROPIC_VERSION in request.headers:
            models = [anthropic(name) for name in names]
            return json_response(AnthropicModels(data=models, first_id=names[0], last_id=names[-1]))
        return json_response(ModelList(data=[card(name) for name in names]))

    @router.get("/v1/models/{name:path}")  # the ids of hubs have slashes
    async def retrieve_model(request: Request, name: str) -> Response:
        shape = anthropic if ANTHROPIC_VERSION in request.headers else card
        return json_response(shape(served_name(name, backend.model_names)))

    return router
