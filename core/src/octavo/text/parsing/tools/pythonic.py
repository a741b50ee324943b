"""Llama 3.2 and 4: an answer that is a list of Python calls, ``[f(city="Rome", days=2), g()]``, perhaps between
``<|python_start|>`` and ``<|python_end|>``. With nothing to mark it, only a list that begins with a tool of the request
is one. Arguments become JSON as they come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.text.parsing.feed import SPACE, Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls, read_calls
from octavo.text.parsing.tools.json_text import Say
from octavo.text.parsing.tools.kind import ToolParser
from octavo.text.parsing.tools.loose import bare, inner, quoted
from octavo.text.parsing.tools.schema import ANYTHING, Schema

_BEGIN, _END = "<|python_start|>", "<|python_end|>"
_MARKERS = Markers((_BEGIN, _END))
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_OPENERS, _CLOSERS = "([{", ")]}"
_DEEPEST = 32  # lists in lists; deeper ones become text
_QUOTES = ('"""', "'''", '"', "'")
_STRING_TEXT = re.compile(r"[^\"'\\]+")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
_HEX = {"x": 2, "u": 4, "U": 8}


def _open(tools: Sequence[Tool]) -> FeedParser:
    parameters = {tool.name: _Signature(_properties(tool), Schema(tool.parameters)) for tool in tools}

    def read(feed: Feed) -> Steps[None]:
        calls = Calls(feed)
        opening = yield from feed.space()
        while True:
            yield from _list(feed, calls, opening, parameters)
            marker = yield from feed.words_until(_MARKERS)
            if not marker:
                return
            opening = feed.gap + marker
            if marker == _END and calls.count:
                opening = ""

    return FeedParser(read)


@dataclass(frozen=True)
class _Signature:
    """The names of a function's parameters in their order, and their schema."""

    names: Sequence[str]
    schema: Schema


def _properties(tool: Tool) -> tuple[str, ...]:
    found = tool.parameters.get("properties")
    return tuple(map(str, found)) if isinstance(found, Mapping) else ()


def _list(feed: Feed, calls: Calls, opening: str, parameters: Mapping[str, _Signature]) -> Steps[None]:
    """Take a list of calls, or of JSON objects that are calls; else what was taken is words."""
    if (yield from feed.sees(_BEGIN)):
        opening += feed.take(len(_BEGIN))
    marked = _BEGIN in opening
    if (yield from feed.peek()) == "{":
        yield from read_calls(feed, calls, opening, _MARKERS.texts, parameters, marked=marked)
        return
    feed.record()
    found = False
    closed = "["
    while (yield from feed.peek()) in (closed, ","):
        feed.take(1)
        closed = ","
        yield from feed.space()
        name = yield from feed.run(_NAME)
        yield from feed.space()
        if name not in parameters or (yield from feed.peek()) != "(":
            break
        feed.recorded()
        feed.take(1)
        opening, found = "", True
        calls.begin(name)
        calls.end((yield from _arguments(feed, calls.say, parameters[name])))
        feed.record()
        yield from feed.space()
    if found and (yield from feed.peek()) == "]":
        feed.take(1)
        feed.recorded()
        yield from feed.space()
    text = feed.recorded()
    begun = bool(text) and any(f"[{name}(".startswith("".join(text.split())) for name in parameters)
    (feed.unsettled if found or marked or begun else feed.words)(opening + text)


def _arguments(feed: Feed, say: Say, signature: _Signature) -> Steps[bool]:
    """Take what is inside of the parentheses, and the closing one, and say a JSON object. False if the text ends
    first.
    """
    positions = signature.names
    count = 0
    while True:
        yield from feed.run(SPACE + ",:")  # none of these is part of a value
        character = yield from feed.peek()
        if not character:
            return False
        if character in _CLOSERS:
            feed.take(1)
            say("}" if count else "{}")
            return True
        word = yield from feed.run(_NAME)
        yield from feed.space()
        if not (yield from feed.peek()):
            return False  # a name or a value: nobody knows
        if word and (yield from feed.peek()) == "=":
            feed.take(1)
            yield from feed.space()
            key, word = word, ""
        else:
            key = positions[count] if count < len(positions) else f"argument_{count}"
        say((", " if count else "{") + quoted(key) + ": ")
        count += 1
        if not (yield from _value(feed, say, signature.schema.property(key), word)):
            return False


