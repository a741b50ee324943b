"""The server's own OpenAPI 3.1 document, made from what the routes really read and write.

Bodies are read by hand and replies are structs, so FastAPI knows neither. Each route is declared here by one line;
a test fails for a route that is not, and another sends the server what the document allows and compares the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Response
from msgspec import Struct
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from octavo.server.replies import ChatChunk, ChatCompletion, Completion, ModelCard, ModelList
from octavo.server.schema import ChatCompletionRequest, CompletionRequest
from octavo.server.service import json_response

PATH = "/openapi.json"

_REF = "#/components/schemas/{}"
_EVENTS = "text/event-stream"
_RETRIED = (429, 503)
"""Answers that say when to come back."""


class Health(Struct):
    """Answer of GET /health."""

    status: Literal["ok"]


class ErrorObject(Struct):
    """What went wrong: in words, its kind, the field at fault, and a word that programs can rely on."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(Struct):
    """Every answer that is no success; also an event of a stream that fails after it has begun."""

    error: ErrorObject


_REASONS: Mapping[int, str] = {
    400: "The request cannot be served as asked; `param` names the field.",
    404: "What the request names is not there.",
    408: "The request did not arrive in time.",
    413: "The body is larger than this server takes.",
    415: "The body is not application/json.",
    429: "The queue is full; come back later.",
    431: "The headers are larger than this server takes.",
    500: "The server failed on this request.",
    503: "The engine has stopped, or all connections are taken; come back later.",
    504: "The request took longer than it may.",
}
_ALWAYS = (400, 408, 431, 500, 503, 504)
_WITH_BODY = (404, 413, 415)
_GENERATING = (429,)


@dataclass(frozen=True)
class Route:
    """One route. ``path`` has its parameters in braces, as FastAPI's; ``errors`` are statuses beside the usual ones.

    ``body`` and ``reply`` are the models of its JSON. ``events``: of a stream's events, if it can stream.
    ``media_type`` is that of a reply that is no JSON.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    body: type[BaseModel] | None = None
    reply: type[Any] | None = None
    events: type[Any] | None = None
    errors: Sequence[int] = ()
    media_type: str = "application/json"
    status: int = 200

    @property
    def statuses(self) -> list[int]:
        """Of all answers but the success."""
        return sorted({*_ALWAYS, *(_WITH_BODY if self.body else ()), *self.errors})


ROUTES: Sequence[Route] = (
    Route(
        "POST", "/v1/chat/completions", "Answer a conversation", ChatCompletionRequest, ChatCompletion, ChatChunk,
        _GENERATING,
    ),
    Route("POST", "/v1/completions", "Continue a text", CompletionRequest, Completion, Completion, _GENERATING),
    Route("GET", "/v1/models", "List the models", reply=ModelList),
    Route("GET", "/v1/models/{name:path}", "Describe one model", reply=ModelCard, errors=(404,)),
    Route("GET", "/health", "Whether requests would be served", reply=Health),
    Route("GET", PATH, "This document", reply=dict[str, Any]),
)  # fmt: skip


def document(routes: Iterable[Route] = ROUTES) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    routes = list(routes)
    bodies = [(route.body, "validation") for route in routes if route.body is not None]
    _, read = models_json_schema(bodies, ref_template=_REF.format("{model}"))  # type: ignore[arg-type]
    kinds = list(dict.fromkeys(kind for route in routes for kind in (route.reply, route.events) if kind is not None))
    references, written = msgspec.json.schema_components([*kinds, ErrorReply], ref_template=_REF.format("{name}"))
    schemas = {**read.get("$defs", {}), **written}
    if len(schemas) < len(read.get("$defs", {})) + len(written):
        raise ValueError(f"a request and a reply share a name: {sorted(read['$defs'].keys() & written.keys())}")
    of = dict(zip([*kinds, ErrorReply], references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route, of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Octavo",
            "version": "1",
            "description": "The OpenAI API over one model. Every answer that is no success is an `ErrorReply`.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": {_answer_name(status): _failure(status, of[ErrorReply]) for status in _REASONS},
        },
    }


def routes() -> APIRouter:
    """The route that serves the document."""
    router = APIRouter()
    response = json_response(document())

    @router.get(PATH)
    async def openapi() -> Response:
        return Response(response.body, media_type="application/json")

    return router


def _plain(path: str) -> str:
    """The path as OpenAPI writes it: parameters without their kind."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _operation(route: Route, of: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": route.summary, "operationId": _operation_id(route)}
    names = re.findall(r"\{(\w+)", route.path)
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    if route.body is not None:
        schema = {"$ref": _REF.format(route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    content: dict[str, Any] = {route.media_type: {"schema": of[route.reply] if route.reply is not None else {}}}
    if route.events is not None:
        content[_EVENTS] = {"schema": _event({"anyOf": [of[route.events], of[ErrorReply]]})}
    answers: dict[str, Any] = {str(route.status): {"description": "Done.", "headers": _headers(), "content": content}}
    answers.update(
        (str(status), {"$ref": f"#/components/responses/{_answer_name(status)}"}) for status in route.statuses
    )
    operation["responses"] = answers
    return operation


def _event(data: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "One server-sent event, if `stream` is true.",
        "properties": {
            "event": {"type": "string"},
            "data": {
                "anyOf": [
                    {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
                    {"const": "[DONE]"},
                ]
            },
        },
        "required": ["data"],
    }


def _answer_name(status: int) -> str:
    return f"Error{status}"


def _failure(status: int, schema: Any) -> dict[str, Any]:
    return {
        "description": _REASONS[status],
        "headers": _headers(retried=status in _RETRIED),
        "content": {"application/json": {"schema": schema}},
    }


def _operation_id(route: Route) -> str:
    return "_".join([route.method.lower(), *re.findall(r"\w+", _plain(route.path))])


def _headers(*, retried: bool = False) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "x-request-id": {"description": "The id of this request in the server's log.", "schema": {"type": "string"}}
    }
    if retried:
        headers["retry-after"] = {"description": "Seconds to wait.", "schema": {"type": "string"}}
    return headers
