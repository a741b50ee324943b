"""Qwen3-Coder: ``<tool_call><function=name><parameter=city>Rome</parameter></function></tool_call>``, each tag on a
line of its own; Seed says ``<seed:tool_call>``. The format has no types: a parameter whose schema admits a string is
that string, to the character, and so is one without a schema; any other is JSON. It becomes JSON as it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls
from octavo.text.parsing.tools.json_text import Say
from octavo.text.parsing.tools.kind import NAME_CHARACTERS, ToolParser
from octavo.text.parsing.tools.loose import from_text, inner, quoted
from octavo.text.parsing.tools.schema import ANYTHING, Schema

_CALLS, _CALL_ENDS = ("<tool_call>", "<seed:tool_call>"), ("</tool_call>", "</seed:tool_call>")
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_OUTSIDE = Markers((*_CALLS, *_CALL_ENDS, _FUNCTION, _FUNCTION_END))
_VALUE_END = Markers((_PARAMETER_END, _FUNCTION_END, *_CALL_ENDS))
_KEY_END = Markers((">",))
_NULL = "null"


def _open(tools: Sequence[Tool]) -> FeedParser:
    schemas = {tool.name: Schema(tool.parameters) for tool in tools}

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
                    opening += feed.take(feed.rest) if feed.half_of((_FUNCTION,)) else ""
                    feed.unsettled(opening)
                    continue
                opening += feed.take(len(_FUNCTION))
            feed.record()
            name = yield from feed.run(NAME_CHARACTERS)
            if not name or (yield from feed.peek()) != ">":
                feed.unsettled(opening + feed.recorded())
                continue
            feed.take(1)
            feed.recorded()
            calls.begin(name)
            calls.end((yield from _parameters(feed, calls.say, schemas.get(name, ANYTHING))))

    return FeedParser(read)


def _parameters(feed: Feed, say: Say, schema: Schema) -> Steps[bool]:
    """Take all parameters of a call, and say an object; cut short, it stays open, as an answer that is cut short is.
    False then.
    """
    begun = "{"
    while True:
        yield from feed.space()
        if not (yield from feed.sees(_PARAMETER)):
            yield from feed.sees_any(_OUTSIDE.texts)  # until it is more than half of one, or none
            if feed.half_of((_PARAMETER, *_OUTSIDE.texts)):
                feed.take(feed.rest)
            complete = bool((yield from feed.peek()))
            if complete:
                say("{}" if begun == "{" else "}")
            return complete
        feed.take(len(_PARAMETER))
        key: list[str] = []
        if not (yield from feed.until(_KEY_END, key.append)):
            return False
        name = "".join(key)
        say(begun + quoted(name) + ": ")
        begun = ", "
        end = yield from _value(feed, say, schema.property(name))
        if not end:
            return False
        if end != _PARAMETER_END:
            say("}")
            return True


def _value(feed: Feed, say: Say, schema: Schema) -> Steps[str]:
    """Take a value; return what ended it. The line break at either end is not part of it."""
    held: list[str] = []
    if schema.any_text:
        if (yield from feed.sees("\n")):
            feed.take(1)
        text = _Text(say, perhaps_null=schema.names_null)
        end = yield from feed.until(_VALUE_END, text.say, half=lambda _: None)
        if end:
            text.end()
        return end
    end = yield from feed.until(_VALUE_END, held.append)
    if end:
        whole = "".join(held).removeprefix("\n")
        say(from_text(whole.removesuffix("\n"), schema))
    return end


class _Text:
    """Says a text as a JSON string, as it comes, less a line break at its end; or as null, where it may be that."""

    def __init__(self, say: Say, *, perhaps_null: bool) -> None:
        self._say = say
        self._held = ""
        self._undecided = perhaps_null
        if not perhaps_null:
            say('"')

    def say(self, text: str) -> None:
        """More of the text."""
        text = self._held + text
        if self._undecided:
            if _NULL.startswith(text.removesuffix("\n")):
                self._held = text
                return
            self._undecided = False
            self._say('"')
        self._held = "\n" if text.endswith("\n") else ""
        self._say(inner(text[: len(text) - len(self._held)]))

    def end(self) -> None:
        """There is no more."""
        if not self._undecided:
            self._say('"')
        else:
            text = self._held.removesuffix("\n")
            self._say(_NULL if text == _NULL else quoted(text))


QWEN3_CODER = ToolParser(
    name="qwen3_coder",
    open=_open,
    claims=lambda template: _FUNCTION in template and any(call in template for call in _CALLS),
    markers=frozenset((*_CALLS, *_CALL_ENDS)),
)
