"""GET /v1/models and GET /v1/models/{id}, in the shapes of OpenAI or, for Anthropic's clients, of Anthropic."""

from __future__ import annotations

from datetime import datetime, timezone

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.generation.params import served_name
from octavo.server.generation.replies import AnthropicModel, AnthropicModels, ModelCard, ModelList
from octavo.server.generation.service import Service, json_response
from octavo.server.routing.failures import EITHER
from octavo.server.routing.route import Parameter, route
from octavo.server.transport.errors import ANTHROPIC_VERSION

_SHAPE = (Parameter(ANTHROPIC_VERSION, "With any value, the answer has Anthropic's shape.", place="header"),)


class ModelsApi:
    """The models APIs of OpenAI and Anthropic, which share their paths."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = datetime.fromtimestamp(service.started, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    @route(
        "GET", "/v1/models", "List the models",
        reply=(ModelList, AnthropicModels), dialect=EITHER, parameters=_SHAPE,
    )  # fmt: skip
    async def list_models(self, request: Request) -> Response:
        names = self._service.backend.model_names
        if ANTHROPIC_VERSION in request.headers:
            models = [self._anthropic(name) for name in names]
            return json_response(AnthropicModels(data=models, first_id=names[0], last_id=names[-1]))
        return json_response(ModelList(data=[self._card(name) for name in names]))

    @route(
        "GET", "/v1/models/{name:path}", "Describe one model",  # the ids of hubs have slashes
        reply=(ModelCard, AnthropicModel), errors=(404,), dialect=EITHER, parameters=_SHAPE,
    )  # fmt: skip
    async def retrieve_model(self, request: Request, name: str) -> Response:
        shape = self._anthropic if ANTHROPIC_VERSION in request.headers else self._card
        return json_response(shape(served_name(name, self._service.backend.model_names)))

    def _card(self, name: str) -> ModelCard:
        backend = self._service.backend
        return ModelCard(
            id=name,
            created=self._service.started,
            root=backend.model_names[0],
            max_model_len=backend.max_model_len,
            generation_config=dict(backend.default_params),
        )

    def _anthropic(self, name: str) -> AnthropicModel:
        backend = self._service.backend
        return AnthropicModel(
            id=name,
            display_name=name,
            created_at=self._since,
            max_input_tokens=backend.max_model_len,
            max_tokens=backend.max_model_len,
        )
