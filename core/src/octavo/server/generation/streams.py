"""Streams of the engine: checked, merged over several prompts, and ended when the client goes away."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from octavo.errors import RequestFailed
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.server.generation.backend import Backend, Choice, Output
from octavo.server.generation.replies import Usage, usage
from octavo.server.transport.connection import cancel_all
from octavo.server.transport.timing import took
from octavo.step_plan import TokenLogprobs

_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """What one HTTP request asks of the engine."""

    response_id: str
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    options: RequestOptions = DEFAULT_OPTIONS

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(len(prompt) for prompt in self.prompts)


def generate(backend: Backend, job: Job, number: int = 0) -> AsyncGenerator[Output, None]:
    """The items of one of the job's prompts, each to be given to `check`. Closing it aborts the request."""
    # Clients may repeat their ids; the engine's must be unique.
    request_id = f"{job.response_id}-{next(_numbers)}"
    return backend.generate(job.prompts[number], job.params, request_id=request_id, options=job.options)


def check(item: Output) -> None:
    """Raise RequestFailed for a sequence that ended without being finished; note when the item left the engine."""
    for choice in item.outputs:
        if choice.finish_reason in ("error", "abort"):
            raise RequestFailed(f"choice {choice.index}: {choice.finish_reason}")
    took(item.left_engine)


def run(backend: Backend, job: Job) -> Items:
    """Items of every prompt with the prompt's number, as they come. Closing it aborts all of them."""
    return _OfOne(generate(backend, job)) if len(job.prompts) == 1 else _merged(backend, job)


class _OfOne:
    """The items of a job's only prompt: no generator, of which each would cost on every token."""

    def __init__(self, stream: AsyncGenerator[Output, None]) -> None:
        self._stream = stream

    def __aiter__(self) -> _OfOne:
        return self

    async def __anext__(self) -> tuple[int, Output]:
        item = await anext(self._stream)
        check(item)
        return 0, item

    async def aclose(self) -> None:
        await self._stream.aclose()


Items: TypeAlias = "_OfOne | AsyncGenerator[tuple[int, Output], None]"


async def _merged(backend: Backend, job: Job) -> AsyncGenerator[tuple[int, Output], None]:
    # Bounded, so that a client that reads slowly holds back the merge, not memory.
    items: asyncio.Queue[tuple[int, Output] | BaseException | None] = asyncio.Queue(maxsize=2 * len(job.prompts))

    async def pump(number: int) -> None:
        try:
            async with aclosing(generate(backend, job, number)) as stream:
                async for item in stream:
                    await items.put((number, item))
        except Exception as error:  # noqa: BLE001 - handed to the consumer, which raises it
            await items.put(error)
        else:
            await items.put(None)

    pumps = [asyncio.create_task(pump(number)) for number in range(len(job.prompts))]
    try:
        running = len(pumps)
        while running:
            got = await items.get()
            if got is None:
                running -= 1
            elif isinstance(got, BaseException):
                raise got
            else:
                check(got[1])
                yield got
    finally:
        await cancel_all(*pumps)


@dataclass
class UsageCounter:
    """Usage of a job while it runs."""

    job: Job
    completion_tokens: int = 0
    cached: dict[int, int] = field(default_factory=dict)
    """Cached tokens of each prompt that has begun."""
    reasoning_tokens: int | None = None
    """Those of the completion tokens that are reasoning; ``None`` where reasoning is not told from content."""

    def count(self, number: int, item: Output) -> None:
        """Take an item into account."""
        self.cached[number] = item.cached_tokens
        for choice in item.outputs:
            self.completion_tokens += len(choice.token_ids)

    def count_reasoning(self, tokens: int) -> None:
        """So many of the tokens counted were reasoning."""
        self.reasoning_tokens = (self.reasoning_tokens or 0) + tokens

    def usage(self) -> Usage:
        """The usage so far."""
        cached = sum(self.cached.values())
        return usage(self.job.prompt_tokens, self.completion_tokens, cached, self.reasoning_tokens)


@dataclass
class CompletedChoice:
    """One choice, put together from its pieces."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def add(self, piece: Choice) -> None:
        """Append a piece."""
        self.text.append(piece.text)
        self.token_ids.extend(piece.token_ids)
        self.logprobs.extend(piece.logprobs or ())
        if piece.finish_reason is not None:
            self.finish_reason, self.stop_reason = piece.finish_reason, piece.stop_reason


@dataclass
class CollectedChoices:
    """Everything a job brought."""

    choices: list[CompletedChoice]
    """Choice j of prompt i at i * n + j."""
    prompt_logprobs: dict[int, Sequence[TokenLogprobs | None]]
    usage: Usage


async def collect(backend: Backend, job: Job) -> CollectedChoices:
    """Run a job to its end."""
    n = job.params.n
    choices = [CompletedChoice() for _ in range(n * len(job.prompts))]
    scored: dict[int, Sequence[TokenLogprobs | None]] = {}
    tally = UsageCounter(job)
    async with aclosing(run(backend, job)) as stream:
        async for number, item in stream:
            tally.count(number, item)
            if item.prompt_logprobs is not None:
                scored[number] = item.prompt_logprobs
            for choice in item.outputs:
                choices[number * n + choice.index].add(choice)
    return CollectedChoices(choices, scored, tally.usage())
