"""Tool calls and their results in a conversation that a client sends back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from octavo.server.transport.refusals import wrong

_DEEPEST = 48
"""Levels of nesting in arguments that are read; templates take a few more, see `octavo.text.templates.chat`."""


@dataclass
class History:
    """Reads a conversation's messages in turn. Every call must have its one result, before anything else is said; but a
    call whose arguments are no JSON object, as one that was cut off, may have none: nobody could make it.
    """

    _open: dict[str, str] = field(default_factory=dict)
    """Calls without a result, by id, with the function's name."""
    _broken: set[str] = field(default_factory=set)
    """Those of them that need none."""
    _asked: str = ""
    """Where they were made."""
    _legacy: str = ""
    """The id of the open call that was made the old way, without one."""

    def read(self, message: Mapping[str, Any], where: str) -> dict[str, Any]:
        """What templates get of a message beside role and content; raises RequestError where it does not fit."""
        role = message["role"]
        if role == "tool":
            return self._result(message, where)
        if role == "function":
            return self._legacy_result(message, where)
        self.end()
        if role != "assistant":
            return {}
        if message.get("tool_calls"):
            return {"tool_calls": self._calls(message["tool_calls"], f"{where}.tool_calls")}
        if message.get("function_call"):
            self._legacy = f"call{len(where):05d}"  # nine characters, for the templates that count them
            call = {"id": self._legacy, "function": message["function_call"]}
            return {"tool_calls": [self._call(call, f"{where}.function_call", f"{where}.function_call")]}
        return {}

    def end(self) -> None:
        """Nothing more is said, or something else: raises RequestError for calls without a result."""
        missing = [call_id for call_id in self._open if call_id not in self._broken]
        if missing:
            wrong(
                self._asked,
                "has calls that no 'tool' message answers: " + ", ".join(missing) + "; send one for each, next",
            )
        self._open.clear()
        self._broken.clear()
        self._legacy = ""

    def _calls(self, calls: Any, where: str) -> list[dict[str, Any]]:
        if not isinstance(calls, list):
            wrong(where, "must be an array of calls", "invalid_type")
        return [self._call(call, f"{where}[{i}]", f"{where}[{i}].function") for i, call in enumerate(calls)]

    def _call(self, call: Any, where: str, function_at: str) -> dict[str, Any]:
        if not isinstance(call, dict):
            wrong(where, "must be an object", "invalid_type")
        if call.get("type", "function") != "function":
            wrong(f"{where}.type", f"is {str(call['type'])[:40]!r}; only 'function' is supported")
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id:
            wrong(f"{where}.id", "must be a string that is not empty")
        if call_id in self._open:
            wrong(f"{where}.id", f"is {call_id[:64]!r}, as that of another call in the same message")
        function = call.get("function")
        if not isinstance(function, dict):
            wrong(function_at, "must be an object with 'name' and 'arguments'", "invalid_type")
        name = function.get("name")
        if not isinstance(name, str) or not name:
            wrong(f"{function_at}.name", "must be a string that is not empty")
        given = function.get("arguments")
        arguments = _arguments(given, f"{function_at}.arguments")
        self._open[call_id] = name
        if isinstance(arguments, str) or (isinstance(given, str) and not given.strip()):
            self._broken.add(call_id)
        self._asked = where.rpartition("[")[0] if where.endswith("]") else where
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _result(self, message: Mapping[str, Any], where: str) -> dict[str, Any]:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            wrong(f"{where}.tool_call_id", "is missing; a 'tool' message names the call that it answers")
        if call_id not in self._open:
            known = "open are " + ", ".join(self._open) if self._open else "no call before it is without a result"
            wrong(f"{where}.tool_call_id", f"is {call_id[:64]!r}, which is no call that waits for a result; {known}")
        name = self._open.pop(call_id)
        return {"tool_call_id": call_id, "name": message.get("name") or name}

    def _legacy_result(self, message: Mapping[str, Any], where: str) -> dict[str, Any]:
        name = message.get("name")
        if not self._legacy or self._open.get(self._legacy) != name:
            wrong(f"{where}.name", f"is {str(name)[:64]!r}, which no 'function_call' before it has called")
        del self._open[self._legacy]
        return {"tool_call_id": self._legacy, "name": name}


def _arguments(given: Any, where: str) -> Mapping[str, Any] | str:
    """Arguments as an object, which is what templates write; or the text that a model wrote in place of one."""
    if given is None:
        return {}
    if isinstance(given, str):
        if not given.strip():
            return {}
        read = read_arguments(given)
        return given if read is None else read
    if not isinstance(given, dict):
        wrong(where, "must be the JSON text of an object", "invalid_type")
    return given


def read_arguments(text: str) -> dict[str, Any] | None:
    """The object whose JSON this is; None for any other text, and for JSON that is too deep for a prompt."""
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return read if isinstance(read, dict) and not _is_deeper(read, _DEEPEST) else None


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inside)


def unanswered_as_text(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with those calls that have no result, see `History`, in the text of their message: templates and
    models know calls with results alone.
    """
    shown: list[dict[str, Any]] = []
    answered: set[str] = set()
    for message in reversed(messages):
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
        elif message.get("tool_calls"):
            kept = [call for call in message["tool_calls"] if call["id"] in answered]
            lost = [call_text(call) for call in message["tool_calls"] if call["id"] not in answered]
            if lost:
                message = {**message, "content": "\n".join(filter(None, (message["content"], *lost)))}
                message = {**message, "tool_calls": kept} if kept else _without_calls(message)
        if message["role"] != "tool":
            answered = set()
        shown.append(message)
    return shown[::-1]


def call_text(call: Mapping[str, Any]) -> str:
    """A call as text, its arguments to the character where they could not be read."""
    function = call["function"]
    arguments = function["arguments"]
    said = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    end = "}" if isinstance(arguments, Mapping) else ""
    return f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {said}{end}'


def _without_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "tool_calls"}


def for_template(
    messages: Sequence[Mapping[str, Any]], *, calls_as_text: bool, short_ids: bool
) -> list[dict[str, Any]]:
    """Calls and results as a model's chat template wants them, see `octavo.text.parsing.tools.ToolParser`."""
    shown = []
    ids: dict[str, str] = {}
    for message in messages:
        message = dict(message)
        if short_ids and "tool_call_id" in message:
            message["tool_call_id"] = _short(message["tool_call_id"], ids)
        if message.get("tool_calls"):
            known = ids if short_ids else None
            message["tool_calls"] = [_shown(call, calls_as_text, known) for call in message["tool_calls"]]
            if calls_as_text and not message["content"]:
                message["content"] = None
        shown.append(message)
    return shown


def _shown(call: Mapping[str, Any], as_text: bool, ids: dict[str, str] | None) -> dict[str, Any]:
    function = dict(call["function"])
    if as_text and not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "id": call["id"] if ids is None else _short(call["id"], ids), "function": function}


def _short(call_id: str, ids: dict[str, str]) -> str:
    """An id of nine letters and digits, the id itself where it is one, and always the same for the same."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    return ids.setdefault(call_id, f"call{len(ids):05d}")
