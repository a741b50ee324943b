"""``system`` and ``messages`` of the Messages API to messages as the chat API has them.

Rules of the API that are kept: neighbours of one role are one turn; every tool_use has its tool_result in the turn
behind it; an assistant's text at the end is the beginning of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from octavo.server.messages.refusals import known_only, wrong

_BILLING = "x-anthropic-billing-header:"
"""Begins a block that Claude Code puts into ``system``. It is not for the model, and differs in every request: with it
in front no prefix of a conversation would ever be found in the cache.
"""

_MEMBERS = {
    "text": ("type", "text", "citations", "cache_control"),
    "thinking": ("type", "thinking", "signature", "cache_control"),
    "redacted_thinking": ("type", "data", "cache_control"),
    "tool_use": ("type", "id", "name", "input", "caller", "cache_control"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "cache_control"),
}
"""What blocks may have. Citations say where a text is from, a signature who made it; the model is shown neither."""


@dataclass
class _Turn:
    """What neighbouring messages of one role come to."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """tool_use blocks by id."""
    results: dict[str, str] = field(default_factory=dict)
    """Texts of tool_result blocks, by the id of their call."""


def chat_messages(system: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """The conversation, and whether the answer goes on with its last message.

    Raises RequestError whose ``param`` is the path of the block at fault ("messages.1.content.0.type").
    """
    if not messages:
        wrong("messages", "must hold at least one message")
    chat: list[dict[str, Any]] = []
    if system is not None:
        texts = [text for text in _texts(system, "system") if not text.startswith(_BILLING)]
        chat += [{"role": "system", "content": "\n".join(texts)}] if any(texts) else []
    waiting: Mapping[str, Mapping[str, Any]] = {}  # calls of the turn before that want a result
    last, turn = "", _Turn()
    for role, turn in _turns(messages):
        if waiting and (role != "user" or waiting.keys() - turn.results.keys()):
            missing = ", ".join(sorted(waiting.keys() - (turn.results.keys() if role == "user" else set())))
            wrong("messages", f"has tool_use ids without a tool_result in the turn behind them: {missing}")
        for call_id, result in turn.results.items():
            if call_id not in waiting:
                wrong("messages", f"has a tool_result for {call_id!r}, which no tool_use of the turn before it has")
            name = waiting[call_id]["name"]
            chat.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": result})
        chat += _message(role, turn)
        waiting, last = turn.calls, role
    if waiting:
        wrong("messages", f"ends with tool_use ids that have no tool_result: {', '.join(sorted(waiting))}")
    goes_on = last == "assistant" and bool(chat) and chat[-1]["role"] == "assistant"
    if goes_on and not chat[-1]["content"]:
        chat.pop()  # an answer that has not begun
        goes_on = False
    if not chat:
        wrong("messages", "are all empty")
    return chat, goes_on


def _message(role: str, turn: _Turn) -> list[dict[str, Any]]:
    """The turn without its tool results; nothing if there is nothing else in it."""
    if role != "assistant":
        return [{"role": role, "content": "\n".join(turn.text)}] if turn.text or not turn.results else []
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(turn.text)}
    if turn.reasoning:
        message["reasoning_content"] = "\n".join(turn.reasoning)
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": call["name"], "arguments": _arguments(call["input"])},
            }
            for call_id, call in turn.calls.items()
        ]
    return [message]


def _arguments(given: Any) -> str:
    """The input of a call as text; a string is the text that could not be read as JSON."""
    return given if isinstance(given, str) else msgspec.json.encode(given).decode()


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, _Turn]]:
    role, turn = "", _Turn()
    for at, message in enumerate(messages):
        known_only(message, f"messages.{at}", ("role", "content"))
        said = message.get("role")
        if said not in ("user", "assistant", "system"):
            wrong(f"messages.{at}.role", f"is {said!r:.40}; it must be user, assistant or system")
        if said != role:
            if role:
                yield role, turn
            role, turn = said, _Turn()
        _add(turn, role, message.get("content"), f"messages.{at}.content")
    yield role, turn


def _add(turn: _Turn, role: str, content: Any, where: str) -> None:
    if isinstance(content, str):
        turn.text.append(content)
        return
    for at, block in enumerate(_listed(content, where)):
        path = f"{where}.{at}"
        kind = _kind(block, path)
        known_only(block, path, _MEMBERS.get(kind, block))
        match (role, kind):
            case (_, "text"):
                turn.text.append(_string(block, "text", path))
            case ("assistant", "thinking"):
                turn.reasoning.append(_string(block, "thinking", path))
            case ("assistant", "redacted_thinking"):
                pass  # nobody but who encrypted it can read it
            case ("assistant", "tool_use"):
                _add_call(turn, block, path)
            case ("user", "tool_result"):
                _add_result(turn, block, path)
            case (_, kind):
                _refuse(kind, role, path)


def _add_call(turn: _Turn, block: Mapping[str, Any], path: str) -> None:
    call_id = _string(block, "id", path)
    if block.get("caller") not in (None, {"type": "direct"}):
        wrong(f"{path}.caller", "is not supported; the model itself calls the tools of this server's clients")
    if not _string(block, "name", path):
        wrong(f"{path}.name", "is empty; it must be the name that the model called")
    if block.get("input") is None:
        wrong(f"{path}.input", "is missing; it must be an object, or what the model wrote in place of one")
    if call_id in turn.calls:
        wrong(f"{path}.id", f"is {call_id!r:.80}, as that of an earlier tool_use of this turn")
    turn.calls[call_id] = block


def _add_result(turn: _Turn, block: Mapping[str, Any], path: str) -> None:
    call_id = _string(block, "tool_use_id", path)
    if call_id in turn.results:
        wrong(f"{path}.tool_use_id", f"is {call_id!r:.80}, which has a tool_result already")
    if not isinstance(block.get("is_error"), bool | None):
        wrong(f"{path}.is_error", "must be a boolean")
    content = block.get("content")
    text = "" if content is None else "\n".join(_texts(content, f"{path}.content"))
    # Templates know no failed calls, so the model is told in words.
    turn.results[call_id] = f"Error: {text}" if block.get("is_error") else text


def _texts(content: Any, where: str) -> list[str]:
    """A string, or text blocks."""
    if isinstance(content, str):
        return [content]
    texts = []
    for at, block in enumerate(_listed(content, where)):
        kind = _kind(block, f"{where}.{at}")
        if kind != "text":
            _refuse(kind, "", f"{where}.{at}")
        known_only(block, f"{where}.{at}", _MEMBERS[kind])
        texts.append(_string(block, "text", f"{where}.{at}"))
    return texts


def _listed(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list):
        wrong(where, "must be a string or a list of content blocks")
    return content


def _kind(block: Any, path: str) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        wrong(path, "must be an object with a 'type'")
    return kind


def _string(block: Mapping[str, Any], key: str, path: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        wrong(f"{path}.{key}", "must be a string")
    return value


def _refuse(kind: str, role: str, path: str) -> NoReturn:
    if kind in ("thinking", "redacted_thinking", "tool_use", "tool_result"):
        wrong(f"{path}.type", f"is {kind!r}, which has no place in {f'a message of the {role}' if role else 'a text'}")
    wrong(f"{path}.type", f"is {kind[:40]!r}, which is not supported; this server takes text, no images or files")
