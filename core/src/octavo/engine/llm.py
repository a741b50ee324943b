"""LLM: a model in this process, for scripts and batches.

The names are vLLM's, so scripts port by changing the import.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.config import DTYPES, KV_DTYPES, EngineConfig, Settings, Task, dtype_named, refuse_unsupported
from octavo.engine.core import EngineCore
from octavo.engine.embedder import Embedder
from octavo.engine.offline_loop import OfflineLoop
from octavo.engine.outputs import ChoiceDelta, RequestDelta, RequestState
from octavo.engine.pooled import EmbeddingOutput, ScoreOutput
from octavo.engine.progress import prompts_progress, startup_progress
from octavo.engine.prompts import Prompt, as_batch, prompt_ids, prompt_text
from octavo.engine.startup import start
from octavo.errors import RequestError
from octavo.pooling import PoolingParams
from octavo.sampling import SamplingParams
from octavo.scheduler import SchedulerMetrics
from octavo.step_plan import TokenLogprobs
from octavo.text import Tokenizer

_UNDER_WAY = 2
"""Requests in the engine for each that can run: one that ends leaves its row to another in the next step."""

_AHEAD = 8
"""The same, counting those that `LLM.generate_iter` holds back for an earlier one that is still running."""


@dataclass(frozen=True)
class Logprob:
    """One token's log-probability, its rank (1 is the most probable) where known, and its text."""

    logprob: float
    rank: int | None
    decoded_token: str


@dataclass
class CompletionOutput:
    """One finished choice. ``logprobs`` has, per token, the chosen one and the alternatives asked for, by id."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class RequestOutput:
    """A finished request. ``prompt`` is None if it was given as ids."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int = 0
    finished: bool = True


