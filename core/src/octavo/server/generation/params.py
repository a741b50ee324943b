"""Request fields to ``SamplingParams``. Precedence: the request, then the checkpoint, then the OpenAI API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from octavo.errors import ModelNotFound, RequestError
from octavo.sampling import MAX_N, SamplingParams
from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest, SamplingFields
from octavo.server.generation.structured import structured_output
from octavo.server.transport.refusals import naming
from octavo.structured_output import StructuredOutput

_FROM_CHECKPOINT = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_FROM_REQUEST = (
    "n",
    *_FROM_CHECKPOINT,
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "stop_in_reasoning",
)
"""Fields of the same name and meaning in both; SamplingParams has the API's defaults."""

COMPLETION_MAX_TOKENS = 16
"""The completions API's default."""


def chat_params(body: ChatCompletionRequest, checkpoint: Mapping[str, Any]) -> SamplingParams:
    """Sampling of a chat request; without a limit it may fill the context."""
    if body.top_logprobs is not None and body.top_logprobs > 0 and not body.logprobs:
        raise RequestError("'top_logprobs' needs 'logprobs': true.", param="top_logprobs", code="invalid_value")
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError("'prompt_logprobs' does not come with 'stream': true.", param="prompt_logprobs")
    limit = output_limit(body)
    if body.max_tokens is not None and body.max_tokens != limit:
        raise RequestError(
            f"'max_tokens' is {body.max_tokens} and 'max_completion_tokens' is {body.max_completion_tokens}; "
            "they mean the same, so send one of them.",
            param="max_tokens",
            code="invalid_value",
        )
    with naming(chat_fields(body)):
        return sampling_params(
            body,
            checkpoint,
            max_tokens=checkpoint.get("max_new_tokens") if limit is None else limit,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            prompt_logprobs=body.prompt_logprobs,
        )


def output_limit(body: ChatCompletionRequest) -> int | None:
    """How many tokens the client lets an answer have, by either name."""
    return body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens


def chat_fields(body: ChatCompletionRequest) -> Mapping[str, str]:
    """What a chat request calls the fields that errors name."""
    limit = {} if body.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}
    return {**limit, "prompt": "messages"}


RESPONSE_FIELDS: Mapping[str, str] = {"max_tokens": "max_output_tokens", "messages": "input", "prompt": "input"}
MESSAGE_FIELDS: Mapping[str, str] = {"stop": "stop_sequences", "prompt": "messages"}
"""The same of the Responses and Messages APIs."""


def completion_params(body: CompletionRequest, checkpoint: Mapping[str, Any]) -> SamplingParams:
    """Sampling of a completions request. Its ``n`` is what the engine draws: ``best_of`` where that is more."""
    if body.max_tokens == 0 and not body.echo:
        raise RequestError("'max_tokens' 0 needs 'echo': true; nothing would come back.", param="max_tokens")
    if body.prompt_logprobs is not None and body.stream:
        raise RequestError(
            "'prompt_logprobs' does not come with 'stream': true; 'echo' with 'logprobs' does.", param="prompt_logprobs"
        )
    params = sampling_params(
        body,
        checkpoint,
        max_tokens=COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=_most(body.logprobs if body.echo else None, body.prompt_logprobs),
    )
    return _drawing_best_of(body, params)


def message_params(
    body: SamplingFields, max_tokens: int, stop: Sequence[str] | None, checkpoint: Mapping[str, Any]
) -> SamplingParams:
    """Sampling of a request of the Messages API, which names its stop strings in its own way."""
    with naming(MESSAGE_FIELDS):
        return sampling_params(body.model_copy(update={"stop": stop}), checkpoint, max_tokens=max_tokens)


def _drawing_best_of(body: CompletionRequest, params: SamplingParams) -> SamplingParams:
    best_of = params.n if body.best_of is None else body.best_of
    if best_of == params.n:
        return params
    if body.stream:
        raise RequestError(
            "'best_of' more than 'n' cannot be streamed: which are best shows at the end.", param="best_of"
        )
    if not params.n < best_of <= MAX_N:
        raise RequestError(
            f"'best_of' is {best_of}; it must be at least 'n' ({params.n}) and at most {MAX_N}.",
            param="best_of",
            code="invalid_value",
        )
    return replace(params, n=best_of, logprobs=_most(params.logprobs, 0))


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def sampling_params(body: SamplingFields, checkpoint: Mapping[str, Any], **own: Any) -> SamplingParams:
    """What all APIs share; ``own`` are the fields that an API has in its own way. Raises RequestError."""
    if body.stream_options is not None and not body.stream:
        raise RequestError("'stream_options' needs 'stream': true.", param="stream_options", code="invalid_value")
    fields = {name: checkpoint[name] for name in _FROM_CHECKPOINT if checkpoint.get(name) is not None}
    fields.update((name, value) for name in _FROM_REQUEST if (value := getattr(body, name)) is not None)
    return SamplingParams(
        **fields,
        **own,
        logit_bias=_logit_bias(body.logit_bias),
        structured=_structured(body),
        allowed_token_ids=body.allowed_token_ids,
        bad_words=body.bad_words or None,
    )


def _structured(body: SamplingFields) -> StructuredOutput | None:
    if body.response_format is None and body.structured_outputs is None:
        return None
    return structured_output(body.response_format, body.structured_outputs)


def _logit_bias(bias: Mapping[str, float] | None) -> dict[int, float] | None:
    """JSON's keys are strings; the API means token ids."""
    if not bias:
        return None
    for key in bias:
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise RequestError(f"'logit_bias' maps token ids to numbers; {key[:40]!r} is no id.", param="logit_bias")
    return {int(key): value for key, value in bias.items()}


def served_name(asked: str | None, names: Sequence[str]) -> str:
    """The name to answer under: the one asked for, or the first served. Raises ModelNotFound."""
    if asked is None:
        return names[0]
    if asked not in names:
        raise ModelNotFound(f"The model {asked[:200]!r} is not served here; served: {', '.join(names)}.")
    return asked
