"""POST /v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from fastapi import APIRouter, Request, Response
from msgspec import UNSET, UnsetType

from octavo.runner.plan import TokenLogprobs
from octavo.server.backend import Choice
from octavo.server.body import read_body
from octavo.server.errors import request_id_of
from octavo.server.fields import CHAT_UNBUILT
from octavo.server.logprobs import chat_logprobs
from octavo.server.params import chat_params, served_name
from octavo.server.prompts import chat_prompt, truncated
from octavo.server.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    Usage,
)
from octavo.server.schema import ChatCompletionRequest, StreamOptions
from octavo.server.service import Service, json_response
from octavo.server.sse import EventStream, event
from octavo.server.streams import Job, Tally, collect, run, while_connected


def routes(service: Service) -> APIRouter:
    """The route of the chat API."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        body = await read_body(request, ChatCompletionRequest, CHAT_UNBUILT)
        model = served_name(body.model, service.backend.model_names)
        params = chat_params(body, service.backend.default_params)
        prompt = await chat_prompt(body, service.backend.tokenizer)
        prompt = truncated(prompt, body, service.backend.max_model_len, params.max_tokens)
        job = service.job("chatcmpl", body, request_id_of(request), [prompt], params)
        answer = _Answer(service, body, job, model)
        if body.stream:
            return EventStream(answer.events())
        return json_response(await while_connected(request.receive, answer.whole()))

    return router


@dataclass
class _Answer:
    """Writes the answer to one request, whole or as a stream."""

    service: Service
    body: ChatCompletionRequest
    job: Job
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def _logprobs(self, entries: Sequence[TokenLogprobs] | None) -> ChatLogprobs | None:
        if not self.body.logprobs or entries is None:
            return None
        return chat_logprobs(entries, self.service.names, as_ids=bool(self.body.return_tokens_as_token_ids))

    def _ids(self, ids: Sequence[int]) -> list[int] | UnsetType:
        return list(ids) if self.body.return_token_ids else UNSET

    async def whole(self) -> ChatCompletion:
        """The answer in one piece."""
        collected = await collect(self.service.backend, self.job)
        return ChatCompletion(
            id=self.job.response_id,
            created=self.created,
            model=self.model,
            choices=[
                ChatChoice(
                    index=index,
                    message=ChatMessage("".join(choice.text)),
                    logprobs=self._logprobs(choice.logprobs),
                    finish_reason=choice.finish_reason,
                    stop_reason=choice.stop_reason,
                    token_ids=self._ids(choice.token_ids),
                )
                for index, choice in enumerate(collected.choices)
            ],
            usage=collected.usage,
            system_fingerprint=self.service.fingerprint,
            prompt_token_ids=self._ids(self.job.prompts[0]),
        )

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as events: per choice a role when its first token is there, its pieces, a finish reason;
        then the usage, where it was asked for.
        """
        options = self.body.stream_options or StreamOptions()
        tally = Tally(self.job)
        spoken: set[int] = set()
        async with aclosing(run(self.service.backend, self.job)) as stream:
            async for number, item in stream:
                tally.count(number, item)
                data = b""
                now: Usage | UnsetType | None = None if options.include_usage else UNSET
                if options.include_usage and options.continuous_usage_stats:
                    now = tally.usage()
                for choice in item.outputs:
                    piece = self._piece(choice)
                    if piece is None:
                        continue
                    if choice.index not in spoken:
                        role = ChatChunkChoice(index=choice.index, delta=ChatDelta("", "assistant"))
                        ids = UNSET if spoken else self._ids(self.job.prompts[0])
                        data += event(self._chunk([role], now, ids))
                        spoken.add(choice.index)
                    data += event(self._chunk([piece], now))
                if data:
                    yield data
        if options.include_usage:
            yield event(self._chunk([], tally.usage()))

    def _piece(self, choice: Choice) -> ChatChunkChoice | None:
        """A choice's part of a chunk, or None if it would say nothing: benchmarks take every chunk for a token."""
        finished = choice.finish_reason is not None
        logprobs = self._logprobs(choice.logprobs) if choice.token_ids else None
        ids = self._ids(choice.token_ids)
        if not (choice.text or finished or logprobs or ids):
            return None
        return ChatChunkChoice(
            index=choice.index,
            delta=ChatDelta(choice.text or UNSET),
            logprobs=logprobs,
            finish_reason=choice.finish_reason,
            stop_reason=choice.stop_reason if finished else UNSET,
            token_ids=ids,
        )

    def _chunk(
        self,
        choices: list[ChatChunkChoice],
        usage: Usage | UnsetType | None,
        prompt_token_ids: list[int] | UnsetType = UNSET,
    ) -> ChatChunk:
        return ChatChunk(
            id=self.job.response_id,
            created=self.created,
            model=self.model,
            system_fingerprint=self.service.fingerprint,
            choices=choices,
            usage=usage,
            prompt_token_ids=prompt_token_ids,
        )
