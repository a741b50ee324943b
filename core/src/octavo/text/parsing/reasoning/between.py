"""ReasoningText between two marks, as nearly all models write them: ``<think>…</think>`` and its kin.

The marks are nobody's text, nor is the white space next to them. A closing mark without an opening one is words: what
came before it has been shown already. So is a second opening mark inside the reasoning.
"""

from __future__ import annotations

from octavo.text.parsing.feed import Feed, FeedParser, Steps
from octavo.text.parsing.parts import Part, ReasoningText
from octavo.text.parsing.reasoning.kind import ReasoningParser
from octavo.text.parsing.scan import Markers


class BetweenMarks:
    """A `octavo.text.parsing.reasoning.ReasoningReader` for reasoning between ``begin`` and ``end``."""

    def __init__(self, begin: str, end: str, *, inside: bool) -> None:
        self.thinking = inside
        self._begin = Markers((begin,))
        self._end = Markers((end,))
        self._parser = FeedParser(self._read)

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""
        return self._parser.push(text)

    def finish(self) -> list[Part]:
        """See `OutputParser.finish`."""
        return self._parser.finish()

    def _read(self, feed: Feed) -> Steps[None]:
        if not self.thinking and not (yield from self._opens(feed)):
            return
        while True:
            yield from feed.space()
            if not (yield from feed.trimmed_until(self._end, lambda text: feed.emit(ReasoningText(text)))):
                return
            self.thinking = False
            yield from feed.space()
            if not (yield from self._opens(feed)):
                return

    def _opens(self, feed: Feed) -> Steps[bool]:
        """Whether reasoning begins; true after words, too, up to the mark."""
        if not (yield from feed.trimmed_until(self._begin, feed.words)):
            return False
        self.thinking = True
        return True


def between(name: str, begin: str, end: str, token: str = "") -> ReasoningParser:
    """The way of writing reasoning between two marks. ``token`` is the part of ``begin`` that may be a special token,
    where it is not all of it.
    """
    return ReasoningParser(
        name=name,
        open=lambda inside: BetweenMarks(begin, end, inside=inside),
        opened=lambda prompt: prompt.rstrip().endswith(begin),
        unclosed=lambda message: message.rfind(begin) > message.rfind(end),
        claims=lambda template: begin in template or end in template,
        begin=begin,
        end=end,
        markers=frozenset({token or begin, end}),
    )


THINK = between("think", "<think>", "</think>")
MISTRAL = between("mistral", "[THINK]", "[/THINK]")
SEED = between("seed", "<seed:think>", "</seed:think>")
KIMI = between("kimi", "◁think▷", "◁/think▷")
GEMMA4 = between("gemma4", "<|channel>thought", "<channel|>", token="<|channel>")
