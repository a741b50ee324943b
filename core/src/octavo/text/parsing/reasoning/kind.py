"""What a way of writing thoughts is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octavo.text.parsing.parts import Part


class ThoughtParser(Protocol):
    """An `octavo.text.parsing.parts.OutputParser` that finds words and thoughts."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thoughts, as far as is known."""

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""

    def finish(self) -> list[Part]:
        """See `OutputParser.finish`."""


@dataclass(frozen=True)
class ReasoningParser:
    """One way in which models write thoughts. What the ``octavo_models`` hook supplies, too.

    ``open`` makes the parser of one answer; its argument says whether the prompt ends in the midst of thoughts. It does
    where ``opened`` says of the prompt's end that the template has begun them, or ``unclosed`` says it of a message
    that the answer goes on with. ``claims`` says of a chat template's text whether its model thinks in this way.
    """

    name: str
    open: Callable[[bool], ThoughtParser]
    opened: Callable[[str], bool]
    unclosed: Callable[[str], bool]
    claims: Callable[[str], bool]
    begin: str = ""
    end: str = ""
    """The marks around thoughts, where there are such: an answer that is held to a form may have thoughts before it."""
    markers: frozenset[str] = frozenset()
    """What the parser looks for, see `octavo.text.parsing.tools.ToolParser.markers`."""
