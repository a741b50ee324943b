"""Running an output parser over text that is cut in some way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from octavo.text.parsing.parts import CallArguments, CallBegins, ContentText, OutputParser, Part, ReasoningText, Tool

WEATHER = Tool(
    "get_weather",
    "The weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
TIME = Tool("get_time")
TOOLS = (WEATHER, TIME)


def parse(parser: OutputParser, pieces: Iterable[str]) -> list[Part]:
    """All parts of a text."""
    parts = [part for piece in pieces for part in parser.push(piece)]
    return parts + parser.finish()


def joined(parts: Iterable[Part]) -> list[tuple[str, Any]]:
    """Parts as pairs of kind and text, neighbours of one kind put together; checks indices and ids."""
    found: list[tuple[str, Any]] = []
    ids: list[str] = []
    for part in parts:
        match part:
            case CallBegins(index, call_id, name):
                assert index == len(ids)
                assert call_id not in ids
                ids.append(call_id)
                found.append(("call", name))
            case CallArguments(index, text):
                assert index == len(ids) - 1
                _add(found, "arguments", text)
            case ContentText(text):
                _add(found, "words", text)
            case ReasoningText(text):
                _add(found, "reasoning", text)
    return found


def _add(found: list[tuple[str, Any]], kind: str, text: str) -> None:
    assert text, "an empty part"
    if found and found[-1][0] == kind:
        text = found.pop()[1] + text
    found.append((kind, text))


def loaded(parts: Iterable[Part]) -> list[tuple[str, Any]]:
    """As `joined`, arguments read as JSON."""
    return [(kind, json.loads(text) if kind == "arguments" else text) for kind, text in joined(parts)]


def cuts(text: str, seed: int = 0) -> Iterator[list[str]]:
    """The text whole, by characters, cut once at every place, and cut at random."""
    yield [text]
    yield list(text)
    for at in range(1, len(text)):
        yield [text[:at], text[at:]]
    chance = random.Random(seed)
    for _ in range(20):
        pieces, start = [], 0
        while start < len(text):
            end = start + chance.choice((1, 2, 3, 5, 8, 13))
            pieces.append(text[start:end])
            start = end
        yield pieces
