"""Llama 3: an answer that is ``{"name": …, "parameters": {…}}``, or several with ";" between, perhaps behind
``<|python_tag|>``. With nothing to mark it, only an object that names a tool of the request is a call.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls, read_calls
from octavo.text.parsing.tools.grammars import CallGrammar, an_object
from octavo.text.parsing.tools.kind import ToolParser

_TAG = "<|python_tag|>"
_MARKERS = Markers((_TAG,))


def _open(tools: Sequence[Tool]) -> FeedParser:
    names = frozenset(tool.name for tool in tools)

    def read(feed: Feed) -> Steps[None]:
        calls = Calls(feed)
        opening = yield from feed.space()
        if (yield from feed.sees(_TAG)):
            opening += feed.take(len(_TAG))
        while True:
            yield from read_calls(feed, calls, opening, (_TAG,), names, marked=_TAG in opening)
            marker = yield from feed.words_until(_MARKERS)
            if not marker:
                return
            opening = feed.gap + marker

    return FeedParser(read)


LLAMA3_JSON = ToolParser(
    name="llama3_json",
    open=_open,
    claims=lambda template: _TAG in template or ("<|start_header_id|>" in template and '"parameters": ' in template),
    markers=frozenset({_TAG}),
    grammar=CallGrammar(lambda name: an_object(name, "parameters"), between=["; "]),
)
