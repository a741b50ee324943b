"""Which way of writing tool calls a model has."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.text.parsing.kinds import claimed, named
from octavo.text.parsing.tools.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from octavo.text.parsing.tools.gemma import GEMMA
from octavo.text.parsing.tools.generic import GENERIC
from octavo.text.parsing.tools.hermes import HERMES
from octavo.text.parsing.tools.kind import ToolParser
from octavo.text.parsing.tools.llama import LLAMA3_JSON
from octavo.text.parsing.tools.mistral import MISTRAL
from octavo.text.parsing.tools.pythonic import PYTHONIC
from octavo.text.parsing.tools.qwen_coder import QWEN3_CODER

BUILT_IN: tuple[ToolParser, ...] = (
    QWEN3_CODER,
    HERMES,
    MISTRAL,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    GEMMA,
    PYTHONIC,
    LLAMA3_JSON,
    GENERIC,
)
"""In the order in which they are asked whether a chat template is theirs."""


def tool_parser_for(template: str | None, plugged: Iterable[object] = ()) -> ToolParser | None:
    """The parser that claims a chat template. ``plugged`` is what the ``octavo_models`` hook returned, of any kind."""
    return claimed(_all(plugged), template)


def tool_parser_named(name: str, plugged: Iterable[object] = ()) -> ToolParser | None:
    """The parser of that name; ``None`` for "none". Raises ConfigError with the known names."""
    return named(_all(plugged), name, "tool parser")


def _all(plugged: Iterable[object]) -> list[ToolParser]:
    return [*(kind for kind in plugged if isinstance(kind, ToolParser)), *BUILT_IN]
