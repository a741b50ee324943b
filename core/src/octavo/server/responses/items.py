"""Items: what goes into a response and what comes out of it, as they are sent, stored and listed."""

from __future__ import annotations

import base64
import binascii
import uuid
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from octavo.server.generation.replies import TokenLogprob

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


def new_id(prefix: str) -> str:
    """An id that no other object has."""
    return f"{prefix}_{uuid.uuid4().hex}"


class InputText(Struct, tag_field="type", tag="input_text"):
    """Text of somebody other than the model."""

    text: str


class OutputText(Struct, tag_field="type", tag="output_text"):
    """Text of the model."""

    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)


class Refusal(Struct, tag_field="type", tag="refusal"):
    """A refusal, in a history that comes from elsewhere."""

    refusal: str


class Message(Struct, tag_field="type", tag="message", kw_only=True):
    """A message of any role."""

    id: str
    role: Literal["user", "assistant", "system", "developer"]
    content: list[InputText | OutputText | Refusal]
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """The parts, as one text."""
        return "\n".join(part.refusal if isinstance(part, Refusal) else part.text for part in self.content)


class FunctionCall(Struct, tag_field="type", tag="function_call", kw_only=True):
    """A call of a function. ``arguments`` is JSON text, whole unless the status is incomplete."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus = "completed"


class FunctionCallOutput(Struct, tag_field="type", tag="function_call_output", kw_only=True):
    """What a function gave back."""

    id: str
    call_id: str
    output: str | list[InputText]
    status: ItemStatus = "completed"

    @property
    def text(self) -> str:
        """The output, as one text."""
        return self.output if isinstance(self.output, str) else "\n".join(part.text for part in self.output)


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    """A part of a summary of reasoning, in a history that comes from elsewhere."""

    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    """The model's reasoning."""

    text: str


class Reasoning(Struct, tag_field="type", tag="reasoning", kw_only=True):
    """The model's reasoning before a message or a call."""

    id: str
    summary: list[SummaryText] = field(default_factory=list)
    content: list[ReasoningText] = field(default_factory=list)
    encrypted_content: str | UnsetType | None = UNSET
    status: ItemStatus | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        """The reasoning, from wherever the item carries it."""
        if self.content or not self.encrypted_content:
            return "\n".join(part.text for part in self.content)
        return unsealed(self.encrypted_content)


Item: TypeAlias = Message | FunctionCall | FunctionCallOutput | Reasoning

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Item)


def encode_item(item: Item) -> bytes:
    """An item as it is stored."""
    return _encoder.encode(item)


def decode_item(data: bytes) -> Item:
    """An item as it was stored."""
    item: Item = _decoder.decode(data)
    return item


_SEAL = "octavo1."


def sealed(text: str) -> str:
    """Reasoning in the form of ``encrypted_content``: for clients that send back this field alone.

    Encoded, not encrypted: the same text stands in the item's ``content``, so there is nothing to hide.
    """
    return _SEAL + base64.urlsafe_b64encode(text.encode()).decode()


def unsealed(value: str) -> str:
    """The text of `sealed`. Raises ValueError for what this server has not sealed."""
    if not value.startswith(_SEAL):
        raise ValueError("it was not made by this server")
    try:
        return base64.b64decode(value[len(_SEAL) :], altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("it is damaged") from error
