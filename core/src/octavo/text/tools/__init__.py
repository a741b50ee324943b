"""How models write tool calls: a parser for each way, and which model has which."""

from octavo.text.tools.kind import ToolParser
from octavo.text.tools.registry import tool_parser_for, tool_parser_named

__all__ = ["ToolParser", "tool_parser_for", "tool_parser_named"]
