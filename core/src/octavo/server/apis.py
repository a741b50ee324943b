"""All APIs of the server, and the document of their routes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mounted

from octavo.server.batch.batch_routes import BatchesApi
from octavo.server.batch.file_routes import FilesApi
from octavo.server.batch.file_store import FileStore
from octavo.server.chat.routes import ChatApi
from octavo.server.completions.routes import CompletionsApi
from octavo.server.generation.service import Service, json_response
from octavo.server.messages.routes import MessagesApi
from octavo.server.meta.health import HealthApi
from octavo.server.meta.models import ModelsApi
from octavo.server.meta.page import Page
from octavo.server.meta.sagemaker import SageMakerApi
from octavo.server.meta.timing import TimingApi
from octavo.server.meta.tokenise import TokenizerInfoApi, TokensApi
from octavo.server.pooling.embeddings import EmbeddingsApi
from octavo.server.pooling.scores import ScoresApi
from octavo.server.responses.conversations import ConversationsApi
from octavo.server.responses.routes import ResponsesApi, responses_apis
from octavo.server.routing.document import document
from octavo.server.routing.route import Route, declared_routes, mounted_routes, route

DOCUMENT_PATH = "/openapi.json"


class DocumentApi:
    """The OpenAPI document of this server; served where the operator wants it."""

    def __init__(self, _service: Service) -> None:
        self._response = json_response(openapi_document())

    @route("GET", DOCUMENT_PATH, "This document", reply=dict[str, Any])
    async def openapi(self, _request: Request) -> Response:
        return Response(self._response.body, media_type="application/json")


APIS: tuple[type, ...] = (
    ChatApi,
    CompletionsApi,
    TokensApi,
    TokenizerInfoApi,
    EmbeddingsApi,
    ScoresApi,
    ResponsesApi,
    ConversationsApi,
    MessagesApi,
    FilesApi,
    BatchesApi,
    SageMakerApi,
    ModelsApi,
    HealthApi,
    TimingApi,
    DocumentApi,
    Page,
)
"""In the order of the document."""


def all_routes() -> list[Route]:
    """Every route that a server can have."""
    return [one for api in APIS for one, _ in declared_routes(api)]


def openapi_document() -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    return document(all_routes())


def served_routes(service: Service) -> Iterator[Mounted]:
    """The routes of one server: all that its settings allow. What their APIs keep is closed with the service."""
    settings = service.settings
    files = FileStore(service.database, settings.files_dir, settings.limits.stored_bytes)

    async def close_files() -> None:
        files.close()

    service.on_close(close_files)
    for text_api in (ChatApi(service), CompletionsApi(service), MessagesApi(service), *responses_apis(service)):
        yield from mounted_routes(text_api, before=service.require_generation)
    others = (EmbeddingsApi, ScoresApi, TokensApi, ModelsApi, HealthApi, SageMakerApi, TimingApi)
    for api in (*(other(service) for other in others), FilesApi(files), BatchesApi(service, files)):
        yield from mounted_routes(api)
    switched = ((settings.tokenizer_info, TokenizerInfoApi), (settings.openapi, DocumentApi), (settings.ui, Page))
    for on, optional in switched:
        if on:
            yield from mounted_routes(optional(service))
