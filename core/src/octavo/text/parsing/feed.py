"""Parsers that read as if all of the text were there.

A parser is a generator over a `Feed`. It yields where it needs to see more text, and goes on when more is there or the
text has ended; what it emits meanwhile leaves at once. What it decides may depend on the text alone, never on where a
push ended: so the same text, cut in any way, has the same parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

from octavo.text.parsing.parts import (
    CallArguments,
    CallBegins,
    CallCut,
    ContentText,
    Part,
    ReasoningText,
    Span,
    Unsettled,
)
from octavo.text.parsing.scan import Markers

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Yields to wait for text, returns a T."""

_Open: TypeAlias = "type[ContentText] | type[ReasoningText] | int"
"""What is being emitted; a number: the arguments of that call."""

SPACE = " \t\r\n"


class Feed:
    """The text of one answer, as far as it has come, and the parts found in it."""

    def __init__(self) -> None:
        self.ended = False
        self.gap = ""
        """White space in front of the marker that `trimmed_until` found last."""
        self._text = ""
        self._at = 0
        self._parts: list[Part] = []
        self._open: _Open = ContentText
        self._pieces: list[str] = []
        self._spans: list[Span] = []
        """Where those of the pieces that are text stand in the answer."""
        self._trail: list[str] = []
        """What was taken since the words that were emitted last."""
        self._taken = 0
        self._record: list[str] | None = None

    def add(self, text: str) -> None:
        """More text has come."""
        self._text = self._text[self._at :] + text
        self._at = 0

    def emit(self, part: Part) -> None:
        """A part of the answer; pieces of one thing are joined when the parts are taken."""
        if isinstance(part, CallArguments):
            self._go_on(part.index, part.json)
        elif isinstance(part, (CallBegins, CallCut)):
            self._settle()
            self._parts.append(part)
        else:
            self._go_on(type(part), part.text)

    def words(self, text: str) -> None:
        """Emit text for the reader, if there is any."""
        if text:
            self._go_on(ContentText, text)

    def unsettled(self, text: str) -> None:
        """Emit text that the end of the answer left open, see `Unsettled`; before the end it is text for the reader."""
        if text:
            self._go_on(Unsettled if self.cut else ContentText, text)

    def take_parts(self) -> list[Part]:
        """What was emitted since the last call."""
        self._settle()
        parts, self._parts = self._parts, []
        return parts

    def _go_on(self, what: _Open, text: str) -> None:
        if what != self._open:
            self._settle()
            self._open = what
        self._pieces.append(text)
        if not isinstance(what, int):
            self._locate(text)

    def _locate(self, text: str) -> None:
        """Find words in what was taken: they end where it ends, or before white space that is held back."""
        trail = "".join(self._trail)
        end = len(trail)
        while not trail.endswith(text, 0, end):
            if not end or trail[end - 1] not in SPACE:
                self._trail = [trail]
                return
            end -= 1
        begin = self._taken - len(trail) + end - len(text)
        self._spans.append((begin, begin + len(text)))
        self._trail = [trail[end:]]

    def _settle(self) -> None:
        """Make a part of the pieces."""
        text, self._pieces = "".join(self._pieces), []
        if not text:
            return
        if isinstance(self._open, int):
            self._parts.append(CallArguments(self._open, text))
        else:
            self._parts.append(self._open(text, tuple(self._spans)))
            self._spans = []

    # The text that is there.

    @property
    def cut(self) -> bool:
        """Whether the answer has ended, and all of it is taken."""
        return self.ended and not self.rest

    @property
    def rest(self) -> int:
        """Characters that are there and not yet taken."""
        return len(self._text) - self._at

    def take(self, count: int) -> str:
        """The next characters, which are there."""
        taken = self._text[self._at : self._at + count]
        self._at += count
        if taken:
            self._trail.append(taken)
            self._taken += len(taken)
        if self._record is not None and taken:
            self._record.append(taken)
        return taken

    def take_while(self, pattern: re.Pattern[str]) -> str:
        """What the pattern matches of the characters that are there; may be nothing."""
        found = pattern.match(self._text, self._at)
        return self.take(found.end() - self._at) if found else ""

    def record(self) -> None:
        """From here on, keep what is taken, for `recorded`."""
        self._record = []

    def recorded(self) -> str:
        """What was taken since `record`; nothing is kept from here on."""
        kept, self._record = self._record, None
        return "".join(kept or ())

    # Steps: `yield from` these.

    def peek(self) -> Steps[str]:
        """The next character, which stays; "" at the end."""
        while self._at == len(self._text):
            if self.ended:
                return ""
            yield
        return self._text[self._at]

    def sees(self, literal: str) -> Steps[bool]:
        """Whether this comes next; it stays."""
        while self.rest < len(literal):
            if self.ended or not literal.startswith(self._text[self._at :]):
                return False
            yield
        return self._text.startswith(literal, self._at)

    def half_of(self, literals: tuple[str, ...]) -> bool:
        """Whether the text has ended with the beginning of one of these, which stays. Ask `sees` first."""
        rest = self._text[self._at :]
        return self.ended and bool(rest) and any(literal.startswith(rest) for literal in literals)

    def sees_any(self, literals: tuple[str, ...]) -> Steps[str]:
        """The first of these that comes next, which stays, or ""."""
        for literal in literals:
            if (yield from self.sees(literal)):
                return literal
        return ""

    def space(self) -> Steps[str]:
        """Take white space."""
        return (yield from self.run(SPACE))

    def run(self, characters: str, most: int | None = None) -> Steps[str]:
        """Take characters that are among these, up to a number of them."""
        taken: list[str] = []
        count = 0
        while most is None or count < most:
            character = yield from self.peek()
            if not character or character not in characters:
                break
            end = self._at
            limit = len(self._text) if most is None else min(len(self._text), self._at + most - count)
            while end < limit and self._text[end] in characters:
                end += 1
            count += end - self._at
            taken.append(self.take(end - self._at))
        return "".join(taken)

    def until(
        self, markers: Markers, say: Callable[[str], None], half: Callable[[str], None] | None = None
    ) -> Steps[str]:
        """Take everything before the first marker and give it to ``say``, as it comes; then take the marker, and return
        it, or "" if the end came first. ``half`` is given the beginning of a marker that the text ends with; by default
        ``say`` is.
        """
        while True:
            at, marker = markers.find(self._text, self._at)
            if at > self._at:
                say(self.take(at - self._at))
            if marker:
                return self.take(len(marker))
            if self.ended:
                if self.rest:
                    (half or say)(self.take(self.rest))
                return ""
            yield

    def trimmed_until(
        self, markers: Markers, say: Callable[[str], None], half: Callable[[str], None] | None = None
    ) -> Steps[str]:
        """As `until`, but white space is held back until something follows, and not said before a marker: it is `gap`
        then. ``half`` is given the white space before half a marker, too.
        """
        gap = _Gap(say)
        halves: list[str] = []
        marker = yield from self.until(markers, gap.say, halves.append)
        if halves:
            (half or say)(gap.space + halves[0])
        elif not marker:
            gap.flush()
        self.gap = gap.space
        return marker

    def words_until(self, markers: Markers) -> Steps[str]:
        """As `trimmed_until`, what comes before the marker being words, and half a marker at the end unsettled."""
        return (yield from self.trimmed_until(markers, self.words, self.unsettled))


class _Gap:
    """Says text less the white space at its end, which waits for what follows."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.space = ""
        self._say = say

    def say(self, text: str) -> None:
        kept = text.rstrip(SPACE)
        if kept:
            self._say(self.space + kept)
            self.space = text[len(kept) :]
        else:
            self.space += text

    def flush(self) -> None:
        if self.space:
            self._say(self.space)
        self.space = ""


class FeedParser:
    """An `octavo.text.parsing.parts.OutputParser` that runs steps over a feed."""

    def __init__(self, steps: Callable[[Feed], Steps[None]]) -> None:
        self._feed = Feed()
        self._steps: Steps[None] | None = steps(self._feed)
        self._run()

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""
        self._feed.add(text)
        return self._run()

    def finish(self) -> list[Part]:
        """See `OutputParser.finish`."""
        self._feed.ended = True
        return self._run()

    def _run(self) -> list[Part]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        if self._steps is None:  # nothing more is looked for
            self._feed.words(self._feed.take(self._feed.rest))
        return self._feed.take_parts()
