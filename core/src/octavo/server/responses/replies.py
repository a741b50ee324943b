"""What the Responses API answers, as msgspec structs; see `octavo.server.generation.replies` for the conventions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from octavo.server.generation.replies import TokenLogprob, Usage
from octavo.server.responses.items import Item, OutputText, ReasoningText

ResponseStatus: TypeAlias = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
RUNNING: tuple[ResponseStatus, ...] = ("queued", "in_progress")


class InputTokensDetails(Struct):
    """Where the input's tokens came from."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct):
    """What the output's tokens were for."""

    reasoning_tokens: int


class ResponseUsage(Struct):
    """Tokens of one response."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


def response_usage(usage: Usage) -> ResponseUsage:
    """The usage of a turn, by the names of this API."""
    details = usage.completion_tokens_details
    return ResponseUsage(
        usage.prompt_tokens,
        InputTokensDetails(usage.prompt_tokens_details.cached_tokens),
        usage.completion_tokens,
        OutputTokensDetails(0 if details is UNSET else details.reasoning_tokens),
        usage.total_tokens,
    )


class ResponseError(Struct):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(Struct):
    """Why a response is incomplete."""

    reason: str


class ConversationReference(Struct):
    """The conversation that a response belongs to."""

    id: str


class ReasoningConfig(Struct):
    """How the model was to think. There are no summaries of its reasoning: it is shown whole."""

    effort: str | None = None
    summary: None = None


class TextConfig(Struct):
    """What the text was to be like."""

    format: dict[str, Any]
    verbosity: str = "medium"


class ResponseObject(Struct, kw_only=True):
    """A response, finished or not, with the parameters it was made with."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus
    completed_at: int | None = None
    background: bool = False
    conversation: ConversationReference | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str]
    model: str
    output: list[Item]
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningConfig
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool
    temperature: float
    text: TextConfig
    tool_choice: Any
    tools: list[dict[str, Any]]
    top_logprobs: int = 0
    top_p: float
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None


class Event(Struct, kw_only=True):
    """One event of a stream; each type has some of these fields."""

    type: str
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: Item | UnsetType = UNSET
    part: OutputText | ReasoningText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    logprobs: list[TokenLogprob] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    obfuscation: str | UnsetType = UNSET
    code: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    param: str | UnsetType | None = UNSET


class DeletedResponse(Struct):
    """Answer of DELETE /v1/responses/{id}."""

    id: str
    object: Literal["response.deleted"] = "response.deleted"
    deleted: bool = True


class InputTokens(Struct):
    """Answer of POST /v1/responses/input_tokens."""

    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


class Conversation(Struct):
    """A conversation, without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: Literal["conversation"] = "conversation"


class DeletedConversation(Struct):
    """Answer of DELETE /v1/conversations/{id}."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


class ItemList(Struct):
    """A page of items."""

    data: list[Item]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


def item_list(items: list[Item], *, has_more: bool) -> ItemList:
    """A page of these items."""
    return ItemList(items, has_more, items[0].id if items else None, items[-1].id if items else None)
