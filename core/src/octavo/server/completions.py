"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from fastapi import APIRouter, Request, Response
from msgspec import UNSET, UnsetType

from octavo.errors import RequestError
from octavo.runner.plan import TokenLogprobs
from octavo.server.backend import Choice
from octavo.server.body import read_body
from octavo.server.errors import request_id_of
from octavo.server.fields import COMPLETION_UNBUILT
from octavo.server.logprobs import CompletionLogprobsWriter
from octavo.server.params import completion_params, served_name
from octavo.server.prompts import completion_prompts, truncated
from octavo.server.replies import Completion, CompletionChoice, CompletionLogprobs, Usage
from octavo.server.schema import CompletionRequest, StreamOptions
from octavo.server.service import Service, json_response
from octavo.server.sse import EventStream, event
from octavo.server.streams import Job, Tally, Whole, collect, run, while_connected


def routes(service: Service) -> APIRouter:
    """The route of the completions API."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        body = await read_body(request, CompletionRequest, COMPLETION_UNBUILT)
        model = served_name(body.model, service.backend.model_names)
        params = completion_params(body, service.backend.default_params)
        settings = service.settings
        prompts = await completion_prompts(body, service.backend.tokenizer, settings.max_prompts)
        prompts = [truncated(prompt, body, service.backend.max_model_len, params.max_tokens) for prompt in prompts]
        if len(prompts) * params.n > settings.max_sequences:
            raise RequestError(
                f"{len(prompts)} prompts times n={params.n} are more than the {settings.max_sequences} sequences "
                "that one request may ask for; send several requests.",
                param="n",
            )
        job = service.job("cmpl", body, request_id_of(request), prompts, params)
        answer = _Answer(service, body, job, model)
        if body.stream:
            return EventStream(answer.events())
        return json_response(await while_connected(request.receive, answer.whole()))

    return router


class _ChoiceWriter:
    """Writes one choice, in one or several pieces; the first brings the echo of the prompt."""

    def __init__(self, service: Service, body: CompletionRequest, job: Job, index: int) -> None:
        self._index = index
        self._body = body
        self._prompt = job.prompts[index // job.params.n]
        self._echo = ""
        skip = job.params.skip_special_tokens
        if body.echo:
            self._echo = service.backend.tokenizer.decode(self._prompt, skip_special_tokens=skip)
        self._logprobs: CompletionLogprobsWriter | None = None
        if body.logprobs is not None:
            as_ids = bool(body.return_tokens_as_token_ids)
            self._logprobs = CompletionLogprobsWriter(service.names, as_ids=as_ids, skip_special=skip)
        self._begun = False

    def write(
        self, piece: Choice | Whole, text: str, scored: Sequence[TokenLogprobs | None] | None
    ) -> CompletionChoice | None:
        """The piece's choice, or None if it would say nothing. Only the first that is written uses ``scored``."""
        first = not self._begun
        echo = self._echo if first else ""
        tokens = list(piece.token_ids)
        ids = tokens if self._body.return_token_ids else UNSET
        if not (text or echo or ids or piece.finish_reason or (self._logprobs and tokens)):
            return None
        self._begun = True
        return CompletionChoice(
            index=self._index,
            text=echo + text,
            logprobs=self._write_logprobs(tokens, piece.logprobs, scored if first and self._body.echo else None),
            finish_reason=piece.finish_reason,
            stop_reason=piece.stop_reason,
            token_ids=ids,
            prompt_token_ids=list(self._prompt) if first and self._body.return_token_ids else UNSET,
        )

    def _write_logprobs(
        self,
        tokens: list[int],
        entries: Sequence[TokenLogprobs] | None,
        scored: Sequence[TokenLogprobs | None] | None,
    ) -> CompletionLogprobs | None:
        if self._logprobs is None:
            return None
        if scored is None:
            return self._logprobs.write(tokens, entries or ())
        return self._logprobs.write([*self._prompt, *tokens], [*scored, *(entries or ())])


@dataclass
class _Answer:
    """Writes the answer to one request, whole or as a stream."""

    service: Service
    body: CompletionRequest
    job: Job
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def _writers(self) -> list[_ChoiceWriter]:
        count = len(self.job.prompts) * self.job.params.n
        return [_ChoiceWriter(self.service, self.body, self.job, index) for index in range(count)]

    async def whole(self) -> Completion:
        """The answer in one piece."""
        collected = await collect(self.service.backend, self.job)
        choices = []
        for index, (writer, whole) in enumerate(zip(self._writers(), collected.choices, strict=True)):
            scored = collected.prompt_logprobs.get(index // self.job.params.n)
            choice = writer.write(whole, "".join(whole.text), scored)
            if choice is not None:
                choices.append(choice)
        return self._completion(choices, collected.usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as events, and the usage as the last where it was asked for."""
        options = self.body.stream_options or StreamOptions()
        n = self.job.params.n
        tally = Tally(self.job)
        writers = self._writers()
        scored: dict[int, Sequence[TokenLogprobs | None]] = {}
        async with aclosing(run(self.service.backend, self.job)) as stream:
            async for number, item in stream:
                tally.count(number, item)
                if item.prompt_logprobs is not None:
                    scored[number] = item.prompt_logprobs
                now: Usage | UnsetType | None = None if options.include_usage else UNSET
                if options.include_usage and options.continuous_usage_stats:
                    now = tally.usage()
                data = b""
                for choice in item.outputs:
                    piece = writers[number * n + choice.index].write(choice, choice.text, scored.get(number))
                    if piece is not None:
                        data += event(self._completion([piece], now))
                if data:
                    yield data
        if options.include_usage:
            yield event(self._completion([], tally.usage()))

    def _completion(self, choices: list[CompletionChoice], usage: Usage | UnsetType | None) -> Completion:
        return Completion(
            id=self.job.response_id,
            created=self.created,
            model=self.model,
            choices=choices,
            usage=usage,
            system_fingerprint=self.service.fingerprint,
        )
