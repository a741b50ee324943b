"""POST /v1/score and POST /v1/rerank, and the other paths they are known by."""

from __future__ import annotations

import time
from typing import Any

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.pooling import paired
from octavo.server.generation.params import served_name
from octavo.server.generation.service import Service, json_response
from octavo.server.pooling.schema import (
    POOLING_UNSUPPORTED,
    Ranked,
    RankedDocument,
    Ranking,
    RerankRequest,
    Score,
    ScoreList,
    ScoreRequest,
)
from octavo.server.pooling.vectors import Asked
from octavo.server.routing.failures import TURN
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body

_NAMES = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"))
_SCORE = "Score pairs of texts"
_RERANK = "Order documents by relevance"
_INSTEAD = "generates text and scores none: serve a cross-encoder or an embedding model"


class ScoresApi:
    """The score and rerank APIs."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route("POST", "/v1/score", _SCORE, body=ScoreRequest, reply=ScoreList, errors=TURN)
    @route("POST", "/score", _SCORE, body=ScoreRequest, reply=ScoreList, errors=TURN)
    async def create_score(self, request: Request) -> Response:
        service = self._service
        service.require("score", _INSTEAD)
        body = await read_body(request, ScoreRequest, POOLING_UNSUPPORTED)
        model = served_name(body.model, service.backend.model_names)
        first, second = _sides(body)
        asked = Asked(service, request, body, "score", second)
        pairs = _pairs(getattr(body, first), getattr(body, second), second, service.settings.limits.sequences)
        scores, usage = await asked.scores(pairs)
        data = [Score(index=i, score=score) for i, score in enumerate(scores)]
        return json_response(ScoreList(id=asked.id, created=int(time.time()), model=model, data=data, usage=usage))

    @route("POST", "/v1/rerank", _RERANK, body=RerankRequest, reply=Ranking, errors=TURN)
    @route("POST", "/v2/rerank", _RERANK, body=RerankRequest, reply=Ranking, errors=TURN)
    @route("POST", "/rerank", _RERANK, body=RerankRequest, reply=Ranking, errors=TURN)
    async def create_ranking(self, request: Request) -> Response:
        service = self._service
        service.require("score", _INSTEAD)
        body = await read_body(request, RerankRequest, POOLING_UNSUPPORTED)
        model = served_name(body.model, service.backend.model_names)
        asked = Asked(service, request, body, "rerank", "documents")
        texts = [_document(one, f"documents[{i}]") for i, one in enumerate(body.documents)]
        scores, usage = await asked.scores(_pairs(body.query, texts, "documents", service.settings.limits.sequences))
        best = sorted(range(len(texts)), key=lambda i: -scores[i])[: body.top_n or None]
        # Cohere's second version answers with indices alone, all others with the documents, unless told otherwise.
        shown = body.return_documents
        if shown is None:
            shown = not request.url.path.startswith("/v2")
        results = [
            Ranked(index=i, relevance_score=scores[i], document=RankedDocument(texts[i]) if shown else UNSET)
            for i in best
        ]
        return json_response(Ranking(id=asked.id, model=model, usage=usage, results=results))


def _sides(body: ScoreRequest) -> tuple[str, str]:
    """The names by which the two sides were given."""
    for first, second in _NAMES:
        if getattr(body, first) is not None or getattr(body, second) is not None:
            for name in (first, second):
                if getattr(body, name) is None:
                    raise RequestError(
                        f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
                    )
            return first, second
    raise RequestError("Missing required parameter: 'text_1'.", param="text_1", code="missing_required_parameter")


def _pairs(first: Any, second: Any, field: str, limit: int) -> list[tuple[str, str]]:
    for side in (first, second):
        if not isinstance(side, str) and not (isinstance(side, list) and all(isinstance(t, str) for t in side)):
            raise RequestError(f"'{field}' and its pair must be strings or arrays of strings.", param=field)
    try:
        pairs = paired(first, second)
    except RequestError as error:
        raise RequestError(f"'{field}': {error}.", param=field, code="invalid_value") from error
    if len(pairs) > limit:
        raise RequestError(
            f"'{field}': {len(pairs)} pairs are more than the {limit} that one request may score.", param=field
        )
    return pairs


def _document(document: Any, where: str) -> str:
    text = document.get("text") if isinstance(document, dict) else document
    if not isinstance(text, str):
        raise RequestError(f"'{where}' must be a string or an object with a 'text'.", param=where, code="invalid_type")
    return text
