"""Any model: a JSON object ``{"name": …, "arguments": {…}}``, or a list of them, that the answer begins with or that
stands in a fence. Only an object that names a tool of the request is a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls, read_calls
from octavo.text.parsing.tools.grammars import CallGrammar, an_object
from octavo.text.parsing.tools.kind import ToolParser

_FENCE = "```"
_MARKERS = Markers((_FENCE,))
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def _open(tools: Sequence[Tool]) -> FeedParser:
    names = frozenset(tool.name for tool in tools)

    def read(feed: Feed) -> Steps[None]:
        calls = Calls(feed)
        opening = yield from feed.space()
        yield from read_calls(feed, calls, opening, names=names, marked=False)
        while marker := (yield from feed.trimmed_until(_MARKERS, feed.words)):  # half a fence is text
            opening = feed.gap + marker
            opening += yield from feed.run(_LETTERS)
            found = yield from read_calls(feed, calls, opening, names=names, marked=False)
            if found and (yield from feed.sees(_FENCE)):
                feed.take(len(_FENCE))

    return FeedParser(read)


GENERIC = ToolParser(
    name="json",
    open=_open,
    claims=lambda template: True,
    grammar=CallGrammar(an_object, between=["\n"]),
    in_prompt=True,
)