class LLM:
    """A model, loaded and ready. It runs in the calling thread and takes one call at a time.

    ::

        from octavo import LLM, SamplingParams

        llm = LLM(model="SmolLM2-135M-Instruct.Q4_1.gguf")
        for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8)):
            print(output.outputs[0].text)

    ``model`` is a folder, a .gguf file or a hub id. What is left None is decided by the platform and the model.
    ``task`` makes an embedding model of one that generates ("embed"); encoders need not be told.
    ``generation_config`` "none" keeps the checkpoint's own sampling from calls that give no parameters.
    ``special_tokens_in_messages`` lets what `chat` is given write the model's special tokens.
    ``itl_target_ms`` keeps the prompt chunks of a step so short that no request waits longer for its next token.
    ``unsupported`` takes the settings of other engines whose feature is not there: one that asks for it is refused
    with a sentence, one that asks for what is so anyway passes. Raises ConfigError, CheckpointError or PlatformError.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        block_size: int | None = None,
        memory_utilization: float | None = None,
        gpu_memory_utilization: float | None = None,
        enable_prefix_caching: bool = True,
        dtype: str = "auto",
        kv_cache_dtype: str = "auto",
        platform: str | None = None,
        tensor_parallel_size: int = 1,
        num_kv_blocks: int | None = None,
        threads: int | None = None,
        artifacts: str | Path | None = None,
        require_artifacts: bool = False,
        itl_target_ms: float | None = None,
        task: Task | None = None,
        generation_config: str = "auto",
        special_tokens_in_messages: bool = False,
        seed: int = 0,
        **unsupported: Any,
    ) -> None:
        for name, value in unsupported.items():
            refuse_unsupported(name, value)
        settings = Settings(
            dtype=dtype_named(dtype, DTYPES, "dtype"),
            kv_cache_dtype=dtype_named(kv_cache_dtype, KV_DTYPES, "kv_cache_dtype"),
            block_size=block_size,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            memory_utilization=memory_utilization if memory_utilization is not None else gpu_memory_utilization,
        )
        config = EngineConfig(
            model=str(model),
            platform=platform,
            settings=settings,
            tensor_parallel_size=tensor_parallel_size,
            enable_prefix_caching=enable_prefix_caching,
            num_kv_blocks=num_kv_blocks,
            threads=threads,
            artifacts=None if artifacts is None else Path(artifacts),
            require_artifacts=require_artifacts,
            itl_target_ms=itl_target_ms,
            task=task,
            generation_config=generation_config,
            special_tokens_in_messages=special_tokens_in_messages,
            seed=seed,
        )
        with startup_progress() as progress:
            started = start(config, progress)
        self.plan = started.plan
        self._core: EngineCore = started.core
        self._tokenizer = started.tokenizer
        self._numbers = itertools.count()
        self._generation = started.generation
        self._constraints = started.constraints
        self._waves = OfflineLoop(self._core, _UNDER_WAY * self.plan.max_num_seqs, self._constraints)
        self._embedder = Embedder(
            started.core,
            started.tokenizer,
            started.model.config,
            started.model.pooling,
            started.plan.max_model_len,
        )

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """The parameters of a call that gives none: those of the checkpoint's generation_config.json, as far as it has
        any and ``generation_config`` is "auto".
        """
        return self._generation.params()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete the prompts and return their outputs in order.

        A list of integers is one prompt, given as its token ids. ``sampling_params`` is one for all or one for each;
        without any it is `get_default_sampling_params`.
        ``use_tqdm`` shows progress on a terminal. The engine is given no more than keeps it busy; the list is held in
        memory, and so is every output: see `generate_iter` for more than fits there. Raises RequestError, before
        anything runs, if one of them cannot be served, and RequestFailed as soon as the engine failed at one; no other
        goes on then.
        """
        batch = as_batch(prompts)
        params = _per_prompt(
            self.get_default_sampling_params() if sampling_params is None else sampling_params, len(batch)
        )
        tokens = [prompt_ids(prompt, self._tokenizer) for prompt in batch]
        # Many prompts share their parameters, and preparing a constraint takes its time.
        prepared = {key: self._constraints.prepare(own)[0] for key, own in {id(own): own for own in params}.items()}
        for ids, own in zip(tokens, params, strict=True):
            self._core.check(ids, prepared[id(own)])
        made = (self._building(*asked) for asked in zip(batch, tokens, params, strict=True))
        with prompts_progress(len(batch), show=use_tqdm) as done:
            return [building.output for building in self._waves.run(made, ended=lambda one: done(*one.counts))]

    def generate_iter(
        self,
        prompts: Iterable[Prompt],
        sampling_params: SamplingParams | Iterable[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
    ) -> Iterator[RequestOutput]:
        """Complete prompts from an iterable of any length in bounded memory; yields their outputs in order.

        ::

            for output in llm.generate_iter(json.loads(line)["text"] for line in file):
                ...

        At most eight prompts for each sequence that can run are taken from the iterable before their outputs are
        yielded. ``sampling_params`` is one for all, or an iterable with one for each. What ``prompts`` raises, and
        RequestError for a prompt that cannot be served, is raised when its turn comes, after the outputs of all before
        it. RequestFailed is raised at once. Leaving the loop early, and closing the iterator, ends what runs. Other
        calls may be made between two outputs.
        """
        if isinstance(prompts, str | bytes | Mapping):
            raise RequestError(f"generate_iter takes an iterable of prompts, not {prompts!r:.40}", param="prompt")
        params = self.get_default_sampling_params() if sampling_params is None else sampling_params
        return self._generate_iter(prompts, params, use_tqdm)

    def _generate_iter(
        self, prompts: Iterable[Prompt], params: SamplingParams | Iterable[SamplingParams], show: bool
    ) -> Iterator[RequestOutput]:
        made = (
            self._building(prompt, prompt_ids(prompt, self._tokenizer), own) for prompt, own in _paired(prompts, params)
        )
        with prompts_progress(None, show=show) as done:
            ahead = _AHEAD * self.plan.max_num_seqs
            for building in self._waves.run(made, ahead=ahead, ended=lambda one: done(*one.counts)):
                yield building.output

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation, or a list of them, through the model's chat template. As `generate` otherwise."""
        prompts: list[Prompt] = []
        for conversation in _conversations(messages):
            ids = self._tokenizer.apply_chat_template(
                [dict(message) for message in conversation],
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **(chat_template_kwargs or {}),
            )
            prompts.append({"prompt_token_ids": ids})
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[EmbeddingOutput]:
        """The embeddings of the prompts, in order.

        ``truncate_prompt_tokens`` cuts longer prompts, -1 to what the model reads; without it one that is too long is
        refused. Raises RequestError, before anything runs, if one of them cannot be served or the model makes no
        embeddings, and RequestFailed if the engine failed at one.
        """
        return self._embedder.embed(prompts, pooling_params, truncate_prompt_tokens, show=use_tqdm)

    def score(
        self,
        data_1: str | Sequence[str],
        data_2: str | Sequence[str],
        pooling_params: PoolingParams | None = None,
        *,
        truncate_prompt_tokens: int | None = None,
        use_tqdm: bool = True,
    ) -> list[ScoreOutput]:
        """How well texts fit, one with many or pair by pair: a cross-encoder's score, else the cosine of embeddings.

        Raises as `embed` does.
        """
        return self._embedder.score(data_1, data_2, pooling_params, truncate_prompt_tokens, show=use_tqdm)

    def metrics(self) -> SchedulerMetrics:
        """What the scheduler and the KV cache have done so far: preemptions, prefix hits, blocks, wasted slots, waits
        between tokens.
        """
        return self._core.metrics()

    def close(self) -> None:
        """Free the model and its cache. Whoever asks for more is told so with EngineDead."""
        self._core.close()
        self._constraints.close()

    # -- inside ---------------------------------------------------------------------------------

    def _building(self, prompt: Prompt, ids: tuple[int, ...], params: SamplingParams) -> _Building:
        state = RequestState(str(next(self._numbers)), ids, params, self._tokenizer)
        return _Building(state, prompt, self._tokenizer)


class _Building:
    """A RequestOutput while its deltas come in."""

    def __init__(self, state: RequestState, prompt: Prompt, tokenizer: Tokenizer) -> None:
        choices = [CompletionOutput(i) for i in range(state.params.n)]
        self.state = state
        self.output = RequestOutput(state.id, prompt_text(prompt), list(state.prompt_token_ids), choices)
        self._tokenizer = tokenizer

    @property
    def counts(self) -> tuple[int, int]:
        """Tokens of the prompt, and of the output so far."""
        return len(self.output.prompt_token_ids), sum(len(choice.token_ids) for choice in self.output.outputs)

    def add(self, delta: RequestDelta) -> None:
        output = self.output
        output.num_cached_tokens = delta.cached_tokens
        if delta.prompt_logprobs is not None:
            output.prompt_logprobs = [None if p is None else _named(p, self._tokenizer) for p in delta.prompt_logprobs]
        for choice in delta.outputs:
            _extend(output.outputs[choice.index], choice, self._tokenizer)


def _extend(output: CompletionOutput, delta: ChoiceDelta, tokenizer: Tokenizer) -> None:
    output.text += delta.text
    output.token_ids += delta.token_ids
    if delta.logprobs is not None:
        output.logprobs = (output.logprobs or []) + [_named(p, tokenizer) for p in delta.logprobs]
        output.cumulative_logprob = (output.cumulative_logprob or 0.0) + sum(p.logprob for p in delta.logprobs)
    if delta.finish_reason is not None:
        output.finish_reason, output.stop_reason = delta.finish_reason, delta.stop_reason


def _named(logprobs: TokenLogprobs, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """The chosen token first, then the alternatives in falling order."""
    chosen = {logprobs.token_id: Logprob(logprobs.logprob, logprobs.rank, tokenizer.token_text(logprobs.token_id))}
    for rank, (token, value) in enumerate(logprobs.top, 1):
        chosen.setdefault(token, Logprob(value, rank, tokenizer.token_text(token)))
    return chosen


def _conversations(messages: Any) -> list[Sequence[Mapping[str, Any]]]:
    """One conversation or many as a list. Raises RequestError for what is neither."""
    many = [messages] if not messages or isinstance(messages[0], str | Mapping) else list(messages)
    for conversation in many:
        listed = isinstance(conversation, Sequence) and not isinstance(conversation, str)
        if not listed or not all(isinstance(message, Mapping) for message in conversation):
            raise RequestError(
                f"messages are mappings with role and content, in a list, not {conversation!r:.60}", param="messages"
            )
    return many


def _per_prompt(params: SamplingParams | Sequence[SamplingParams], count: int) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if isinstance(params, str | Mapping) or not all(isinstance(one, SamplingParams) for one in params):
        raise RequestError(f"sampling_params takes SamplingParams, one or a list, not {params!r:.60}")
    if len(params) != count:
        raise RequestError(f"{len(params)} sampling_params came with {count} prompts; give one, or one for each")
    return list(params)


def _paired(
    prompts: Iterable[Prompt], params: SamplingParams | Iterable[SamplingParams]
) -> Iterator[tuple[Prompt, SamplingParams]]:
    """Each prompt with its parameters. Raises RequestError where one of the two iterables ends before the other."""
    if isinstance(params, SamplingParams):
        yield from ((prompt, params) for prompt in prompts)
        return
    missing = object()
    for number, (prompt, own) in enumerate(itertools.zip_longest(prompts, params, fillvalue=missing)):
        if prompt is missing or own is missing:
            ended, goes_on = ("prompts", "sampling_params") if prompt is missing else ("sampling_params", "prompts")
            raise RequestError(f"the {ended} ended after {number}, and the {goes_on} go on; give one for each")
        if not isinstance(own, SamplingParams):
            raise RequestError(f"sampling_params takes SamplingParams, one or an iterable, not {own!r:.60}")
        yield prompt, own  # type: ignore[misc]
