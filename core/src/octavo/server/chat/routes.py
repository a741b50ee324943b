"""POST /v1/chat/completions."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.generation.chat_turn import chat_ask
from octavo.server.generation.content_tokens import ContentToken
from octavo.server.generation.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.generation.params import chat_params, served_name
from octavo.server.generation.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    FunctionCall,
    PromptLogprobs,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from octavo.server.generation.schema import ChatCompletionRequest, StreamOptions
from octavo.server.generation.service import Service, json_response
from octavo.server.generation.turn import Answer, Piece, Turn
from octavo.server.routing.failures import TURN
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body
from octavo.server.transport.connection import while_connected
from octavo.server.transport.errors import request_id_of
from octavo.server.transport.fields import CHAT_UNSUPPORTED
from octavo.server.transport.sse import EventStream, event
from octavo.text.parsing.parts import CallArguments, CallBegins, ContentText, Part, ReasoningText, Tool


class ChatApi:
    """The Chat Completions API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route(
        "POST", "/v1/chat/completions", "Answer a conversation",
        body=ChatCompletionRequest, reply=ChatCompletion, events=ChatChunk, errors=TURN,
    )  # fmt: skip
    async def create_chat_completion(self, request: Request) -> Response:
        service = self._service
        body = await read_body(request, ChatCompletionRequest, CHAT_UNSUPPORTED)
        model = served_name(body.model, service.backend.model_names)
        params = chat_params(body, service.backend.default_params)
        ask = chat_ask(body, params, service.settings)
        turn = await Turn.prepare(service, ask, f"chatcmpl-{body.request_id or request_id_of(request)}")
        echo = ask.messages[-1]["content"] if body.echo and ask.messages[-1]["role"] == "assistant" else ""
        named = isinstance(ask.tool_choice, Tool)
        answer = _Answer(service, body, turn, model, echo=echo, named=named)
        if body.stream:
            return EventStream(answer.events())
        return json_response(await while_connected(request.receive, answer.whole()))


