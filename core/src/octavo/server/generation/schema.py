"""Request models of the OpenAI API, with the extensions that vLLM made common.

Types are strict, as JSON's are: "1" is no number and true is no integer. Null means absent, everywhere.
Ranges that belong to sampling are checked by ``SamplingParams``; only what is the API's own stands here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from octavo.sampling import RequestOptions


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]
"""At most 16 pairs, of keys of up to 64 and values of up to 512 characters."""

CHOICE = {"title": "Choice", "anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]}
"""Which tool to call: a word or an object."""


class StreamOptions(BaseModel):
    """What a stream carries beside the text."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    """One more chunk before the end, with the usage of the request."""
    continuous_usage_stats: bool | None = None
    """With include_usage: the usage so far, on every chunk."""
    include_obfuscation: Literal[False] | None = None
    """These streams are not padded."""


class SamplingFields(BaseModel):
    """The fields that both generating APIs share."""

    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    """Both in ``structured.py``."""
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    seed: int | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_as_list, json_schema_input_type=str | list[str] | None)] = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    stop_in_reasoning: bool | None = None
    """True: stop strings end the reasoning too, and not the answer alone."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Lower runs earlier."""
    cache_salt: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]+$")] | None = None
    """Requests share cached prefixes only with requests of the same salt."""
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None
    """Keep this many tokens of the prompt; -1: as many as fit. See ``prompts.Truncation``."""
    truncation_side: Literal["left", "right"] | None = None
    """Where the prompt is cut; left, so that its end is kept, is the default."""
    context_overflow: Literal["error", "truncate"] | None = None
    """For an output limit beyond what the context has room for: refuse it, which is the default, or end the output with
    the context. See ``context.py``.
    """
    request_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")] | None = None
    """The id of the response, without its prefix."""
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    """In logprobs, write tokens as "token_id:N", which no two tokens share."""

    @property
    def options(self) -> RequestOptions:
        """What it asks beside its sampling."""
        return RequestOptions(self.priority or 0, self.cache_salt or "")


class ChatCompletionRequest(SamplingFields):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    chat_template: str | None = None
    """In place of the model's own, where the operator trusts its clients that far."""
    documents: list[dict[str, Any]] | None = None
    """For templates that have a place for them."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """For templates that ask for it; "none" also tells those that can only switch their thinking off."""
    include_reasoning: bool | None = None
    """False: the reasoning is left out of the answer."""
    echo: bool | None = None
    """With continue_final_message: the message begins with what it goes on with."""
    prompt_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: list[Any] | None = None
    """These four are told apart in ``tools.py``."""
    tool_choice: Annotated[Any, WithJsonSchema(CHOICE)] = None
    functions: list[Any] | None = None
    function_call: Annotated[Any, WithJsonSchema(CHOICE)] = None
    parallel_tool_calls: bool | None = None


_TEXT = {"type": "string", "minLength": 1}
_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPTS: list[dict[str, Any]] = [
    _TEXT,
    _TOKENS,
    *({"type": "array", "items": one, "minItems": 1} for one in (_TEXT, _TOKENS)),
]
"""The four shapes of a prompt, or of what is to be embedded."""
_PROMPT = {
    "title": "Prompt",
    "anyOf": PROMPTS,
}


class CompletionRequest(SamplingFields):
    """POST /v1/completions. ``prompt`` is one of four shapes, told apart in ``prompts.py``."""

    prompt: Annotated[Any, WithJsonSchema(_PROMPT)]
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    suffix: str | None = None
    """The text behind the gap that the model shall fill; ``prompt`` is the text before it."""
    best_of: Annotated[int, Field(ge=1)] | None = None
    """Draw so many, return the ``n`` with the highest logprob per token."""
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[int, Field(ge=0)] | None = None
    """Score the prompt, with so many alternatives per token, whether it is echoed or not."""
    echo: bool | None = None
    add_special_tokens: bool | None = None
