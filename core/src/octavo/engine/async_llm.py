"""AsyncLLM: streams of text from an engine, for servers and other asyncio programs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from octavo.config import EngineConfig
from octavo.engine.client import EngineRequest, InProcessClient, News, Refusal
from octavo.engine.constraints import Constraints, NoConstraints
from octavo.engine.core import NO_TEXT, NO_VECTORS
from octavo.engine.inbox import Inbox
from octavo.engine.outputs import RequestDelta, RequestState, error_of
from octavo.engine.pooled import NOTHING_SAMPLED, TASKS, check_params, finished, folded
from octavo.engine.prompts import Prompt, prompt_ids
from octavo.engine.startup import Started, start
from octavo.errors import EngineDead, RequestError, RequestFailed
from octavo.models import Pooling
from octavo.platform import Progress
from octavo.pooling import PoolingParams, Vector
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.scheduler import SchedulerMetrics, TokenEvent
from octavo.step_plan import TokenConstraint
from octavo.text import Tokenizer

_Item: TypeAlias = TokenEvent | Exception
"""An event, or why there will be none."""


class AsyncLLM:
    """One model, many concurrent streams. Create and use it on one running event loop.

    ::

        llm = AsyncLLM.from_config(EngineConfig("model.gguf"))
        async for item in llm.generate("Once upon a time", SamplingParams(max_tokens=32)):
            print(item.outputs[0].text, end="")
        await llm.close()
    """

    def __init__(
        self,
        client: InProcessClient,
        tokenizer: Tokenizer,
        *,
        model_names: tuple[str, ...],
        max_model_len: int,
        default_params: Mapping[str, Any] = MappingProxyType({}),
        constraints: Constraints | NoConstraints | None = None,
        pooling: Pooling | None = None,
        vocab_size: int = 0,
    ) -> None:
        """``pooling`` and ``vocab_size`` are the model's, where it makes vectors in place of text."""
        self.tokenizer = tokenizer
        self.model_names = model_names
        self.max_model_len = max_model_len
        self.default_params = default_params
        self.tasks = TASKS[None if pooling is None else pooling.task]
        self.pairs = pooling is not None and pooling.task == "score"
        self._pooling = pooling
        self._vocab_size = vocab_size
        self._client = client
        self._constraints = constraints or NoConstraints()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: dict[str, Inbox[_Item]] = {}
        self._numbers = itertools.count()

    @classmethod
    def from_config(cls, config: EngineConfig, progress: Progress = lambda what, done, total: None) -> AsyncLLM:
        """Start an engine in this process. Raises what `octavo.engine.startup.start` raises."""
        return cls.from_started(start(config, progress), config.step_timeout)

    @classmethod
    def from_started(cls, started: Started, step_timeout: float = 0.0) -> AsyncLLM:
        """Over an engine that `octavo.engine.startup.start` made; see `InProcessClient` for ``step_timeout``."""
        # Now, when nobody is served yet, and not with the first request for structured output, when others are.
        threading.Thread(target=started.constraints.load, name="octavo-constraints", daemon=True).start()
        return cls(
            InProcessClient(started.core, step_timeout),
            started.tokenizer,
            model_names=started.model_names,
            max_model_len=started.plan.max_model_len,
            default_params=started.generation.fields,
            constraints=started.constraints,
            pooling=started.model.pooling,
            vocab_size=started.model.config.vocab_size,
        )

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams,
        request_id: str | None = None,
        *,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> AsyncGenerator[RequestDelta, None]:
        """Stream a request's deltas until every choice has a finish_reason.

        Raises RequestError before the first item if the request cannot be served, and at any time if what it asks lets
        no token come next; RequestFailed if an exception in the engine ended a choice, EngineDead if the engine
        stopped. Leaving the stream early aborts the request and
        frees its blocks.
        """
        if "generate" not in self.tasks:
            raise RequestError(NO_TEXT)
        ids = prompt_ids(prompt, self.tokenizer)
        name = request_id or f"request-{next(self._numbers)}"
        params, constraint = await self._prepare(sampling_params)
        request = EngineRequest(name, ids, params, options, constraint)
        state = RequestState(name, ids, sampling_params, self.tokenizer)
        events = self._open(request)
        finished = False
        try:
            while not finished:
                news = await events.get()
                if isinstance(news, Exception):
                    finished = True  # the engine has let go of the request already
                    raise news
                delta = state.update(news)
                if delta is None:
                    continue
                finished = delta.finished
                if state.stopped_by_text(delta, news):
                    self._client.abort(request.id, None if finished else news.index)
                error = error_of(news)
                if error is not None:
                    raise error
                yield delta
        finally:
            del self._streams[request.id]
            if not finished:
                self._client.abort(request.id)

    async def embed(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        request_id: str | None = None,
        pooling: PoolingParams | None = None,
        token_types: Sequence[Sequence[int]] | None = None,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> list[Vector]:
        """The vector of each prompt, given as token ids: its embedding, or a cross-encoder's score as one number.

        ``token_types`` has, for a cross-encoder's prompts, of which text each token is. Raises RequestError if one of
        them cannot be served, RequestFailed if an exception in the engine ended one, EngineDead. Cancelling it aborts
        what has not run.
        """
        params = pooling or PoolingParams()
        if self._pooling is None:
            raise RequestError(NO_VECTORS)
        check_params(params, self._pooling)
        name = request_id or f"request-{next(self._numbers)}"
        running: dict[str, Inbox[_Item]] = {}
        vectors: list[Vector] = []
        try:
            for number, prompt in enumerate(prompts):
                ids = folded(prompt, token_types[number] if token_types else None, self._vocab_size, self._pooling)
                request = EngineRequest(f"{name}-{number}", ids, NOTHING_SAMPLED, options)
                running[request.id] = self._open(request)
            for one, events in [*running.items()]:
                news = await events.get()
                del running[one], self._streams[one]
                if isinstance(news, Exception):
                    raise news
                if news.error is not None:
                    raise RequestFailed(news.error)
                assert news.pooled is not None, "a model that pools brings a vector with every prompt's end"
                vectors.append(finished(news.pooled, params, self._pooling))
        finally:
            for one in running:
                del self._streams[one]
                self._client.abort(one)
        return vectors

    async def _prepare(self, params: SamplingParams) -> tuple[SamplingParams, TokenConstraint | None]:
        if self._constraints.ready(params):
            return self._constraints.prepare(params)
        return await asyncio.to_thread(self._constraints.prepare, params)

    def _open(self, request: EngineRequest) -> Inbox[_Item]:
        if request.id in self._streams:
            raise RequestError(f"request_id {request.id} is in use by a running request", param="request_id")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._client.start(self._receive)
        self._client.add(request)
        events: Inbox[_Item] = Inbox()
        self._streams[request.id] = events
        return events

    def _receive(self, news: Sequence[News]) -> None:
        """Called by the engine's thread."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._dispatch, news)

    def _dispatch(self, news: Sequence[News]) -> None:
        for item in news:
            if isinstance(item, EngineDead):
                for stream in self._streams.values():
                    stream.put(item)
            elif (found := self._streams.get(item.request_id)) is not None:
                found.put(item.error if isinstance(item, Refusal) else item)

    async def metrics(self) -> SchedulerMetrics:
        """Requests, preemptions, prefix hits, blocks and wasted slots, between two steps. Raises EngineDead."""
        return await asyncio.wrap_future(self._client.metrics())

    async def health(self) -> None:
        """Return if the engine serves. Raises EngineDead otherwise."""
        health_error = self._client.health()
        if health_error is not None:
            raise EngineDead(health_error)

    async def close(self) -> None:
        """Stop the engine and free its device. Streams that still run raise EngineDead."""
        await asyncio.to_thread(self._client.close)
        self._constraints.close()
        for stream in self._streams.values():
            stream.put(EngineDead("the engine was closed"))