@dataclass
class _Answer:
    """Writes the answer to one request, whole or as a stream."""

    service: Service
    body: ChatCompletionRequest
    turn: Turn
    model: str
    echo: str = ""
    """The text that the answer goes on with, where it shall be part of it."""
    named: bool = False
    """Whether the request names the function to call."""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def _legacy(self) -> bool:
        """Whether the one call there may be goes by its old name."""
        return self.body.functions is not None

    def _finish(self, reason: str | None) -> str | None:
        """OpenAI's reason for an end. A call that the client has named is no news: the answer has just stopped."""
        if reason != "tool_calls":
            return reason
        return "stop" if self.named else "function_call" if self._legacy else reason

    def _prompt_logprobs(self) -> PromptLogprobs | UnsetType:
        asked, found = self.body.prompt_logprobs, self.turn.prompt_logprobs
        return UNSET if asked is None or found is None else prompt_logprobs(found, self.service.names, asked)

    def _logprobs(self, tokens: Iterable[ContentToken]) -> ChatLogprobs | None:
        """Those of the content alone."""
        if not self.body.logprobs:
            return None
        return chat_logprobs(tokens, self.service.names, as_ids=bool(self.body.return_tokens_as_token_ids))

    def _ids(self, ids: Sequence[int]) -> list[int] | UnsetType:
        return list(ids) if self.body.return_token_ids else UNSET

    async def whole(self) -> ChatCompletion:
        """The answer in one piece."""
        answers = await self.turn.whole()
        return ChatCompletion(
            id=self.turn.job.response_id,
            created=self.created,
            model=self.model,
            choices=[self._choice(index, answer) for index, answer in enumerate(answers)],
            usage=self.turn.usage,
            system_fingerprint=self.service.fingerprint,
            prompt_logprobs=self._prompt_logprobs(),
            prompt_token_ids=self._ids(self.turn.job.prompts[0]),
        )

    def _choice(self, index: int, answer: Answer) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=self._message(answer),
            logprobs=self._logprobs(answer.content_tokens),
            finish_reason=self._finish(answer.finish_reason),
            stop_reason=answer.whole.stop_reason,
            token_ids=self._ids(answer.whole.token_ids),
        )

    def _message(self, answer: Answer) -> ChatMessage:
        message = ChatMessage(self.echo + (answer.words or "") if self.echo else answer.words)
        if answer.reasoning and self.body.include_reasoning is not False:
            message.reasoning = message.reasoning_content = "".join(answer.reasoning)
        if answer.calls and self._legacy:
            message.function_call = FunctionCall(answer.calls[0].name, answer.calls[0].arguments)
        elif answer.calls:
            message.tool_calls = [ToolCall(call.id, FunctionCall(call.name, call.arguments)) for call in answer.calls]
        return message

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as events: per choice a role when its first token is there, its pieces, a finish reason;
        then the usage, where it was asked for.
        """
        options = self.body.stream_options or StreamOptions()
        spoken: set[int] = set()
        async with self.turn.running() as stream:
            async for item in stream:
                pieces = self.turn.take(item)
                data = b""
                now: Usage | UnsetType | None = None if options.include_usage else UNSET
                if options.include_usage and options.continuous_usage_stats:
                    now = self.turn.usage
                for piece in pieces:
                    chunk = self._chunk_choice(piece)
                    if chunk is None:
                        continue
                    if chunk.index not in spoken:
                        role = ChatChunkChoice(index=chunk.index, delta=ChatDelta("", "assistant"))
                        ids = UNSET if spoken else self._ids(self.turn.job.prompts[0])
                        data += event(self._chunk([role], now, ids))
                        if self.echo:
                            begun = ChatChunkChoice(index=chunk.index, delta=ChatDelta(self.echo))
                            data += event(self._chunk([begun], now))
                        spoken.add(chunk.index)
                    data += event(self._chunk([chunk], now))
                if data:
                    yield data
        if options.include_usage:
            yield event(self._chunk([], self.turn.usage))

    def _chunk_choice(self, piece: Piece) -> ChatChunkChoice | None:
        """A piece's part of a chunk, or None if it would say nothing: benchmarks take every chunk for a token."""
        choice, finished = piece.choice, piece.finish_reason is not None
        tokens = [*itertools.chain.from_iterable(piece.content_tokens)]
        logprobs = self._logprobs(tokens) if tokens else None
        ids = self._ids(choice.token_ids)
        parts = piece.parts
        if self.body.include_reasoning is False:
            parts = [part for part in parts if not isinstance(part, ReasoningText)]
        if not (parts or finished or logprobs or ids):
            return None
        return ChatChunkChoice(
            index=choice.index,
            delta=self._delta(parts),
            logprobs=logprobs,
            finish_reason=self._finish(piece.finish_reason),
            stop_reason=choice.stop_reason if finished else UNSET,
            token_ids=ids,
        )

    def _delta(self, parts: Sequence[Part]) -> ChatDelta:
        """What parts add to a message. Those of one call are one entry: its name and the first of its arguments."""
        delta = ChatDelta()
        calls: dict[int, ToolCallDelta] = {}
        for part in parts:
            match part:
                case ContentText(text):
                    delta.content = (delta.content or "") + text
                case ReasoningText(text):
                    delta.reasoning = delta.reasoning_content = (delta.reasoning or "") + text
                case CallBegins(index, call_id, name):
                    calls[index] = ToolCallDelta(index, call_id, "function", FunctionCall(name, ""))
                case CallArguments(index, json):
                    call = calls.setdefault(index, ToolCallDelta(index))
                    call.function.arguments = (call.function.arguments or "") + json
        if calls and self._legacy:
            delta.function_call = calls[0].function
        elif calls:
            delta.tool_calls = list(calls.values())
        return delta

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | UnsetType | None,
        prompt_token_ids: list[int] | UnsetType = UNSET,
    ) -> ChatChunk:
        return ChatChunk(
            id=self.turn.job.response_id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.service.fingerprint,
            choices=choices,
            usage=usage,
            prompt_token_ids=prompt_token_ids,
        )
