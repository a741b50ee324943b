"""``tools`` and ``tool_choice`` of the Messages API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from octavo.server.messages.refusals import known_only, wrong
from octavo.text.parsing.parts import Tool

NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""What a tool may be called."""
_FIELDS = ("type", "name", "description", "input_schema", "strict")
_ASK_NOTHING: Mapping[str, Callable[[Any], bool]] = {
    "cache_control": lambda value: isinstance(value, dict),
    "eager_input_streaming": lambda value: isinstance(value, bool),  # arguments come as they are written anyway
    "defer_loading": lambda value: value is False,
    "allowed_callers": lambda value: value == ["direct"],
    "input_examples": lambda value: value == [],
}
"""Other fields of a tool, with the values that ask for nothing."""
_WORDS: Mapping[str, Literal["auto", "required", "none"]] = {"auto": "auto", "any": "required", "none": "none"}


def read_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Tool]:
    """The client's own tools; those that Anthropic runs or has trained into its models are refused by name."""
    known: dict[str, Tool] = {}
    for at, tool in enumerate(tools or ()):
        found = _tool(tool, f"tools.{at}")
        if found.name in known:
            wrong(f"tools.{at}.name", f"is {found.name!r}, the name of an earlier tool")
        known[found.name] = found
    return list(known.values())


def read_choice(
    choice: Mapping[str, Any] | None, tools: Sequence[Tool]
) -> tuple[Literal["auto", "none", "required"] | Tool, bool]:
    """What must be called, and whether there may be several calls."""
    if choice is None:
        return "auto", True
    members = ("type", "name", "disable_parallel_tool_use")
    known_only(choice, "tool_choice", members if choice.get("type") == "tool" else (members[0], members[2]))
    kind, single = choice.get("type"), choice.get("disable_parallel_tool_use")
    if not isinstance(single, bool | None):
        wrong("tool_choice.disable_parallel_tool_use", "must be a boolean")
    if kind in ("any", "tool") and not tools:
        wrong("tool_choice.type", f"is {kind!r}, which needs 'tools'")
    if isinstance(kind, str) and kind in _WORDS:
        return _WORDS[kind], not single
    if kind != "tool":
        wrong("tool_choice.type", f"is {kind!r:.40}; it must be auto, any, tool or none")
    name = choice.get("name")
    named = next((tool for tool in tools if tool.name == name), None)
    if named is None:
        wrong("tool_choice.name", f"is {name!r:.80}, which is none of 'tools'")
    return named, not single


def _tool(tool: Mapping[str, Any], where: str) -> Tool:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        wrong(f"{where}.type", f"is {kind!r:.60}; this server knows tools that have an input_schema (custom) only")
    known_only(tool, where, (*_FIELDS, *_ASK_NOTHING))
    for field, harmless in _ASK_NOTHING.items():
        if tool.get(field) is not None and not harmless(tool[field]):
            wrong(f"{where}.{field}", "is not supported with the value given")
    name = tool.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        wrong(f"{where}.name", "must be a string of 1 to 128 letters, digits, _ and -")
    description, strict = tool.get("description"), tool.get("strict")
    if not isinstance(description, str | None):
        wrong(f"{where}.description", "must be a string")
    if not isinstance(strict, bool | None):
        wrong(f"{where}.strict", "must be a boolean")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        wrong(f"{where}.input_schema", "must be an object, a JSON Schema")
    return Tool(name, description or "", schema, bool(strict))
