"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from octavo.server.generation.backend import Choice
from octavo.server.generation.context import fitted
from octavo.server.generation.logprobs import CompletionLogprobsWriter, floored, prompt_logprobs
from octavo.server.generation.params import completion_params, served_name
from octavo.server.generation.prompts import completion_prompts, truncation
from octavo.server.generation.replies import Completion, CompletionChoice, CompletionLogprobs, PromptLogprobs, Usage
from octavo.server.generation.schema import CompletionRequest, StreamOptions
from octavo.server.generation.service import Service, json_response
from octavo.server.generation.streams import CompletedChoice, Job, UsageCounter, collect, run
from octavo.server.routing.failures import TURN
from octavo.server.routing.route import route
from octavo.server.transport.body import read_body
from octavo.server.transport.connection import while_connected
from octavo.server.transport.errors import request_id_of
from octavo.server.transport.fields import COMPLETION_UNSUPPORTED
from octavo.server.transport.sse import EventStream, event
from octavo.step_plan import TokenLogprobs


class CompletionsApi:
    """The Completions API."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @route(
        "POST", "/v1/completions", "Continue a text",
        body=CompletionRequest, reply=Completion, events=Completion, errors=TURN,
    )  # fmt: skip
    async def create_completion(self, request: Request) -> Response:
        service = self._service
        body = await read_body(request, CompletionRequest, COMPLETION_UNSUPPORTED)
        model = served_name(body.model, service.backend.model_names)
        params = completion_params(body, service.backend.default_params)
        tokenizer = service.backend.tokenizer
        prompts = await completion_prompts(body, tokenizer)
        cut = truncation(body.truncate_prompt_tokens, body.truncation_side)
        if cut is not None:
            prompts = [cut.of(prompt, service.backend.max_model_len, params.max_tokens) for prompt in prompts]
        if body.suffix and tokenizer.fim is not None and not params.ignore_eos:
            params = replace(params, stop_token_ids=params.stop_ids | tokenizer.fim.ends)
        over = body.context_overflow or ("error" if body.max_tokens is not None else "truncate")
        params = fitted(params, max(map(len, prompts)), service.backend.max_model_len, over)
        job = service.job("cmpl", body, request_id_of(request), prompts, params)
        answer = _Answer(service, body, job, model)
        if body.stream:
            return EventStream(answer.events())
        return json_response(await while_connected(request.receive, answer.whole()))


class _ChoiceWriter:
    """Writes one choice, in one or several pieces; the first brings the echo of the prompt."""

    def __init__(self, service: Service, body: CompletionRequest, job: Job, prompt: Sequence[int], index: int) -> None:
        self._index = index
        self._body = body
        self._prompt = prompt
        self._names = service.names
        self._echo = ""
        skip = job.params.skip_special_tokens
        if body.echo:
            # A character that the prompt does not complete is in the text that goes on from it.
            self._echo = service.backend.tokenizer.decode_open(self._prompt, skip_special_tokens=skip)
        self._logprobs: CompletionLogprobsWriter | None = None
        if body.logprobs is not None:
            as_ids = bool(body.return_tokens_as_token_ids)
            before = () if body.echo else self._prompt
            self._logprobs = CompletionLogprobsWriter(
                service.names, body.logprobs, before, as_ids=as_ids, skip_special=skip
            )
        self._begun = False

    def write(
        self, piece: Choice | CompletedChoice, text: str, scored: Sequence[TokenLogprobs | None] | None
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
            prompt_logprobs=self._scores(scored) if first else UNSET,
        )

    def _scores(self, scored: Sequence[TokenLogprobs | None] | None) -> PromptLogprobs | UnsetType:
        if self._body.prompt_logprobs is None or scored is None:
            return UNSET
        return prompt_logprobs(scored, self._names, self._body.prompt_logprobs)

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


def _best(drawn: list[CompletedChoice], n: int) -> list[CompletedChoice]:
    """The n with the highest logprob per token, the best first; all of them as they are, if there are no more."""
    if len(drawn) == n:
        return drawn
    return sorted(drawn, key=_mean_logprob, reverse=True)[:n]


def _mean_logprob(choice: CompletedChoice) -> float:
    return sum(floored(entry.logprob) for entry in choice.logprobs) / max(1, len(choice.logprobs))


@dataclass
class _Answer:
    """Writes the answer to one request, whole or as a stream."""

    service: Service
    body: CompletionRequest
    job: Job
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def _n(self) -> int:
        """Choices per prompt that the client gets; the engine may draw more."""
        return self.body.n or 1

    def _writers(self) -> list[_ChoiceWriter]:
        """Those of prompt i from i * n on."""
        numbered = enumerate(prompt for prompt in self.job.prompts for _ in range(self._n))
        return [_ChoiceWriter(self.service, self.body, self.job, prompt, index) for index, prompt in numbered]

    async def whole(self) -> Completion:
        """The answer in one piece."""
        collected = await collect(self.service.backend, self.job)
        drawn = self.job.params.n
        best = [
            whole
            for start in range(0, len(collected.choices), drawn)
            for whole in _best(collected.choices[start : start + drawn], self._n)
        ]
        choices = []
        for index, (writer, whole) in enumerate(zip(self._writers(), best, strict=True)):
            choice = writer.write(whole, "".join(whole.text), collected.prompt_logprobs.get(index // self._n))
            if choice is not None:
                choices.append(choice)
        return self._completion(choices, collected.usage)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as events, and the usage as the last where it was asked for."""
        options = self.body.stream_options or StreamOptions()
        tally = UsageCounter(self.job)
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
                    piece = writers[number * self._n + choice.index].write(choice, choice.text, scored.get(number))
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
