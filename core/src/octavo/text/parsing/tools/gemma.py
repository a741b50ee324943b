"""FunctionGemma and Gemma 4: ``<start_function_call>call:name{city:<escape>Rome<escape>,days:2}<end_function_call>``,
with ``<|tool_call>``, ``<|"|>`` and ``<tool_call|>`` as the later spelling. Arguments become JSON as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.text.parsing.feed import SPACE, Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls
from octavo.text.parsing.tools.json_text import Say
from octavo.text.parsing.tools.kind import NAME_CHARACTERS, ToolParser
from octavo.text.parsing.tools.loose import bare, inner, quoted
from octavo.text.parsing.tools.schema import ANYTHING, Schema

_BEGINS = ("<start_function_call>", "<|tool_call>")
_ENDS = ("<end_function_call>", "<tool_call|>", "<start_function_response>", "<|tool_response>")
_QUOTES = ("<escape>", '<|"|>')
_MARKERS = Markers((*_BEGINS, *_ENDS))
_CLOSING_QUOTE = {quote: Markers((quote,)) for quote in _QUOTES}
_DEEPEST = 32  # lists in lists; deeper ones become text


def _read(feed: Feed, schemas: Mapping[str, Schema]) -> Steps[None]:
    calls = Calls(feed)
    while marker := (yield from feed.words_until(_MARKERS)):
        opening = feed.gap + marker
        if marker in _ENDS:
            feed.words("" if calls.count else opening)
            continue
        feed.record()
        yield from feed.space()
        name = ""
        if (yield from feed.sees("call:")):
            feed.take(len("call:"))
            name = yield from feed.run(NAME_CHARACTERS)
        elif feed.half_of(("call:",)):
            feed.take(feed.rest)
        if not name or (yield from feed.peek()) != "{":
            feed.unsettled(opening + feed.recorded())
            continue
        feed.recorded()
        feed.take(1)
        calls.begin(name)
        calls.end((yield from _object(feed, calls.say, 0, schemas.get(name, ANYTHING))))


def _open(tools: Sequence[Tool]) -> FeedParser:
    schemas = {tool.name: Schema(tool.parameters) for tool in tools}
    return FeedParser(lambda feed: _read(feed, schemas))


def _object(feed: Feed, say: Say, depth: int, schema: Schema) -> Steps[bool]:
    """Take an object whose brace was taken. False if it is cut short: by a marker, or by the end of the text."""
    say("{")
    first = True
    while True:
        yield from feed.run(SPACE + ",")
        character = yield from feed.peek()
        if character == "}":
            feed.take(1)
            say("}")
            return True
        if not character or (yield from feed.sees_any(_MARKERS.texts)):
            return False
        key: list[str] = []
        if (yield from feed.sees_any(_QUOTES)):
            if not (yield from _string(feed, key.append)):
                return False
        elif not (yield from _word(feed, key, ":,}")):
            return False
        name = "".join(key).strip().strip('"')
        say((", " if not first else "") + quoted(name) + ": ")
        first = False
        if (yield from feed.peek()) != ":":
            say("null")
            continue
        feed.take(1)
        if not (yield from _value(feed, say, depth, schema.property(name))):
            return False


def _list(feed: Feed, say: Say, depth: int, schema: Schema) -> Steps[bool]:
    """As `_object`, of a list."""
    say("[")
    first = True
    while True:
        yield from feed.run(SPACE + ",")
        character = yield from feed.peek()
        if character in ("]", "}"):
            feed.take(1)
            say("]")
            return True
        if not character or (yield from feed.sees_any(_MARKERS.texts)):
            return False
        if not first:
            say(", ")
        first = False
        if not (yield from _value(feed, say, depth, schema.item())):
            return False


def _value(feed: Feed, say: Say, depth: int, schema: Schema) -> Steps[bool]:
    yield from feed.space()
    if (yield from feed.sees_any(_QUOTES)):
        say('"')
        if not (yield from _string(feed, lambda text: say(inner(text)))):
            return False
        say('"')
        return True
    character = yield from feed.peek()
    if character in ("{", "[") and depth < _DEEPEST:
        feed.take(1)
        return (yield from (_object if character == "{" else _list)(feed, say, depth + 1, schema))
    word: list[str] = []
    if not (yield from _word(feed, word, ",}]")):
        return False
    say(bare("".join(word), schema))
    return True


def _string(feed: Feed, say: Say) -> Steps[bool]:
    quote = yield from feed.sees_any(_QUOTES)
    feed.take(len(quote))
    return bool((yield from feed.until(_CLOSING_QUOTE[quote], say, half=lambda _: None)))


def _word(feed: Feed, word: list[str], ends: str) -> Steps[bool]:
    """Take what stands without quotes, up to one of ``ends``."""
    while True:
        character = yield from feed.peek()
        if not character or (character == "<" and (yield from feed.sees_any(_MARKERS.texts))):
            return False
        if character in ends:
            return True
        word.append(feed.take(1))


GEMMA = ToolParser(
    name="gemma",
    open=_open,
    claims=lambda template: any(marker in template for marker in _BEGINS),
    markers=frozenset((*_MARKERS.texts, *_QUOTES)),
)
