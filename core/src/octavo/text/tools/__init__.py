"""How models write tool calls: a parser for each way, and which model has which."""

from octavo.text.tools.generic import GENERIC
from octavo.text.tools.kind import ToolParser
from octavo.text.tools.registry import tool_parser_for, tool_parser_named
from octavo.text.tools.teaching import taught

__all__ = ["GENERIC", "ToolParser", "taught", "tool_parser_for", "tool_parser_named"]
