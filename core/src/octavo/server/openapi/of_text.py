"""Routes that make text, and those that count its tokens."""

from __future__ import annotations

from typing import Any

from octavo.server.openapi.declared import Route
from octavo.server.generation.replies import ChatChunk, ChatCompletion, Completion
from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest
from octavo.server.meta.tokenise import DetokenizeRequest, Text, Tokenized, TokenizeRequest

MODEL = (404,)
"""A body may name a model that is not served."""
TURN = (404, 429)

_CHAT = ChatCompletionRequest
_TOKENIZE = (TokenizeRequest, _CHAT)

ROUTES = (
    Route("POST", "/v1/chat/completions", "Answer a conversation", _CHAT, ChatCompletion, ChatChunk, TURN),
    Route("POST", "/v1/completions", "Continue a text", CompletionRequest, Completion, Completion, TURN),
    *(
        route
        for prefix in ("", "/v1")
        for route in (
            Route("POST", f"{prefix}/tokenize", "Text to tokens", _TOKENIZE, Tokenized, errors=MODEL),
            Route("POST", f"{prefix}/detokenize", "Tokens to text", DetokenizeRequest, Text, errors=MODEL),
            Route("POST", f"{prefix}/apply-template", "A prompt as text", _CHAT, Text, errors=MODEL),
            Route("GET", f"{prefix}/tokenizer_info", "Special tokens, if shown", reply=dict[str, Any], errors=(404,)),
        )
    ),
)
