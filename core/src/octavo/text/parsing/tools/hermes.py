"""Hermes, Qwen and many others: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, once for each call."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls, read_calls
from octavo.text.parsing.tools.grammars import CallGrammar, an_object
from octavo.text.parsing.tools.kind import ToolParser

_BEGIN, _END = "<tool_call>", "</tool_call>"
_MARKERS = Markers((_BEGIN, _END))


def _read(feed: Feed) -> Steps[None]:
    calls = Calls(feed)
    while marker := (yield from feed.words_until(_MARKERS)):
        if marker == _END:
            if not calls.count:  # it ends nothing
                feed.words(feed.gap + marker)
            continue
        if (yield from read_calls(feed, calls, feed.gap + marker, _MARKERS.texts)) and (yield from feed.sees(_END)):
            feed.take(len(_END))


def _open(_tools: Sequence[Tool]) -> FeedParser:
    return FeedParser(_read)


def _tagged(name: str) -> tuple[list[str], list[str]]:
    head, tail = an_object(name)
    return [_BEGIN, "\n", *head], [*tail, "\n", _END]


HERMES = ToolParser(
    name="hermes",
    open=_open,
    claims=lambda template: _BEGIN in template and "<function=" not in template,
    markers=frozenset(_MARKERS.texts),
    grammar=CallGrammar(_tagged, between=["\n"], trigger=_BEGIN),
)
