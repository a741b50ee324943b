"""The engine: scheduler and runner in a loop. No text, no sockets, one thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from octavo.errors import EngineDead, RequestError
from octavo.platform import Device, KVStore
from octavo.platform.step import Floats
from octavo.runner import Runner
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerMetrics, TokenEvent
from octavo.step_plan import StepPlan, StepResult, TokenConstraint

_logger = logging.getLogger(__name__)

_GOLDEN = 0x9E3779B97F4A7C15  # odd, so multiples of it modulo 2**64 never repeat


NO_VECTORS = (
    "this model generates text and makes no embeddings; serve an embedding model, or start this one with --task embed"
)
NO_TEXT = "this model reads text and generates none; serve a model that does, or ask for embeddings or scores"


class EngineCore:
    """Takes tokenised requests and yields their tokens, step by step; where ``pools``, a vector of each prompt instead.

    ``vocab_size`` bounds the token ids that a prompt may hold. ``seed`` seeds the requests that bring none. ``clock``
    gives seconds and never goes back; steps are timed by it.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        device: Device,
        kv: KVStore,
        *,
        vocab_size: int,
        eos_ids: frozenset[int],
        seed: int = 0,
        pools: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._device = device
        self._kv = kv
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._seed = seed
        self._pools = pools
        self._clock = clock
        self._added = 0
        self._closed = False
        self._on_device_since: float | None = None

    @property
    def on_device_since(self) -> float | None:
        """When the device was given the step it has now (`time.monotonic`); ``None`` between steps. For any thread."""
        return self._on_device_since

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return self._scheduler.unfinished > 0

    def metrics(self) -> SchedulerMetrics:
        """A snapshot between steps."""
        return self._scheduler.metrics()

    def add(
        self,
        id: str,
        prompt: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = DEFAULT_OPTIONS,
        constraint: TokenConstraint | None = None,
    ) -> None:
        """Queue a request. Raises RequestError if it can never be served, QueueFull if there is no room now.

        Strings become tokens before they come here: ``constraint`` is what ``params.structured`` was compiled to, and
        ``params.bad_words`` are token ids.
        """
        if self._closed:
            raise EngineDead("the engine was closed")
        assert params.structured is None or constraint is not None, "structured output was not compiled"
        assert len(params.bad_word_ids) == len(tuple(params.bad_words or ())), "bad words were not tokenised"
        self._check(prompt, params)
        seed = params.seed
        if seed is None:
            seed = (self._seed + (self._added + 1) * _GOLDEN) % 2**64
        self._scheduler.add(Request(id, prompt, params, seed, self._eos_ids, options, constraint))
        self._added += 1

    def check(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Raise the RequestError that `add` would raise, whatever else is queued."""
        self._check(prompt, params)
        self._scheduler.bounds.check(Request("", prompt, params))

    def _check(self, prompt: Sequence[int], params: SamplingParams) -> None:
        if self._pools and params.max_tokens != 0:
            raise RequestError(NO_TEXT)
        if not prompt:
            raise RequestError("the prompt is empty; it needs at least one token", param="prompt")
        if min(prompt) < 0 or max(prompt) >= self._vocab_size:
            wrong = next(t for t in prompt if not 0 <= t < self._vocab_size)
            raise RequestError(
                f"the prompt has token id {wrong}; ids go from 0 to {self._vocab_size - 1}", param="prompt"
            )
        fields: tuple[tuple[str, Iterable[int]], ...] = (
            ("logit_bias", params.logit_bias or ()),
            ("stop_token_ids", params.stop_ids),
            ("allowed_token_ids", params.allowed_token_ids or ()),
            ("bad_words", (token for word in params.bad_word_ids for token in word)),
        )
        for field, ids in fields:
            wrong_ids = [t for t in ids if not 0 <= t < self._vocab_size]
            if wrong_ids:
                raise RequestError(
                    f"{field} has token id {wrong_ids[0]}; ids go from 0 to {self._vocab_size - 1}", param=field
                )

    def abort(self, id: str, index: int | None = None) -> None:
        """End a request, or its choice ``index``, at once. Unknown ids are ignored: it may just have ended."""
        self._scheduler.abort(id, index)

    def step(self) -> list[TokenEvent]:
        """Run one step and return what came of it; empty if there was nothing to run.

        An exception in a step ends only the requests that cause it: the step is run again row by row, and a row that
        fails alone ends with an error. Raises EngineDead if the device is ill.
        """
        if self._closed:  # a step would touch memory that is gone
            raise EngineDead("the engine was closed")
        begun = self._clock()
        plan = self._scheduler.schedule()
        if plan is None:
            return []
        try:
            result = self._run(plan)
            ended = self._clock()
            self._scheduler.observe(plan, ended - begun)
        except Exception as error:  # whatever the device, its plugin or sampling may raise
            _logger.exception("a step of %d rows failed", len(plan.rows))
            result = self._run_row_by_row(plan, error)
            ended = self._clock()
        return self._scheduler.update(plan, result, ended)

    def _run(self, plan: StepPlan) -> StepResult:
        self._on_device_since = time.monotonic()
        try:
            return self._runner.collect(self._runner.submit(plan))
        finally:
            self._on_device_since = None

    def _run_row_by_row(self, plan: StepPlan, error: Exception) -> StepResult:
        """Repeat a step that failed, each row in a step of its own.

        What the runner had to take in, it has. Keys and values are written again to the same slots, and the copies come
        before any of that, so that repeating is harmless wherever the first try stopped.
        """
        result = StepResult([], [], [])
        vectors: list[Floats] = []
        for i, row in enumerate(plan.rows):
            self._check_health(error)
            alone = StepPlan(
                rows=[row],
                counts=[plan.counts[i]],
                computed=[plan.computed[i]],
                samples=[plan.samples[i]],
                bucket=plan.bucket,
                copies=plan.copies if i == 0 else [],
            )
            try:
                own = self._run(alone)
            except Exception as fault:  # noqa: BLE001 - this row's own; it is told so, and the others go on
                reason = f"{type(fault).__name__}: {fault}"
                own = StepResult(
                    [[]], [None], [None], {row: reason}, [np.zeros(0, np.float32)] if self._pools else None
                )
            result.tokens += own.tokens
            result.logprobs += own.logprobs
            result.prompt_logprobs += own.prompt_logprobs
            result.failed.update(own.failed)
            result.refused.update(own.refused)
            vectors += own.pooled or []
        if self._pools:
            result.pooled = vectors
        return result

    def _check_health(self, error: Exception) -> None:
        health_error = self._device.health()
        if health_error is not None:
            raise EngineDead(f"the device stopped: {health_error}") from error

    def close(self) -> None:
        """Free the cache and the device; nothing runs after it. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._kv.close()
        self._device.close()