def _value(feed: Feed, say: Say, schema: Schema, begun: str = "", depth: int = 0) -> Steps[bool]:
    """Take a value up to what separates it from the next, and say its JSON. ``begun`` was taken of it already. False if
    the text ends first.
    """
    character = yield from feed.peek()
    if len(begun) <= 1 and character in ("'", '"'):
        if not (yield from _string(feed, say)):
            return False
        return (yield from _expression(feed, [])) if (yield from feed.peek()) else False
    if not begun and character in tuple(_OPENERS) and depth < _DEEPEST:
        feed.take(1)
        if not (yield from _container(feed, say, character, depth + 1, schema)):
            return False
        return (yield from _expression(feed, []))
    raw = [begun]
    complete = yield from _expression(feed, raw)
    if complete:
        say(bare("".join(raw), schema))
    return complete


def _container(feed: Feed, say: Say, opener: str, depth: int, schema: Schema) -> Steps[bool]:
    """Take a list, tuple, dict or set, whose opening bracket was taken."""
    say("{" if opener == "{" else "[")
    first = True
    while True:
        yield from feed.run(SPACE + ",:=")
        character = yield from feed.peek()
        if not character:
            return False
        if character in _CLOSERS:
            feed.take(1)
            say("}" if opener == "{" else "]")
            return True
        if not first:
            say(", ")
        first = False
        inside = schema.item()
        if opener == "{":
            key: list[str] = []
            if not (yield from _value(feed, key.append, ANYTHING, depth=_DEEPEST)):
                return False
            text = "".join(key)
            name = text if text.startswith('"') else quoted(text)
            inside = schema.property(json.loads(name))
            say(name + ": ")
            if (yield from feed.peek()) != ":":
                say("null")
                continue
            feed.take(1)
            yield from feed.space()
        if not (yield from _value(feed, say, inside, depth=depth)):
            return False


def _expression(feed: Feed, raw: list[str]) -> Steps[bool]:
    """Take everything up to the next separator that is in no bracket and no string. False if the text ends first."""
    depth = 0
    while True:
        character = yield from feed.peek()
        if not character:
            return False
        if depth == 0 and character in ",:)]}":
            return True
        if character in "'\"":
            string: list[str] = []
            if not (yield from _string(feed, string.append)):
                return False
            raw += string
            continue
        depth += (character in _OPENERS) - (character in _CLOSERS)
        raw.append(feed.take(1))


def _string(feed: Feed, say: Say) -> Steps[bool]:
    """Take a string and say it as JSON. False if the text ends first."""
    quote = yield from feed.sees_any(_QUOTES)
    feed.take(len(quote))
    say('"')
    empty = True
    while True:
        character = yield from feed.peek()
        if not character:
            return False
        if character == "\\":
            feed.take(1)
            letter = yield from feed.peek()
            if not letter:
                return False
            feed.take(1)
            escaped = yield from _escaped(feed, letter)
            if letter in _HEX and not (yield from feed.peek()):
                return False  # perhaps there were more digits to come
            say(inner(escaped))
        elif character in "'\"":
            if (yield from feed.sees(quote)):
                feed.take(len(quote))
                if empty and not (yield from feed.peek()):
                    return False  # perhaps the first two of three quotes
                say('"')
                return True
            if feed.half_of((quote,)):
                feed.take(feed.rest)
                return False
            say(inner(feed.take(1)))
        else:
            say(inner(feed.take_while(_STRING_TEXT)))
        empty = False


def _escaped(feed: Feed, letter: str) -> Steps[str]:
    """What a backslash and this letter stand for."""
    length = _HEX.get(letter)
    if length is None:
        return _ESCAPES.get(letter, letter if letter in "\\'\"" else "\\" + letter)
    digits = yield from feed.run("0123456789abcdefABCDEF", most=length)
    number = int(digits, 16) if len(digits) == length else -1
    if not 0 <= number <= 0x10FFFF:
        return "\\" + letter + digits
    return "\ufffd" if 0xD800 <= number <= 0xDFFF else chr(number)


PYTHONIC = ToolParser(
    name="pythonic",
    open=_open,
    claims=lambda template: _BEGIN in template or "[func_name1(" in template,
    markers=frozenset(_MARKERS.texts),
)
