"""Qwen3-Coder: ``<tool_call><function=name><parameter=city>Rome</parameter></function></tool_call>``, each tag on a
line of its own; Seed says ``<seed:tool_call>``. What a parameter is, a string or something else, its schema says; it
becomes JSON as it comes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.text.feed import Feed, FeedParser, Steps
from octavo.text.parts import Tool
from octavo.text.scan import Markers
from octavo.text.tools.calls import Calls
from octavo.text.tools.json_text import Say
from octavo.text.tools.kind import NAME_CHARACTERS, ToolParser
from octavo.text.tools.loose import bare, inner, quoted

_CALLS, _CALL_ENDS = ("<tool_call>", "<seed:tool_call>"), ("</tool_call>", "</seed:tool_call>")
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_OUTSIDE = Markers((*_CALLS, *_CALL_ENDS, _FUNCTION, _FUNCTION_END))
_VALUE_END = Markers((_PARAMETER_END, _FUNCTION_END, *_CALL_ENDS))
_KEY_END = Markers((">",))


def _open(tools: Sequence[Tool]) -> FeedParser:
    schemas = {tool.name: tool.parameters.get("properties") for tool in tools}

    def read(feed: Feed) -> Steps[None]:
        calls = Calls(feed)
        while marker := (yield from feed.words_until(_OUTSIDE)):
            opening = feed.gap + marker
            if marker in (*_CALL_ENDS, _FUNCTION_END):
                feed.words("" if calls.count else opening)
                continue
            if marker in _CALLS:
                opening += yield from feed.space()
                if not (yield from feed.sees(_FUNCTION)):
                    feed.words(opening)
                    continue
                opening += feed.take(len(_FUNCTION))
            feed.record()
            name = yield from feed.run(NAME_CHARACTERS)
            if not name or (yield from feed.peek()) != ">":
                feed.words(opening + feed.recorded())
                continue
            feed.take(1)
            feed.recorded()
            calls.begin(name)
            schema = schemas.get(name)
            yield from _parameters(feed, calls.say, schema if isinstance(schema, Mapping) else {})

    return FeedParser(read)


def _parameters(feed: Feed, say: Say, schemas: Mapping[str, Any]) -> Steps[None]:
    """Take all parameters of a call, and say an object; cut short, it stays open, as an answer that is cut short is."""
    say("{")
    first = True
    while True:
        yield from feed.space()
        if not (yield from feed.sees(_PARAMETER)):
            if (yield from feed.peek()):
                say("}")
            return
        feed.take(len(_PARAMETER))
        key: list[str] = []
        if not (yield from feed.until(_KEY_END, key.append)):
            return
        name = "".join(key)
        say((", " if not first else "") + quoted(name) + ": ")
        first = False
        end = yield from (_text if _is_text(schemas.get(name)) else _other)(feed, say)
        if not end:
            return
        if end != _PARAMETER_END:
            say("}")
            return


def _text(feed: Feed, say: Say) -> Steps[str]:
    """Take a string, less the line break at either end; return what ended it."""
    say('"')
    if (yield from feed.sees("\n")):
        feed.take(1)
    held = ""

    def speak(text: str) -> None:
        nonlocal held
        text = held + text
        held = "\n" if text.endswith("\n") else ""
        say(inner(text[: len(text) - len(held)]))

    end = yield from feed.until(_VALUE_END, speak)
    if end:
        say('"')
    return end


def _other(feed: Feed, say: Say) -> Steps[str]:
    """Take a value that is JSON, or a word; return what ended it."""
    text: list[str] = []
    end = yield from feed.until(_VALUE_END, text.append)
    if end:
        whole = "".join(text).strip()
        say(whole if _is_json(whole) else bare(whole))
    return end


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity: Python's json reads them, others do not


def _is_text(schema: object) -> bool:
    """Whether a parameter is a string for certain."""
    return isinstance(schema, Mapping) and schema.get("type") == "string"


QWEN3_CODER = ToolParser(
    name="qwen3_coder",
    open=_open,
    claims=lambda template: _FUNCTION in template and any(call in template for call in _CALLS),
    markers=frozenset((*_CALLS, *_CALL_ENDS)),
)
