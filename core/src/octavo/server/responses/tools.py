"""``tools`` and ``tool_choice`` of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from octavo.server.generation.tools import described
from octavo.server.transport.refusals import wrong
from octavo.text.parsing.parts import Tool

_CHOICES = ("auto", "none", "required")


@dataclass(frozen=True)
class Toolbox:
    """The tools of a turn. ``told`` and ``told_choice`` are how the response repeats them."""

    tools: Sequence[Tool] = ()
    choice: Literal["auto", "none", "required"] | Tool = "auto"
    told: list[dict[str, Any]] = field(default_factory=list)
    told_choice: Any = "auto"


def read_tools(tools: Sequence[Mapping[str, Any]] | None, choice: Any) -> Toolbox:
    """Both fields, checked against each other. Raises RequestError."""
    tools = tools or ()
    known = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    names = [tool.name for tool in known]
    for i, name in enumerate(names):
        if name in names[:i]:
            wrong(f"tools[{i}].name", f"is {name!r}, which is the name of an earlier tool")
    told = [_told(tool) for tool in known]
    if choice is None:
        choice = "auto"
    if isinstance(choice, str):
        if choice not in _CHOICES:
            wrong("tool_choice", f"is {choice[:40]!r}; it must be one of {', '.join(_CHOICES)}, or an object")
        if choice == "required" and not known:
            wrong("tool_choice", "is 'required', which needs 'tools'")
        return Toolbox(known, "none" if choice == "none" else _word(choice), told, choice)
    if not isinstance(choice, dict):
        wrong("tool_choice", "must be a string or an object", "invalid_type")
    kind = choice.get("type")
    if kind == "function":
        chosen = _named(known, choice.get("name"), "tool_choice.name")
        return Toolbox(known, chosen, told, {"type": "function", "name": chosen.name})
    if kind == "allowed_tools":
        return _allowed(known, told, choice)
    return wrong(
        "tool_choice.type",
        f"is {str(kind)[:40]!r}, which is not supported; this server takes function and allowed_tools",
        "unsupported_parameter",
    )


def _word(choice: str) -> Literal["auto", "required"]:
    return "required" if choice == "required" else "auto"


def _allowed(known: list[Tool], told: list[dict[str, Any]], choice: Mapping[str, Any]) -> Toolbox:
    """All tools are told of, some may be called: the model is shown those."""
    mode, allowed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        wrong("tool_choice.mode", f"is {str(mode)[:40]!r}; it must be auto or required")
    if not isinstance(allowed, list) or not allowed:
        wrong("tool_choice.tools", "must be an array of at least one tool", "invalid_type")
    chosen = []
    for i, tool in enumerate(allowed):
        where = f"tool_choice.tools[{i}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            wrong(f"{where}.type", "is not supported; this server takes function", "unsupported_parameter")
        chosen.append(_named(known, tool.get("name"), f"{where}.name"))
    return Toolbox(chosen, _word(mode), told, dict(choice))


def _named(known: Sequence[Tool], name: Any, where: str) -> Tool:
    for tool in known:
        if tool.name == name:
            return tool
    names = ", ".join(tool.name for tool in known) or "none"
    return wrong(where, f"is {str(name)[:64]!r}, which is none of 'tools' ({names})")


def _tool(tool: Mapping[str, Any], where: str) -> Tool:
    kind = tool.get("type")
    if kind != "function":
        wrong(
            f"{where}.type",
            f"is {str(kind)[:40]!r}, which is not supported; this server takes function tools only",
            "unsupported_parameter",
        )
    name, description, strict = described(tool, where)
    parameters = tool.get("parameters")
    if not isinstance(parameters, dict | None):
        wrong(f"{where}.parameters", "must be an object", "invalid_type")
    schema = {} if parameters is None else {"parameters": parameters}
    return Tool(name, description, strict=strict, **schema)


def _told(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description or None,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }
