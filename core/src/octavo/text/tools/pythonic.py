"""Llama 3.2 and 4: an answer that is a list of Python calls, ``[f(city="Rome", days=2), g()]``, perhaps between
``<|python_start|>`` and ``<|python_end|>``. With nothing to mark it, only a list that begins with a tool of the request
is one. Arguments become JSON as they come.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from octavo.text.feed import SPACE, Feed, FeedParser, Steps
from octavo.text.parts import Tool
from octavo.text.scan import Markers
from octavo.text.tools.calls import Calls, read_calls
from octavo.text.tools.json_text import Say
from octavo.text.tools.kind import ToolParser
from octavo.text.tools.loose import bare, inner, quoted

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
    parameters = {tool.name: _properties(tool) for tool in tools}

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


def _properties(tool: Tool) -> tuple[str, ...]:
    found = tool.parameters.get("properties")
    return tuple(map(str, found)) if isinstance(found, Mapping) else ()


def _list(feed: Feed, calls: Calls, opening: str, parameters: Mapping[str, tuple[str, ...]]) -> Steps[None]:
    """Take a list of calls, or of JSON objects that are calls; else what was taken is words."""
    if (yield from feed.sees(_BEGIN)):
        opening += feed.take(len(_BEGIN))
    if (yield from feed.peek()) == "{":
        yield from read_calls(feed, calls, opening, _MARKERS.texts, parameters)
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
        yield from _arguments(feed, calls.say, parameters[name])
        feed.record()
        yield from feed.space()
    if found and (yield from feed.peek()) == "]":
        feed.take(1)
        feed.recorded()
        yield from feed.space()
    feed.words(opening + feed.recorded())


def _arguments(feed: Feed, say: Say, positions: Sequence[str]) -> Steps[None]:
    """Take what is inside of the parentheses, and the closing one, and say a JSON object."""
    say("{")
    count = 0
    while True:
        yield from feed.run(SPACE + ",:")  # none of these is part of a value
        character = yield from feed.peek()
        if not character:
            return
        if character in _CLOSERS:
            feed.take(1)
            say("}")
            return
        word = yield from feed.run(_NAME)
        yield from feed.space()
        if word and (yield from feed.peek()) == "=":
            feed.take(1)
            yield from feed.space()
            key, word = word, ""
        else:
            key = positions[count] if count < len(positions) else f"argument_{count}"
        say((", " if count else "") + quoted(key) + ": ")
        count += 1
        if not (yield from _value(feed, say, word)):
            return


def _value(feed: Feed, say: Say, begun: str = "", depth: int = 0) -> Steps[bool]:
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
        if not (yield from _container(feed, say, character, depth + 1)):
            return False
        return (yield from _expression(feed, []))
    raw = [begun]
    complete = yield from _expression(feed, raw)
    if complete:
        say(bare("".join(raw)))
    return complete


def _container(feed: Feed, say: Say, opener: str, depth: int) -> Steps[bool]:
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
        if opener == "{":
            key: list[str] = []
            if not (yield from _value(feed, key.append, depth=_DEEPEST)):
                return False
            text = "".join(key)
            say((text if text.startswith('"') else quoted(text)) + ": ")
            if (yield from feed.peek()) != ":":
                say("null")
                continue
            feed.take(1)
            yield from feed.space()
        if not (yield from _value(feed, say, depth=depth)):
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
            say(inner((yield from _escaped(feed, letter))))
        elif character in "'\"":
            if (yield from feed.sees(quote)):
                feed.take(len(quote))
                say('"')
                return True
            say(inner(feed.take(1)))
        else:
            say(inner(feed.take_while(_STRING_TEXT)))


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
