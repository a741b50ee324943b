"""Which way of writing reasoning a model has."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.text.parsing.kinds import claimed, named
from octavo.text.parsing.reasoning.between import GEMMA4, KIMI, MISTRAL, SEED, THINK
from octavo.text.parsing.reasoning.kind import ReasoningParser

BUILT_IN: tuple[ReasoningParser, ...] = (THINK, MISTRAL, SEED, KIMI, GEMMA4)
"""In the order in which they are asked whether a chat template is theirs."""


def reasoning_parser_for(template: str | None, plugged: Iterable[object] = ()) -> ReasoningParser | None:
    """The parser that claims a chat template. ``plugged`` is what the ``octavo_models`` hook returned, of any kind."""
    return claimed(_all(plugged), template)


def reasoning_parser_named(name: str, plugged: Iterable[object] = ()) -> ReasoningParser | None:
    """The parser of that name; ``None`` for "none". Raises ConfigError with the known names."""
    return named(_all(plugged), name, "reasoning parser")


def _all(plugged: Iterable[object]) -> list[ReasoningParser]:
    return [*(kind for kind in plugged if isinstance(kind, ReasoningParser)), *BUILT_IN]
