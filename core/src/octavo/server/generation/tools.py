"""``tools`` and ``tool_choice`` of a chat request; and ``functions`` and ``function_call``, their old names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from octavo.server.generation.schema import ChatCompletionRequest
from octavo.server.transport.refusals import wrong
from octavo.text.parsing.parts import Tool

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
NAMES = "1 to 128 letters, digits and _ . -"

Choice: TypeAlias = Literal["auto", "none", "required"] | Tool
_WORDS: dict[str, Literal["auto", "none", "required"]] = {"auto": "auto", "none": "none", "required": "required"}


@dataclass(frozen=True)
class Offer:
    """The tools that a request offers, and which of them it wants called."""

    tools: Sequence[Tool] = ()
    choice: Choice = "auto"


def chat_tools(body: ChatCompletionRequest) -> Offer:
    """What a chat request offers. Raises RequestError naming the field at fault."""
    if body.tools is not None and body.functions is not None:
        wrong("functions", "is the old name of 'tools'; send one of them")
    if body.functions is not None:
        if body.tool_choice is not None:
            wrong("tool_choice", "goes with 'tools'; 'functions' has 'function_call'")
        tools = [_function(one, f"functions[{i}]") for i, one in enumerate(_some(body.functions, "functions"))]
        return Offer(_distinct(tools, "functions[{}].name"), _legacy_choice(body.function_call, tools))
    if body.tools is None:
        return Offer(choice=_without_tools(body))
    tools = [_tool(one, f"tools[{i}]") for i, one in enumerate(_some(body.tools, "tools"))]
    _distinct(tools, "tools[{}].function.name")
    return _chosen(body.tool_choice, tools)


def _without_tools(body: ChatCompletionRequest) -> Choice:
    for name, tools in (("tool_choice", "tools"), ("function_call", "functions")):
        if getattr(body, name) not in (None, "none"):
            wrong(name, f"needs '{tools}', from which to choose")
    return "none"


def _some(entries: list[Any], where: str) -> list[Any]:
    if not entries:
        wrong(where, "is empty; leave it out to offer none")
    return entries


def _tool(entry: Any, where: str) -> Tool:
    kind = entry.get("type") if isinstance(entry, dict) else None
    if kind != "function":
        wrong(f"{where}.type", f"is {str(kind)[:40]!r}; only 'function' is supported", "unsupported_parameter")
    return _function(entry.get("function"), f"{where}.function")


def _function(entry: Any, where: str) -> Tool:
    if not isinstance(entry, dict):
        wrong(where, "must be an object", "invalid_type")
    name, description, strict = described(entry, where)
    parameters = entry.get("parameters")
    if parameters is None:
        return Tool(name, description, strict=strict)
    if not isinstance(parameters, dict):
        wrong(f"{where}.parameters", "must be a JSON schema, an object", "invalid_type")
    if parameters.get("type", "object") != "object":
        wrong(f"{where}.parameters.type", f"is {str(parameters['type'])[:40]!r}; arguments are always an 'object'")
    return Tool(name, description, parameters, strict)


def described(entry: Mapping[str, Any], where: str) -> tuple[str, str, bool]:
    """Name, description and ``strict`` of a function, checked. Raises RequestError naming what is wrong."""
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        wrong(f"{where}.name", f"must be a string of {NAMES}")
    description, strict = entry.get("description"), entry.get("strict")
    if not isinstance(description, str | None):
        wrong(f"{where}.description", "must be a string", "invalid_type")
    if not isinstance(strict, bool | None):
        wrong(f"{where}.strict", "must be a boolean", "invalid_type")
    return name, description or "", bool(strict)


def _distinct(tools: Sequence[Tool], where: str) -> Sequence[Tool]:
    seen: set[str] = set()
    for number, tool in enumerate(tools):
        if tool.name in seen:
            wrong(where.format(number), f"is {tool.name!r}, as that of another")
        seen.add(tool.name)
    return tools


def _chosen(choice: Any, tools: Sequence[Tool]) -> Offer:
    if choice is None:
        return Offer(tools)
    if isinstance(choice, str):
        if choice not in _WORDS:
            wrong("tool_choice", f"is {choice[:40]!r}; it must be {', '.join(_WORDS)}, or an object")
        return Offer(tools, _WORDS[choice])
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "function":
        return Offer(tools, _named(choice.get("function"), tools, "tool_choice.function", "tools"))
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools"), tools, "tool_choice.allowed_tools")
    return wrong("tool_choice.type", f"is {str(kind)[:40]!r}; it must be 'function' or 'allowed_tools'")


def _allowed(allowed: Any, tools: Sequence[Tool], where: str) -> Offer:
    """Some of the tools: the model is told of those alone."""
    if not isinstance(allowed, dict) or allowed.get("mode") not in ("auto", "required"):
        wrong(f"{where}.mode", "must be 'auto' or 'required'")
    entries = allowed.get("tools")
    if not isinstance(entries, list) or not entries:
        wrong(f"{where}.tools", "must be an array of at least one tool", "invalid_type")
    chosen = []
    for i, entry in enumerate(entries):
        function = entry.get("function") if isinstance(entry, dict) else None
        chosen.append(_named(function, tools, f"{where}.tools[{i}].function", "tools"))
    return Offer(chosen, _WORDS[allowed["mode"]])


def _legacy_choice(choice: Any, tools: Sequence[Tool]) -> Choice:
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice not in ("auto", "none"):
            wrong("function_call", f"is {choice[:40]!r}; it must be auto, none, or an object with a 'name'")
        return _WORDS[choice]
    return _named(choice, tools, "function_call", "functions")


def _named(function: Any, tools: Sequence[Tool], where: str, among: str) -> Tool:
    if not isinstance(function, dict):
        wrong(where, "must be an object with a 'name'", "invalid_type")
    name = function.get("name")
    for tool in tools:
        if tool.name == name:
            return tool
    return wrong(
        f"{where}.name", f"is {str(name)[:64]!r}, which is none of '{among}': {', '.join(tool.name for tool in tools)}"
    )
