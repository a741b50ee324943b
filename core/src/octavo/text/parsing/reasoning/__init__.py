"""How models write their thoughts: a parser for each way, and which model has which."""

from octavo.text.parsing.reasoning.kind import ReasoningParser, ThoughtParser
from octavo.text.parsing.reasoning.registry import reasoning_parser_for, reasoning_parser_named

__all__ = ["ReasoningParser", "ThoughtParser", "reasoning_parser_for", "reasoning_parser_named"]
