"""One answer's text, sorted by the parsers of its model: reasoning is taken out, the rest is content and tool calls.

Reasoning that is never closed: many templates begin it for the model, and a model that does not reason answers at once
and never writes the closing mark. All of its text would then be reasoning, and the answer empty. So an answer that the
model itself has ended in the midst of reasoning, with nothing said before, is its reasoning: that stays what it was
streamed as, and comes once more, at the end, as the answer (or as the tool calls that are in it). One that was cut by
its length has not got to its answer: it stays reasoning alone, as clients of reasoning models expect.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from octavo.text.parsing.parts import ContentText, OutputParser, Part, PlainParser, ReasoningText, Span, Unsettled
from octavo.text.parsing.reasoning.kind import ReasoningReader
from octavo.text.parsing.scan import MarkerFilter, Markers


class _Origins:
    """Where the characters of a text that was put together come from."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._spans: list[Span] = []
        self._length = 0

    def add(self, text: str, spans: Sequence[Span]) -> None:
        """The text goes on with this. What has no spans, or not as many characters, comes from nowhere."""
        at = self._length
        self._length += len(text)
        if sum(end - begin for begin, end in spans) != len(text):
            return
        for begin, end in spans:
            self._begins.append(at)
            self._spans.append((begin, end))
            at += end - begin

    def of(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Where these stretches of the text come from."""
        found: list[Span] = []
        for begin, end in spans:
            at = max(bisect_right(self._begins, begin) - 1, 0)
            while at < len(self._begins) and self._begins[at] < end:
                origin, stop = self._spans[at]
                first = max(begin, self._begins[at])
                last = min(end, self._begins[at] + stop - origin)
                if first < last:
                    found.append((origin + first - self._begins[at], origin + last - self._begins[at]))
                at += 1
        return tuple(found)


class AnswerParser:
    """An `OutputParser` made of two. ``hidden`` are texts that neither words nor reasoning show."""

    def __init__(
        self,
        reasoning: ReasoningReader | None = None,
        calls: OutputParser | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self._reasoning = reasoning
        self._calls = calls or PlainParser()
        self._answer, self._words = _Origins(), _Origins()
        """Of what the parser of calls is given, and of what the filter over words is given."""
        self._unanswered: list[ReasoningText] | None = []
        """The reasoning so far, while there is nothing else."""
        markers = Markers(hidden)
        self._filters: dict[type[ContentText] | type[ReasoningText], MarkerFilter] = {}
        if markers.texts:
            self._filters = {ContentText: MarkerFilter(markers), ReasoningText: MarkerFilter(markers)}

    @property
    def thinking(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        return self._reasoning is not None and self._reasoning.thinking

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""
        if self._reasoning is None:
            return self._filtered(self._calls.push(text))
        return self._filtered(self._sorted(self._reasoning.push(text)))

    def finish(self, *, ended: bool = False) -> list[Part]:
        """See `OutputParser.finish`. ``ended``: by the model, or by a stop string, and not by its length."""
        parts = [] if self._reasoning is None else self._sorted(self._reasoning.finish())
        if ended and self.thinking and self._unanswered:
            for part in self._unanswered:
                self._answer.add(part.text, part.spans)
                parts += self._located(self._calls.push(part.text))
        return self._filtered(parts + self._located(self._calls.finish())) + self._released()

    def _sorted(self, parts: Iterable[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            if isinstance(part, ContentText):
                self._unanswered = None
                self._answer.add(part.text, part.spans)
                found += self._located(self._calls.push(part.text))
            else:
                if isinstance(part, ReasoningText) and self._unanswered is not None:
                    self._unanswered.append(part)
                found.append(part)
        return found

    def _located(self, parts: list[Part]) -> list[Part]:
        """Parts of the words that reasoning has left over: where they stand in the answer."""
        if self._reasoning is None:
            return parts
        return [
            replace(part, spans=self._answer.of(part.spans)) if isinstance(part, ContentText) else part
            for part in parts
        ]

    def _filtered(self, parts: list[Part]) -> list[Part]:
        if not self._filters:
            return parts
        shown: list[Part] = []
        for part in parts:
            if isinstance(part, Unsettled):  # comes at the end alone, so the filter need not wait for more
                shown += [*self._released(), *self._unsettled(part)]
            elif isinstance(part, (ContentText, ReasoningText)):
                shown += self._shown(part)
            else:
                shown += [*self._released(), part]
        return shown

    def _unsettled(self, part: Unsettled) -> list[Part]:
        self._words.add(part.text, part.spans)
        (text, spans), (rest, more) = self._filters[ContentText].push(part.text), self._filters[ContentText].finish()
        return [Unsettled(text + rest, self._words.of((*spans, *more)))] if text + rest else []

    def _shown(self, part: ContentText | ReasoningText) -> list[Part]:
        kind = type(part)
        before = self._released(but=kind)
        if isinstance(part, ContentText):
            self._words.add(part.text, part.spans)
        return before + self._spoken(kind, *self._filters[kind].push(part.text))

    def _released(self, but: type[ContentText] | type[ReasoningText] | None = None) -> list[Part]:
        """What the filters hold back, now that something else has come."""
        found: list[Part] = []
        for kind, held in self._filters.items():
            found += [] if kind is but else self._spoken(kind, *held.finish())
        return found

    def _spoken(self, kind: type[ContentText] | type[ReasoningText], text: str, spans: Iterable[Span]) -> list[Part]:
        if not text:
            return []
        return [ContentText(text, self._words.of(spans)) if kind is ContentText else ReasoningText(text)]
