"""What a model's text is made of: content, reasoning and tool calls, as a parser finds them while the text comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

Span: TypeAlias = tuple[int, int]
"""Begin and end of a stretch of a text, in characters."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. ``parameters`` is a JSON Schema; ``strict``: the arguments must obey it."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ContentText:
    """Text for the reader.

    ``spans`` says where the text stands in what the parser was given, all pushes joined; empty where it does not stand
    there. It is no part of the value: logprobs are found by it.
    """

    text: str
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unsettled(ContentText):
    """Text that was held back to the end of the answer, because it is the beginning of a marker or of a tool call whose
    name never came. Parsers emit it in `OutputParser.finish` alone; whether it is text depends on why the answer ended.
    """


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """Text of the model's reasoning. ``spans`` as for `ContentText`: what is never closed may become the answer."""

    text: str
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CallBegins:
    """A tool call begins. ``index`` counts the calls of one answer from 0; ``id`` is unique among all answers."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments. Joined, the pieces of one call are a JSON object's text."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class CallCut:
    """The answer ended inside this call: its arguments are what was written, and no more. Without it a call is
    complete.
    """

    index: int


Part: TypeAlias = ContentText | ReasoningText | CallBegins | CallArguments | CallCut


class OutputParser(Protocol):
    """Sorts one answer's text into parts, as it comes. Every text has parts: a parser never fails on one.

    Content should say by its ``spans`` where it stands in the text, for its logprobs: without them it is searched for,
    and the same text may stand in what is no content.
    """

    def push(self, text: str) -> list[Part]:
        """What this text settles, in order; what may still become something else is held back."""

    def finish(self) -> list[Part]:
        """What was held back, at the end of the answer."""


class PlainParser:
    """For answers that are words alone."""

    def __init__(self) -> None:
        self._at = 0

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""
        begin, self._at = self._at, self._at + len(text)
        return [ContentText(text, ((begin, self._at),))] if text else []

    def finish(self) -> list[Part]:
        """See `OutputParser.finish`."""
        return []
