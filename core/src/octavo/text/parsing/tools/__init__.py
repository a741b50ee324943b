"""How models write tool calls: a parser for each way, and which model has which."""

from octavo.text.parsing.tools.generic import GENERIC
from octavo.text.parsing.tools.in_prompt import tools_in_prompt
from octavo.text.parsing.tools.kind import ToolParser
from octavo.text.parsing.tools.registry import tool_parser_for, tool_parser_named

__all__ = ["GENERIC", "ToolParser", "tool_parser_for", "tool_parser_named", "tools_in_prompt"]
