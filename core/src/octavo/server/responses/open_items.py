"""Output items while they grow: each tells its events, and becomes an item at its end."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from octavo.server.generation.replies import TokenLogprob
from octavo.server.responses.items import (
    FunctionCall,
    Item,
    ItemStatus,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    new_id,
    sealed,
)
from octavo.server.responses.replies import Event

Ending = Literal["completed", "incomplete"]

_PADDED_TO = 16
"""Characters; a padded delta is a multiple of it."""


class Emit:
    """Makes events, with the padding that a request may ask for."""

    def __init__(self, make: Callable[..., Event], *, obfuscate: bool) -> None:
        self._make = make
        self._obfuscate = obfuscate

    def __call__(self, kind: str, **fields: Any) -> Event:
        """An event of the type ``response.{kind}``."""
        return self._make(f"response.{kind}", **fields)

    def delta(self, kind: str, delta: str, **fields: Any) -> Event:
        """A delta."""
        padding: str | UnsetType = UNSET
        if self._obfuscate:
            padding = secrets.token_urlsafe(_PADDED_TO)[: _PADDED_TO - len(delta) % _PADDED_TO]
        return self._make(f"response.{kind}.delta", delta=delta, obfuscation=padding, **fields)


class OpenMessage:
    """A message of the assistant with one part of text."""

    def __init__(self, emit: Emit, index: int) -> None:
        self._emit = emit
        self._id = new_id("msg")
        self._item: dict[str, Any] = {"output_index": index}
        self._at: dict[str, Any] = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._text: list[str] = []
        self._logprobs: list[TokenLogprob] = []

    def begin(self) -> list[Event]:
        """The item, and its part."""
        empty = Message(id=self._id, role="assistant", content=[], status="in_progress")
        return [
            self._emit("output_item.added", item=empty, **self._item),
            self._emit("content_part.added", part=OutputText(""), **self._at),
        ]

    def add(self, text: str, logprobs: list[TokenLogprob]) -> list[Event]:
        """More text."""
        self._text.append(text)
        self._logprobs += logprobs
        return [self._emit.delta("output_text", text, logprobs=logprobs, **self._at)]

    def item(self, status: Ending) -> Message:
        """The message, as far as it has come."""
        return Message(id=self._id, role="assistant", content=[self._part()], status=status)

    def end(self, item: Item) -> list[Event]:
        """Nothing is added any more."""
        part = self._part()
        return [
            self._emit("output_text.done", text=part.text, logprobs=part.logprobs, **self._at),
            self._emit("content_part.done", part=part, **self._at),
            self._emit("output_item.done", item=item, **self._item),
        ]

    def _part(self) -> OutputText:
        return OutputText("".join(self._text), logprobs=self._logprobs)


class OpenReasoning:
    """The model's reasoning."""

    def __init__(self, emit: Emit, index: int, *, seal: bool) -> None:
        self._emit = emit
        self._seal = seal
        self._id = new_id("rs")
        self._item: dict[str, Any] = {"output_index": index}
        self._at: dict[str, Any] = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._text: list[str] = []

    def begin(self) -> list[Event]:
        """The item, and its part."""
        return [
            self._emit("output_item.added", item=Reasoning(id=self._id, status="in_progress"), **self._item),
            self._emit("content_part.added", part=ReasoningText(""), **self._at),
        ]

    def add(self, text: str) -> list[Event]:
        """More reasoning."""
        self._text.append(text)
        return [self._emit.delta("reasoning_text", text, **self._at)]

    def item(self, status: Ending) -> Reasoning:
        """The reasoning, as far as they have come."""
        text = "".join(self._text)
        seal = sealed(text) if self._seal else UNSET
        return Reasoning(id=self._id, content=[ReasoningText(text)], encrypted_content=seal, status=status)

    def end(self, item: Item) -> list[Event]:
        """Nothing is added any more."""
        part = ReasoningText("".join(self._text))
        return [
            self._emit("reasoning_text.done", text=part.text, **self._at),
            self._emit("content_part.done", part=part, **self._at),
            self._emit("output_item.done", item=item, **self._item),
        ]


class OpenCall:
    """A call of a function."""

    def __init__(self, emit: Emit, index: int, call_id: str, name: str) -> None:
        self._emit = emit
        self._id = new_id("fc")
        self._call_id = call_id
        self._name = name
        self._item: dict[str, Any] = {"output_index": index}
        self._at: dict[str, Any] = {"item_id": self._id, "output_index": index}
        self._arguments: list[str] = []

    def _made(self, arguments: str, status: ItemStatus) -> FunctionCall:
        return FunctionCall(id=self._id, call_id=self._call_id, name=self._name, arguments=arguments, status=status)

    def begin(self) -> list[Event]:
        """The item; its name is known, its arguments are not."""
        return [self._emit("output_item.added", item=self._made("", "in_progress"), **self._item)]

    def add(self, json: str) -> list[Event]:
        """More of the arguments."""
        self._arguments.append(json)
        return [self._emit.delta("function_call_arguments", json, **self._at)]

    def item(self, status: Ending) -> FunctionCall:
        """The call, as far as it has come."""
        return self._made("".join(self._arguments), status)

    def end(self, item: Item) -> list[Event]:
        """Nothing is added any more."""
        arguments = "".join(self._arguments)
        return [
            self._emit("function_call_arguments.done", arguments=arguments, name=self._name, **self._at),
            self._emit("output_item.done", item=item, **self._item),
        ]
