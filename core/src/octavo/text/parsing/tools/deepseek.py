"""DeepSeek V3 and R1: ``<｜tool▁call▁begin｜>function<｜tool▁sep｜>name``, a fence of JSON, ``<｜tool▁call▁end｜>``.
V3.1 writes ``<｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}<｜tool▁call▁end｜>``. All calls stand between
``<｜tool▁calls▁begin｜>`` and ``<｜tool▁calls▁end｜>``.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.scan import Markers
from octavo.text.parsing.tools.calls import Calls
from octavo.text.parsing.tools.grammars import CallGrammar
from octavo.text.parsing.tools.json_text import value
from octavo.text.parsing.tools.kind import NAME_CHARACTERS, ToolParser

_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_ONE, _ONE_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = "```"
_KIND = "function"
"""What V3 writes in front of the separator; V3.1 writes the name there."""
_OUTSIDE = Markers((_ALL, _ALL_END, _ONE, _ONE_END))
_HEAD = Markers((*_OUTSIDE.texts, _SEPARATOR))


def _read(feed: Feed) -> Steps[None]:
    calls = Calls(feed)
    while marker := (yield from feed.words_until(_OUTSIDE)):
        opening = feed.gap + marker
        if marker in (_ALL_END, _ONE_END):
            feed.words("" if calls.count else opening)
            continue
        if marker == _ALL:
            opening += yield from feed.space()
            if not (yield from feed.sees(_ONE)):
                opening += feed.take(feed.rest) if feed.half_of((_ONE,)) else ""
                feed.unsettled(opening)
                continue
            opening += feed.take(len(_ONE))
        yield from _one(feed, calls, opening)


def _one(feed: Feed, calls: Calls, opening: str) -> Steps[None]:
    feed.record()
    head: list[str] = []
    name = ""
    named = False  # nothing can follow that is part of the name
    if (yield from feed.until(_HEAD, head.append)) == _SEPARATOR:
        yield from feed.space()
        name = "".join(head).strip()
        named = name != _KIND
        if (character := (yield from feed.peek())) and character != "{":
            name = yield from feed.run(NAME_CHARACTERS)
            named = bool((yield from feed.space())) or feed.rest > 0
            yield from _fence(feed)
    if name and named and not (yield from feed.peek()):
        feed.recorded()
        calls.cut(name)
        return
    if not name or (yield from feed.peek()) != "{":
        feed.unsettled(opening + feed.recorded())
        return
    feed.recorded()
    calls.begin(name)
    calls.end((yield from value(feed, calls.say, _OUTSIDE.texts)))
    yield from feed.space()
    yield from _fence(feed)


def _fence(feed: Feed) -> Steps[None]:
    """Take a fence, or what there is of it at the end of the answer."""
    if (yield from feed.sees(_FENCE)):
        feed.take(len(_FENCE))
        if (yield from feed.sees("json")):
            feed.take(len("json"))
        elif feed.half_of(("json",)):
            feed.take(feed.rest)
        yield from feed.space()
    elif feed.half_of((_FENCE,)):
        feed.take(feed.rest)


def _open(_tools: Sequence[Tool]) -> FeedParser:
    return FeedParser(_read)


def _in_fence(name: str) -> tuple[list[str], list[str]]:
    return [_ONE, _KIND, _SEPARATOR, f"{name}\n{_FENCE}json\n"], [f"\n{_FENCE}", _ONE_END]


def _plain(name: str) -> tuple[list[str], list[str]]:
    return [_ONE, name, _SEPARATOR], [_ONE_END]


def _claims(template: str) -> bool:
    return _ALL in template


DEEPSEEK_V3 = ToolParser(
    name="deepseek_v3",
    open=_open,
    claims=lambda template: _claims(template) and f"{_FENCE}json" in template,
    markers=frozenset(_HEAD.texts),
    grammar=CallGrammar(_in_fence, [_ALL], [_ALL_END], ["\n"], trigger=_ALL),
    calls_as_text=True,
)
DEEPSEEK_V31 = ToolParser(
    name="deepseek_v31",
    open=_open,
    claims=_claims,
    markers=frozenset(_HEAD.texts),
    grammar=CallGrammar(_plain, [_ALL], [_ALL_END], trigger=_ALL),
    calls_as_text=True,
)
