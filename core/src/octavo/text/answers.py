"""One answer's text, sorted by the parsers of its model: thoughts are taken out, the rest is words and tool calls.

Reasoning that is never closed: many templates begin it for the model, and a model that does not reason answers at once
and never writes the closing mark. All of its text would then be reasoning, and the answer empty. So an answer that the
model itself has ended in the midst of reasoning, with nothing said before, is its reasoning: that stays what it was
streamed as, and comes once more, at the end, as the answer (or as the tool calls that are in it). One that was cut by
its length has not got to its answer: it stays reasoning alone, as clients of reasoning models expect.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.text.parts import OutputParser, Part, PlainParser, Thoughts, Words
from octavo.text.reasoning.kind import ThoughtParser
from octavo.text.scan import Markers, Veil


class AnswerParser:
    """An `OutputParser` made of two. ``hidden`` are texts that neither words nor thoughts show."""

    def __init__(
        self,
        thoughts: ThoughtParser | None = None,
        calls: OutputParser | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self._thoughts = thoughts
        self._calls = calls or PlainParser()
        self._unanswered: list[str] | None = []
        """The reasoning so far, while there is nothing else."""
        markers = Markers(hidden)
        self._veils: dict[type[Words] | type[Thoughts], Veil] = {}
        if markers.texts:
            self._veils = {Words: Veil(markers), Thoughts: Veil(markers)}

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thoughts, as far as is known."""
        return self._thoughts is not None and self._thoughts.thinking

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""
        if self._thoughts is None:
            return self._veiled(self._calls.push(text))
        return self._veiled(self._sorted(self._thoughts.push(text)))

    def finish(self, *, ended: bool = False) -> list[Part]:
        """See `OutputParser.finish`. ``ended``: by the model, or by a stop string, and not by its length."""
        parts = [] if self._thoughts is None else self._sorted(self._thoughts.finish())
        if ended and self.thinking and self._unanswered:
            parts += self._calls.push("".join(self._unanswered))
        return self._veiled(parts + self._calls.finish()) + self._unveiled()

    def _sorted(self, parts: Iterable[Part]) -> list[Part]:
        found: list[Part] = []
        for part in parts:
            if isinstance(part, Words):
                self._unanswered = None
                found += self._calls.push(part.text)
            else:
                if isinstance(part, Thoughts) and self._unanswered is not None:
                    self._unanswered.append(part.text)
                found.append(part)
        return found

    def _veiled(self, parts: list[Part]) -> list[Part]:
        if not self._veils:
            return parts
        shown: list[Part] = []
        for part in parts:
            if isinstance(part, (Words, Thoughts)):
                shown += self._shown(Words if isinstance(part, Words) else Thoughts, part.text)
            else:
                shown += [*self._unveiled(), part]
        return shown

    def _shown(self, kind: type[Words] | type[Thoughts], text: str) -> list[Part]:
        return self._unveiled(but=kind) + _spoken(kind, self._veils[kind].push(text))

    def _unveiled(self, but: type[Words] | type[Thoughts] | None = None) -> list[Part]:
        """What the veils hold back, now that something else has come."""
        found: list[Part] = []
        for kind, veil in self._veils.items():
            found += [] if kind is but else _spoken(kind, veil.finish())
        return found


def _spoken(kind: type[Words] | type[Thoughts], text: str) -> list[Part]:
    return [kind(text)] if text else []
