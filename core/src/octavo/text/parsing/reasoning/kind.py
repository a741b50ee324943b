"""What a way of writing reasoning is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from octavo.text.parsing.parts import Part


class ReasoningReader(Protocol):
    """An `octavo.text.parsing.parts.OutputParser` that finds content and reasoning."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""

    def push(self, text: str) -> list[Part]:
        """See `OutputParser.push`."""

    def finish(self) -> list[Part]:
        """See `OutputParser.finish`."""


@dataclass(frozen=True)
class ReasoningParser:
    """One way in which models write reasoning. What the ``octavo_models`` hook supplies, too.

    ``open`` makes the parser of one answer; its argument says whether the prompt ends in the midst of reasoning. It
    does where ``opened`` says of the prompt's end that the template has begun it, or ``unclosed`` says so of a message
    that the answer goes on with. ``claims`` says of a chat template's text whether its model thinks in this way.
    """

    name: str
    open: Callable[[bool], ReasoningReader]
    opened: Callable[[str], bool]
    unclosed: Callable[[str], bool]
    claims: Callable[[str], bool]
    begin: str = ""
    end: str = ""
    """The marks around reasoning, where there are any: reasoning may stand before an answer that is constrained."""
    markers: frozenset[str] = frozenset()
    """What the parser looks for, see `octavo.text.parsing.tools.ToolParser.markers`."""
