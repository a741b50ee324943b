"""Response values of the OpenAI API, as msgspec structs: a streamed chunk is one of them per token, and msgspec
encodes it in about a microsecond. A field that is UNSET is left out; None is written as null.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field


class PromptTokensDetails(Struct):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class CompletionTokensDetails(Struct):
    """What the completion's tokens were for."""

    reasoning_tokens: int


class Usage(Struct):
    """Tokens of one request, summed over its prompts and choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


def usage(prompt: int, completion: int, cached: int, reasoning: int | None = None) -> Usage:
    """Usage from its counts. ``reasoning`` is ``None`` for models whose reasoning is not told from content."""
    details = UNSET if reasoning is None else CompletionTokensDetails(reasoning)
    return Usage(prompt, completion, prompt + completion, PromptTokensDetails(cached), details)


class TopLogprob(Struct):
    """One alternative at one position; ``bytes`` are the token's, which need not be whole characters."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """The token that was chosen at one position, and the alternatives."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    """Logprobs of a chat choice."""

    content: list[TokenLogprob]
    refusal: None = None


class FunctionCall(Struct):
    """Which function is called, and how; in a chunk, what it adds to either."""

    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCall(Struct):
    """One call of a tool."""

    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class ToolCallDelta(Struct):
    """What a chunk adds to one call."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionCall = field(default_factory=FunctionCall)


class ChatMessage(Struct):
    """The message that was generated."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: None = None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    """The same: both names are in use."""
    tool_calls: list[ToolCall] | UnsetType = UNSET
    function_call: FunctionCall | UnsetType = UNSET


class ChatChoice(Struct, kw_only=True):
    """One generated message."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct, kw_only=True):
    """Answer of POST /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatDelta(Struct):
    """What a chunk adds to a message."""

    content: str | UnsetType = UNSET
    role: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET
    function_call: FunctionCall | UnsetType = UNSET


class ChatChunkChoice(Struct, kw_only=True):
    """One choice in a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(Struct, kw_only=True):
    """One event of a chat stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionLogprobs(Struct):
    """Logprobs of a completions choice: four lists of equal length, one element per token.

    ``text_offset`` counts characters from the start of the choice's text. The first token of an echoed
    prompt has no logprob, so its elements in the middle lists are null.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class PromptLogprob(Struct):
    """One token that could stand at a place of the prompt; ``rank`` 1 is the most probable."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs: TypeAlias = list[dict[str, PromptLogprob] | None]
"""For each prompt token its own entry and the alternatives, by id; null for the first."""


class CompletionChoice(Struct, kw_only=True):
    """One generated text, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, kw_only=True):
    """Answer of POST /v1/completions, and each event of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    system_fingerprint: str


class ModelCard(Struct, kw_only=True):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "octavo"
    root: str
    parent: None = None
    max_model_len: int
    generation_config: dict[str, Any] = field(default_factory=dict)
    """Fields of the checkpoint's generation_config that requests have as defaults."""


class ModelList(Struct, kw_only=True):
    """Answer of GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class AnthropicModel(Struct, tag_field="type", tag="model", kw_only=True):
    """One served model, as the Anthropic API describes it."""

    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int
    max_tokens: int


class AnthropicModels(Struct, kw_only=True):
    """Answer of GET /v1/models to Anthropic's clients; there is one page."""

    data: list[AnthropicModel]
    has_more: Literal[False] = False
    first_id: str
    last_id: str
