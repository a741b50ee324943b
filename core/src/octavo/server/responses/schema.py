"""Request models of the Responses API; the conventions are those of `octavo.server.generation.schema`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from octavo.server.generation.schema import CHOICE, Metadata, SamplingFields, StreamOptions
from octavo.server.transport.fields import RESPONSES_UNSUPPORTED, undescribed

MAX_ITEMS = 20
"""Of one request that adds to a conversation, as in the OpenAI API."""

_ITEMS = {"type": "array", "items": {"type": "object"}}
_NEW_ITEMS = {**_ITEMS, "maxItems": MAX_ITEMS}


class ConversationName(BaseModel):
    """A conversation, by its id."""

    id: str


def _id_of(value: Any) -> Any:
    """A conversation is named by its id, or by an object with one."""
    return value["id"] if isinstance(value, dict) and "id" in value else value


class ReasoningFields(BaseModel):
    """How the model is to think."""

    model_config = ConfigDict(strict=True, extra="forbid")

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto"] | None = None
    """There are no summaries: reasoning is shown whole. "auto" takes what there is."""
    generate_summary: Literal["auto"] | None = None
    """The older name of ``summary``."""


class TextFields(BaseModel):
    """What the text is to be like."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: dict[str, Any] | None = None
    verbosity: Literal["medium"] | None = None


class ResponseStreamOptions(StreamOptions):
    """What a stream carries beside the text."""

    include_obfuscation: bool | None = None  # type: ignore[assignment]
    """Pad the deltas, so that their sizes tell nothing of the text."""


class TurnFields(SamplingFields):
    """What makes a turn: the fields that creating a response and counting its input share."""

    model_config = ConfigDict(json_schema_extra=undescribed(RESPONSES_UNSUPPORTED))

    input: Annotated[
        Any, WithJsonSchema({"title": "Input", "anyOf": [{"type": "string"}, _ITEMS, {"type": "null"}]})
    ] = None
    """A string or items, told apart in ``read_items.py``."""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Annotated[
        str | None, BeforeValidator(_id_of, json_schema_input_type=str | ConversationName | None)
    ] = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningFields | None = None
    text: TextFields | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Annotated[Any, WithJsonSchema(CHOICE)] = None
    """A word or an object, told apart in ``tools.py``."""
    truncation: Literal["auto", "disabled"] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class ResponseRequest(TurnFields):
    """POST /v1/responses."""

    background: bool | None = None
    include: list[str] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    """Counts calls of built-in tools, of which there are none."""
    metadata: Metadata | None = None
    prompt_cache_key: str | None = None
    safety_identifier: Annotated[str, Field(max_length=128)] | None = None
    store: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    user: str | None = None


class ConversationRequest(BaseModel):
    """POST /v1/conversations."""

    model_config = ConfigDict(strict=True, extra="ignore")

    items: Annotated[Any, WithJsonSchema({"title": "Items", "anyOf": [_NEW_ITEMS, {"type": "null"}]})] = None
    metadata: Metadata | None = None


class ConversationUpdate(BaseModel):
    """POST /v1/conversations/{id}."""

    model_config = ConfigDict(strict=True, extra="ignore")

    metadata: Metadata | None


class NewItems(BaseModel):
    """POST /v1/conversations/{id}/items."""

    model_config = ConfigDict(strict=True, extra="ignore")

    items: Annotated[Any, WithJsonSchema({"title": "Items", **_NEW_ITEMS})]
