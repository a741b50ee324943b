"""Routes of the Messages API."""

from __future__ import annotations

from octavo.server.messages.replies import Event, Message, TokensCount
from octavo.server.messages.schema import CountRequest, MessagesRequest
from octavo.server.openapi.declared import Route
from octavo.server.openapi.errors import ANTHROPIC
from octavo.server.openapi.of_text import MODEL, TURN

_COUNT = "/v1/messages/count_tokens"

ROUTES = (
    Route("POST", "/v1/messages", "Answer a conversation", MessagesRequest, Message, Event, TURN, ANTHROPIC),
    Route("POST", _COUNT, "Count the tokens of a prompt", CountRequest, TokensCount, errors=MODEL, dialect=ANTHROPIC),
)
