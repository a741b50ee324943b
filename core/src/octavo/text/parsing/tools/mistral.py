"""Mistral: ``[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]``, and since 2025 ``[TOOL_CALLS]name[ARGS]{…}``, once for
each call, perhaps with ``[CALL_ID]id`` in front of the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls, read_calls
from octavo.text.parsing.tools.grammars import CallGrammar, an_object
from octavo.text.parsing.tools.json_text import value
from octavo.text.parsing.tools.kind import NAME_CHARACTERS, ToolParser, short_id

_BEGIN, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MARKERS = Markers((_BEGIN,))


def _read(feed: Feed) -> Steps[None]:
    calls = Calls(feed, short_id)
    while marker := (yield from feed.words_until(_MARKERS)):
        opening = feed.gap + marker
        opening += yield from feed.space()
        if (yield from feed.peek()) in ("[", "{"):
            yield from read_calls(feed, calls, opening, _MARKERS.texts)
        else:
            yield from _named(feed, calls, opening)


def _named(feed: Feed, calls: Calls, opening: str) -> Steps[None]:
    feed.record()
    name = yield from feed.run(NAME_CHARACTERS)
    behind = yield from feed.space()
    for marker in (_ID, _ARGUMENTS):
        if (yield from feed.sees(marker)):
            behind += feed.take(len(marker))
            if marker == _ID:
                yield from feed.run(NAME_CHARACTERS)  # ids are our own: the model's may repeat
    behind += yield from feed.space()
    if feed.half_of((_ID, _ARGUMENTS)):
        behind += feed.take(feed.rest)
    if name and behind and not (yield from feed.peek()):
        feed.recorded()
        calls.cut(name)
        return
    if not name or (yield from feed.peek()) != "{":
        feed.unsettled(opening + feed.recorded())
        return
    feed.recorded()
    calls.begin(name)
    calls.end((yield from value(feed, calls.say, _MARKERS.texts)))


def _open(_tools: Sequence[Tool]) -> FeedParser:
    return FeedParser(_read)


MISTRAL = ToolParser(
    name="mistral",
    open=_open,
    claims=lambda template: _BEGIN in template,
    markers=frozenset({_BEGIN, _ID, _ARGUMENTS}),
    grammar=CallGrammar(an_object, [_BEGIN, "["], ["]"], [", "], trigger=_BEGIN),
    short_ids=True,
)
