"""Routes of models that make vectors and scores."""

from __future__ import annotations

from octavo.server.openapi.declared import Route
from octavo.server.openapi.of_text import TURN
from octavo.server.pooling.schema import (
    EmbeddingList,
    EmbeddingRequest,
    Ranking,
    RerankRequest,
    ScoreList,
    ScoreRequest,
)

_SCORE = ("/v1/score", "/score")
_RERANK = ("/v1/rerank", "/v2/rerank", "/rerank")

ROUTES = (
    Route("POST", "/v1/embeddings", "Make vectors of texts", EmbeddingRequest, EmbeddingList, errors=TURN),
    *(Route("POST", path, "Say how well texts fit", ScoreRequest, ScoreList, errors=TURN) for path in _SCORE),
    *(Route("POST", path, "Put documents in order", RerankRequest, Ranking, errors=TURN) for path in _RERANK),
)
