"""Routes about the server and its models, and SageMaker's route to all of them."""

from __future__ import annotations

from typing import Any

from octavo.server.transport.errors import ANTHROPIC_VERSION
from octavo.server.meta.health import Health, Load, Version
from octavo.server.openapi.declared import Parameter, Route
from octavo.server.openapi.errors import EITHER
from octavo.server.openapi.of_text import TURN
from octavo.server.pooling.schema import (
    EmbeddingList,
    EmbeddingRequest,
    Ranking,
    RerankRequest,
    ScoreList,
    ScoreRequest,
)
from octavo.server.generation.replies import (
    AnthropicModel,
    AnthropicModels,
    ChatChunk,
    ChatCompletion,
    Completion,
    ModelCard,
    ModelList,
)
from octavo.server.meta.sagemaker import ADAPTER
from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest
from octavo.server.transport.timing import TimingReport

PATH = "/openapi.json"

_CARDS = (ModelCard, AnthropicModel)
_LISTS = (ModelList, AnthropicModels)
_SHAPE = (Parameter(ANTHROPIC_VERSION, "With any value, the answer has Anthropic's shape.", place="header"),)
_ANY = (ChatCompletionRequest, CompletionRequest, EmbeddingRequest, RerankRequest, ScoreRequest)
_REPLIES = (ChatCompletion, Completion, EmbeddingList, Ranking, ScoreList)
_EVENTS = (ChatChunk, Completion)
_ADAPTER = (Parameter(ADAPTER, "The model to answer, before the one that the body names.", place="header"),)

ROUTES = (
    Route("POST", "/invocations", "Whatever the body asks for", _ANY, _REPLIES, _EVENTS, TURN, parameters=_ADAPTER),
    Route("GET", "/v1/models", "List the models", reply=_LISTS, dialect=EITHER, parameters=_SHAPE),
    Route("GET", "/v1/models/{name:path}", "Describe one model", None, _CARDS, None, (404,), EITHER, _SHAPE),
    Route("GET", "/health", "Whether requests would be served", reply=Health),
    Route("GET", "/ping", "The same, for SageMaker", reply=Health),
    Route("GET", "/version", "The version of the server", reply=Version),
    Route("GET", "/load", "How many requests are being answered", reply=Load),
    Route("GET", "/octavo/timing", "What the server adds to the time of a token", reply=TimingReport),
    Route("GET", PATH, "This document", reply=dict[str, Any]),
)
