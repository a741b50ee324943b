"""POST /invocations, SageMaker's one route for all that a model does; its other, /ping, is in ``health.py``.

The body says which API is meant. It goes on to that API's route as it is, so that both answer alike.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from octavo.errors import RequestError
from octavo.server.generation.service import Service
from octavo.server.routing.failures import TURN
from octavo.server.routing.route import Parameter, route
from octavo.server.transport.body import read_body

ADAPTER = "x-amzn-sagemaker-adapter-identifier"
"""Header that names the model to answer, before the body does."""

_ROUTES = (
    (("messages",), "/v1/chat/completions"),
    (("prompt",), "/v1/completions"),
    (("input",), "/v1/embeddings"),
    (("query", "documents"), "/rerank"),
    (("text_1", "text_2"), "/v1/score"),
)
"""Fields that only one API has, and its route; the first whose fields are all there is meant."""


class _AnyBody(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Onward(Response):
    """The answer of another route to the same request."""

    def __init__(self, path: str, body: bytes) -> None:
        super().__init__()
        self._path = path
        self._sent = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the other route answer."""
        waiting = True

        async def replay() -> Message:
            nonlocal waiting
            if waiting:
                waiting = False
                return {"type": "http.request", "body": self._sent, "more_body": False}
            return await receive()

        onward = {**scope, "path": self._path, "raw_path": self._path.encode()}
        await scope["app"].router(onward, replay, send)  # the middleware is around us already


class SageMakerApi:
    """SageMaker's route to all that a model does."""

    def __init__(self, _service: Service) -> None: ...

    @route(
        "POST", "/invocations", "Whatever the body asks for", same_as=tuple(path for _, path in _ROUTES), errors=TURN,
        parameters=(Parameter(ADAPTER, "The model to answer, before the one that the body names.", place="header"),),
    )  # fmt: skip
    async def invocations(self, request: Request) -> Response:
        body: dict[str, Any] = (await read_body(request, _AnyBody, {})).model_extra or {}
        for fields, path in _ROUTES:
            if all(body.get(field) is not None for field in fields):
                adapter = request.headers.get(ADAPTER)
                sent = msgspec.json.encode({**body, "model": adapter}) if adapter else await request.body()
                return _Onward(path, sent)
        known = "; ".join(f"{' and '.join(fields)} for {path}" for fields, path in _ROUTES)
        raise RequestError(f"The body asks for no API of this server. It needs {known}.", code="invalid_value")
