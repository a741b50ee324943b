"""Exceptions to error objects: OpenAI's ``{"error": {"message", "type", "param", "code"}}`` for every failure, and on
the routes of the Messages API, and for its clients on those of models, Anthropic's
``{"type": "error", "error": {"type", "message"}, "request_id"}``.

The official client retries 408, 409, 429 and 5xx unless ``x-should-retry`` says otherwise; so a failure
that would repeat itself is a 4xx or carries ``x-should-retry: false``, and one that waiting cures carries
``retry-after``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from octavo.errors import EngineDead, ModelNotFound, ObjectNotFound, OctavoError, QueueFull, RequestError

logger = logging.getLogger("octavo.server")

REQUEST_ID = "octavo.request_id"
"""Key of the request's id in the ASGI scope."""

LIMITS = "octavo.limits"
"""Key of the server's `octavo.server.transport.limits.Limits` in the ASGI scope."""

SERVER_SEND = "octavo.server_send"
"""Key of the server's own ``send`` in the ASGI scope, beneath what middleware has wrapped around it."""


class ClientGone(Exception):
    """The client closed its connection; there is nobody left to answer."""


class TimeIsUp(Exception):
    """A request has taken as long as it may."""


_ANTHROPIC_ROUTES = "/v1/messages"
_MODELS_ROUTES = "/v1/models"
ANTHROPIC_VERSION = "anthropic-version"
"""The header that every client of the Anthropic API sends; by it the models' routes, which both APIs have, go."""
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@dataclass(frozen=True)
class Failure:
    """How one failure is told to a client."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The error object of the OpenAI API."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def anthropic_body(self, request_id: str) -> dict[str, Any]:
        """The error object of the Anthropic API."""
        kind = _ANTHROPIC_TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": self.message}, "request_id": request_id}

    def response(self, scope: Scope | None = None) -> Response:
        """The error object of the API whose route was called, as an HTTP response; without a scope, OpenAI's."""
        body, headers = self.body(), dict(self.headers)
        if scope is not None and _is_anthropic(scope):
            request_id = str(scope[REQUEST_ID])
            body, headers = self.anthropic_body(request_id), {**headers, "request-id": request_id}
        return Response(msgspec.json.encode(body), self.status, headers, media_type="application/json")


def _is_anthropic(scope: Scope) -> bool:
    path = str(scope["path"])
    return path.startswith(_ANTHROPIC_ROUTES) or (
        path.startswith(_MODELS_ROUTES) and ANTHROPIC_VERSION in Headers(scope=scope)
    )


@dataclass(frozen=True)
class _Kind:
    status: int
    type: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_REQUEST_ERRORS: tuple[tuple[type[RequestError], _Kind], ...] = (
    (ModelNotFound, _Kind(404, "invalid_request_error")),
    (ObjectNotFound, _Kind(404, "invalid_request_error")),
    (QueueFull, _Kind(429, "rate_limit_error")),
    (RequestError, _Kind(400, "invalid_request_error")),
)
_BY_CODE = {
    "storage_full": _Kind(413, "invalid_request_error"),
    # A batch takes longer than a client's retries.
    "too_many_batches": _Kind(429, "rate_limit_error", headers={"x-should-retry": "false"}),
}
"""Refusals that the API has a status of its own for."""
_ENGINE_DEAD = _Kind(503, "server_error", "engine_dead", {"retry-after": "10"})
_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_media_type",
}


def failure_of(error: BaseException, request_id: str) -> Failure:
    """What to tell the client of an exception; one that nobody foresaw is logged and told in general words."""
    if isinstance(error, RequestError):
        kind = next(kind for cls, kind in _REQUEST_ERRORS if isinstance(error, cls))
        kind = _BY_CODE.get(error.code or "", kind)
        headers = kind.headers
        if isinstance(error, QueueFull):
            headers = {**headers, "retry-after": str(math.ceil(error.retry_after))}
        return Failure(kind.status, str(error), kind.type, error.param, error.code or kind.code, headers)
    if isinstance(error, EngineDead):
        logger.error("request %s: the engine is dead: %s", request_id, error)
        message = "The engine has stopped and serves no requests; see the server's log."
        return Failure(_ENGINE_DEAD.status, message, _ENGINE_DEAD.type, None, _ENGINE_DEAD.code, _ENGINE_DEAD.headers)
    if isinstance(error, HTTPException):
        return Failure(
            error.status_code, str(error.detail), code=_HTTP_CODES.get(error.status_code), headers=error.headers or {}
        )
    if isinstance(error, TimeIsUp):
        # The same request would take as long again.
        return Failure(504, str(error), "server_error", code="request_timeout", headers={"x-should-retry": "false"})
    # The text of any other exception may hold paths or other people's data: it goes to the log alone.
    logger.error("request %s failed", request_id, exc_info=error)
    return Failure(
        500,
        f"The server failed on this request; its log has the reason under the request id {request_id}.",
        "server_error",
        code="internal_error",
        headers={"x-should-retry": "false"},
    )


def request_id_of(request: Request) -> str:
    """The id that the middleware gave the request."""
    return str(request.scope[REQUEST_ID])


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code in (404, 405):
        path = request.scope["path"]  # request.url would be put together from the client's Host header, and parsed
        detail = f"{request.method} {path} is not a route of this server"
        if error.status_code == 405:
            detail = f"{path} does not answer {request.method}"
        error = HTTPException(error.status_code, detail, error.headers)
    return failure_of(error, request_id_of(request)).response(request.scope)


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)  # nginx's number for it; only the access log sees it


def install_handlers(app: Starlette) -> None:
    """Answer every foreseen exception with its error object; the middleware answers all others."""
    app.add_exception_handler(OctavoError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(ClientGone, _answer_nobody)
