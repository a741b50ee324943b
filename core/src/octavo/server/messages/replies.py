"""Response values and stream events of the Messages API. A tagged struct writes its ``type`` first."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field


class OutputTokensDetails(Struct):
    """What output tokens were for."""

    thinking_tokens: int


class Usage(Struct, kw_only=True):
    """The prompt has ``input_tokens`` and, beside them, those that were read from the cache."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET


class TextBlock(Struct, tag_field="type", tag="text"):
    """Text for the reader."""

    text: str
    citations: None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """ReasoningText. ``signature`` is there because clients send it back; nothing is read from it."""

    thinking: str
    signature: str = ""


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    """A call of a tool. In a stream ``input`` begins empty and comes as text of JSON."""

    id: str
    name: str
    input: dict[str, Any] = field(default_factory=dict)


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class Message(Struct, tag_field="type", tag="message", kw_only=True):
    """Answer of POST /v1/messages; in ``message_start`` without content and stop reason."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage


class TokensCount(Struct):
    """Answer of POST /v1/messages/count_tokens."""

    input_tokens: int


class MessageStart(Struct, tag_field="type", tag="message_start"):
    """The first event."""

    message: Message


class Ping(Struct, tag_field="type", tag="ping"):
    """Nothing; the API sends one behind the first event."""


class BlockStart(Struct, tag_field="type", tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: Block


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignatureDelta(Struct, tag_field="type", tag="signature_delta"):
    """The whole signature, before its block ends."""

    signature: str


class InputJsonDelta(Struct, tag_field="type", tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockStop(Struct, tag_field="type", tag="content_block_stop"):
    """A block ends."""

    index: int


class StopDelta(Struct):
    """Why the message ended."""

    stop_reason: str
    stop_sequence: str | None


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    """What is known at the end; the usage is that of the whole message."""

    delta: StopDelta
    usage: Usage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    """The last event."""


Event: TypeAlias = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
