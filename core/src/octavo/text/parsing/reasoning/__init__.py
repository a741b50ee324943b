"""How models write their reasoning: a parser for each way, and which model has which."""

from octavo.text.parsing.reasoning.kind import ReasoningParser, ReasoningReader
from octavo.text.parsing.reasoning.registry import reasoning_parser_for, reasoning_parser_named

__all__ = ["ReasoningParser", "ReasoningReader", "reasoning_parser_for", "reasoning_parser_named"]
