"""The parsers of the served model, chosen once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from octavo.errors import ConfigError
from octavo.platform.discovery import discover
from octavo.sampling import ReasoningMarks
from octavo.server.generation.backend import TextTokenizer
from octavo.server.transport.settings import ServerSettings
from octavo.text.parsing.answers import AnswerParser
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.reasoning import ReasoningParser, reasoning_parser_for, reasoning_parser_named
from octavo.text.parsing.tools import GENERIC, ToolParser, tool_parser_for, tool_parser_named

AUTO = "auto"

_TAIL = 16
"""Tokens at the end of a prompt that are looked at for the beginning of reasoning."""


def check_names(tools: str, reasoning: str) -> None:
    """ConfigError for a name that no parser has, before a model is loaded."""
    try:
        _named(tools, reasoning, ())
    except ConfigError:  # a plugin's?
        _named(tools, reasoning, discover().families)


def _place_for_tools(template: str | None) -> bool:
    return "tools" in (template or "")


def _named(tools: str, reasoning: str, plugged: Sequence[object]) -> None:
    if tools != AUTO:
        tool_parser_named(tools, plugged)
    if reasoning != AUTO:
        reasoning_parser_named(reasoning, plugged)


@dataclass(frozen=True)
class Parsers:
    """How the model writes tool calls and reasoning; ``None``: not that we know."""

    tokenizer: TextTokenizer
    tools: ToolParser | None
    reasoning: ReasoningParser | None

    @classmethod
    def chosen(cls, tokenizer: TextTokenizer, settings: ServerSettings) -> Parsers:
        """By the settings, or by the chat template. Raises ConfigError for a name that nobody knows."""
        template = tokenizer.chat_template_for(tools=True)
        if settings.tool_parser == AUTO:
            tools = tool_parser_for(template, settings.plugged)
            if tools is not None and not _place_for_tools(template):
                tools = GENERIC  # the prompt has to explain it, whatever the model has learnt
        else:
            tools = tool_parser_named(settings.tool_parser, settings.plugged)
        if settings.reasoning_parser == AUTO:
            reasoning = reasoning_parser_for(template, settings.plugged)
        else:
            reasoning = reasoning_parser_named(settings.reasoning_parser, settings.plugged)
        return cls(tokenizer, tools, reasoning)

    @cached_property
    def special(self) -> Mapping[str, int]:
        """The markers that are special tokens of the model, with their ids."""
        wanted = {marker for kind in (self.tools, self.reasoning) if kind is not None for marker in kind.markers}
        found = {}
        for token in self.tokenizer.special_ids if wanted else ():
            text = self.tokenizer.token_bytes(token).decode(errors="replace")
            if text in wanted:
                found[text] = token
        return found

    @property
    def has_place_for_tools(self) -> bool:
        """Whether the chat template shows its model the tools of a request."""
        return _place_for_tools(self.tokenizer.chat_template_for(tools=True))

    def literal(self, text: str) -> str:
        """A text in a grammar (Lark): what spells markers that are special tokens is those tokens."""
        names = sorted(self.special, key=len, reverse=True)
        pieces = re.split("(" + "|".join(map(re.escape, names)) + ")", text) if names else [text]
        return " ".join(
            f"<[{self.special[piece]}]>" if piece in self.special else json.dumps(piece, ensure_ascii=False)
            for piece in pieces
            if piece
        )

    def visible(self, kind: ToolParser | None) -> frozenset[int]:
        """The special tokens whose text the parser of an answer has to see; ``kind`` finds its calls, if it may have
        any.
        """
        return frozenset(self.special[marker] for marker in self._markers(kind))

    def open(
        self, kind: ToolParser | None, tools: Sequence[Tool], *, inside: bool, skip_special_tokens: bool
    ) -> AnswerParser:
        """The parser of one answer. ``inside``: the prompt ends in the midst of reasoning."""
        return AnswerParser(
            None if self.reasoning is None else self.reasoning.open(inside),
            None if kind is None else kind.open(tools),
            hidden=self._markers(kind) if skip_special_tokens else (),
        )

    def inside(self, prompt: Sequence[int], continued: str | None) -> bool:
        """Whether a prompt ends in the midst of reasoning. ``continued`` is the message to be continued."""
        if self.reasoning is None:
            return False
        if continued is not None:
            return self.reasoning.unclosed(continued)
        return self.reasoning.opened(self.tokenizer.decode(prompt[-_TAIL:], skip_special_tokens=False))

    def marks(self, *, inside: bool) -> ReasoningMarks | None:
        """Where reasoning is in an answer; ``None`` where it is not marked. ``inside`` as for `open`."""
        kind = self.reasoning
        return ReasoningMarks(kind.begin, kind.end, inside) if kind is not None and kind.begin and kind.end else None

    def _markers(self, calls: ToolParser | None) -> Iterable[str]:
        kinds = (calls, self.reasoning)
        return [marker for kind in kinds if kind is not None for marker in kind.markers if marker in self.special]
