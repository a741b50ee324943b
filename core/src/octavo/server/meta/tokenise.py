"""Text to tokens and back: /tokenize, /detokenize, /apply-template and, where it is switched on, /tokenizer_info.

Shapes are vLLM's, ``/apply-template`` is llama.cpp's. A conversation comes to what Chat Completions makes of the very
same body, so that a client can count tokens before it asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import RequestError
from octavo.server.generation.chat_turn import chat_ask
from octavo.server.generation.params import chat_params, served_name
from octavo.server.generation.prompts import conversation_text, off_loop
from octavo.server.generation.schema import ChatCompletionRequest
from octavo.server.generation.service import Service, json_response
from octavo.server.generation.turn import Turn, TurnRequest, conversation
from octavo.server.routing.failures import MODEL
from octavo.server.routing.route import HandlerT, route
from octavo.server.transport.body import read_body
from octavo.server.transport.errors import request_id_of
from octavo.server.transport.fields import CHAT_UNSUPPORTED

_MESSAGES = {"title": "Messages", "anyOf": [{"type": "array", "items": {"type": "object"}}, {"type": "null"}]}


class TokenizeRequest(BaseModel):
    """POST /tokenize: a text, or a chat request, of which only ``messages`` is told apart here."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[Any, WithJsonSchema(_MESSAGES)] = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(BaseModel):
    """POST /detokenize."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    tokens: list[int]
    skip_special_tokens: bool | None = None


class Tokenized(Struct):
    """Answer of POST /tokenize. ``token_strs`` are spelled as the vocabulary has them."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class Text(Struct):
    """Answer of POST /detokenize and /apply-template."""

    prompt: str


def _both(method: Literal["GET", "POST"], path: str, summary: str, **declared: Any) -> Callable[[HandlerT], HandlerT]:
    """The route, and the same below /v1."""

    def declare(handler: HandlerT) -> HandlerT:
        return route(method, path, summary, **declared)(route(method, f"/v1{path}", summary, **declared)(handler))

    return declare


class TokensApi:
    """Text to tokens and back."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def _ask_of(self, request: Request) -> TurnRequest:
        service, backend = self._service, self._service.backend
        body = await read_body(request, ChatCompletionRequest, CHAT_UNSUPPORTED)
        served_name(body.model, backend.model_names)
        return chat_ask(body, chat_params(body, backend.default_params), service.settings)

    @_both(
        "POST", "/tokenize", "Text to tokens",
        body=(TokenizeRequest, ChatCompletionRequest), reply=Tokenized, errors=MODEL,
    )  # fmt: skip
    async def tokenize(self, request: Request) -> Response:
        service, backend = self._service, self._service.backend
        body = await read_body(request, TokenizeRequest, {})
        served_name(body.model, backend.model_names)
        if (body.prompt is None) == (body.messages is None):
            raise RequestError("Send either 'prompt' or 'messages'.", param="prompt", code="invalid_value")
        text, special = body.prompt, body.add_special_tokens is not False
        if text is None:
            ask = replace(await self._ask_of(request), over_context="truncate")
            turn = await Turn.prepare(service, ask, request_id_of(request))
            tokens = list(turn.job.prompts[0])
        else:
            tokens = await off_loop(len(text), lambda: backend.tokenizer.encode(text, add_special_tokens=special))
        names = backend.tokenizer.token_names(tokens) if body.return_token_strs else None
        return json_response(Tokenized(len(tokens), backend.max_model_len, tokens, names))

    @_both("POST", "/detokenize", "Tokens to text", body=DetokenizeRequest, reply=Text, errors=MODEL)
    async def detokenize(self, request: Request) -> Response:
        backend = self._service.backend
        body = await read_body(request, DetokenizeRequest, {})
        served_name(body.model, backend.model_names)
        size = backend.tokenizer.vocab_size
        for at, token in enumerate(body.tokens):
            if not 0 <= token < size:
                raise RequestError(
                    f"'tokens[{at}]' is {token}; the vocabulary's ids are 0 to {size - 1}.",
                    param="tokens",
                    code="invalid_value",
                )
        skip = bool(body.skip_special_tokens)
        decode = backend.tokenizer.decode
        text = await off_loop(len(body.tokens), lambda: decode(body.tokens, skip_special_tokens=skip))
        return json_response(Text(text))

    @_both("POST", "/apply-template", "A prompt as text", body=ChatCompletionRequest, reply=Text, errors=MODEL)
    async def apply_template(self, request: Request) -> Response:
        service, backend = self._service, self._service.backend
        ask = await self._ask_of(request)
        messages, tools = conversation(service, ask)
        text = await conversation_text(
            messages,
            backend.tokenizer,
            add_generation_prompt=ask.add_generation_prompt,
            continue_final_message=ask.continue_final_message,
            tools=tools,
            chat_template=ask.chat_template,
            variables=ask.template_variables,
        )
        return json_response(Text(text))


class TokenizerInfoApi:
    """What the tokenizer is; served where the operator wants it."""

    def __init__(self, service: Service) -> None:
        self._backend = service.backend

    @_both("GET", "/tokenizer_info", "Special tokens, if shown", reply=dict[str, Any], errors=MODEL)
    async def tokenizer_info(self, _request: Request) -> Response:
        backend = self._backend
        return json_response({**backend.tokenizer.info, "max_model_len": backend.max_model_len})
