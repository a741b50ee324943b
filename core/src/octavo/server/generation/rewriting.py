"""Conversations that a chat template does not take as they are, in other words.

Two things that clients send and that are no mistake of theirs make templates fail: text of the user behind the results
of tools, where user and assistant must take turns; and calls whose arguments are no JSON object, which the model itself
wrote. They are rewritten only where the template needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from octavo.errors import RequestError
from octavo.server.generation.history import call_text, read_arguments

T = TypeVar("T")
Messages: TypeAlias = list[dict[str, Any]]


def first_taken(messages: Messages, make: Callable[[Messages], T], render: Callable[[Messages], str]) -> T:
    """What ``make`` returns of the first version of the conversation that the template takes, which ``render`` shows.

    Raises the RequestError of the conversation as it is, if there is none.
    """
    unread = _unread(messages)
    refused: RequestError | None = None
    passable: Messages | None = None
    for version in _versions(messages, calls=bool(unread)):
        try:
            if not unread:
                return make(version)
            text = render(version)
        except RequestError as error:
            if error.param != "messages":
                raise
            refused = refused or error
            continue
        if all(_shows(text, arguments) for arguments in unread):
            return make(version)
        passable = passable or version  # a template that shows no calls at all
    if passable is not None:
        return make(passable)
    assert refused is not None
    raise refused


def _versions(messages: Messages, *, calls: bool) -> Iterator[Messages]:
    """The conversation as it is, and then the others, each only if it differs."""
    tellings = [messages, _in_an_object(messages), _in_text(messages)] if calls else [messages]
    for told in tellings:
        yield told
        beside = _beside_results(told)
        if beside != told:
            yield beside
        single = _one_result(beside)
        if single != beside:
            yield single


def _unread(messages: Messages) -> list[str]:
    """Arguments that are no JSON object."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return [arguments for call in calls if _is_unread(arguments := call["function"]["arguments"])]


def _is_unread(arguments: Any) -> bool:
    """Templates that want arguments as text get JSON objects as text, too."""
    return isinstance(arguments, str) and read_arguments(arguments) is None


def _shows(text: str, arguments: str) -> bool:
    """Whether the text of a conversation has these arguments in it, as they are or as a JSON string."""
    told = (arguments, json.dumps(arguments, ensure_ascii=False), json.dumps(arguments))
    return any(one.strip('"').strip() in text for one in told)


def _in_an_object(messages: Messages) -> Messages:
    """For templates that go through the entries of arguments."""

    def rewritten(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        if not _is_unread(function["arguments"]):
            return call
        return {**call, "function": {**function, "arguments": {"arguments": function["arguments"]}}}

    return [
        {**message, "tool_calls": [rewritten(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _in_text(messages: Messages) -> Messages:
    """For templates that take no such call at all: the turn's calls are text, and their results the user's."""
    told: Messages = []
    inside = False  # of the results of such calls
    for message in messages:
        if message.get("tool_calls"):
            inside = any(_is_unread(call["function"]["arguments"]) for call in message["tool_calls"])
        elif message["role"] != "tool":
            inside = False
        if inside and message["role"] == "tool":
            content = f"Result of {message.get('name') or 'the function'}:\n{message['content']}"
            message = {"role": "user", "content": content}
        elif inside:
            said = "\n".join(filter(None, (message["content"], *map(call_text, message["tool_calls"]))))
            message = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": said}
        told.append(message)
    return _joined(told, "user", "user")


def _beside_results(messages: Messages) -> Messages:
    """Text of the user behind a tool's result in the same message as the result."""
    return _joined(messages, "tool", "user")


def _one_result(messages: Messages) -> Messages:
    """The results of one turn in one message."""
    return _joined(messages, "tool", "tool")


def _joined(messages: Sequence[dict[str, Any]], first: str, second: str) -> Messages:
    """Messages of the second role that stand behind one of the first role, in that one."""
    joined: Messages = []
    for message in messages:
        if joined and joined[-1]["role"] == first and message["role"] == second:
            texts = filter(None, (joined[-1]["content"], message["content"]))
            joined[-1] = {**joined[-1], "content": "\n\n".join(texts)}
        else:
            joined.append(message)
    return joined
