"""Items to the messages of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.errors import RequestError
from octavo.server.generation.history import read_arguments
from octavo.server.responses.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning


def check_calls(items: Sequence[Item]) -> None:
    """Raise RequestError unless every call has its one output, behind it. A call whose arguments are no JSON object may
    have none: nobody could make it.
    """
    open_calls: dict[str, FunctionCall] = {}
    closed: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall):
            if item.call_id in open_calls or item.call_id in closed:
                raise _error(
                    f"The function call {item.call_id!r} appears twice; with 'previous_response_id' or 'conversation' "
                    "send only what is new."
                )
            open_calls[item.call_id] = item
        elif isinstance(item, FunctionCallOutput):
            if item.call_id not in open_calls:
                what = "has an output already" if item.call_id in closed else "is not in the input before its output"
                raise _error(f"The function call {item.call_id!r} {what}.")
            del open_calls[item.call_id]
            closed.add(item.call_id)
    for call in open_calls.values():
        if read_arguments(call.arguments) is not None:
            raise _error(
                f"No tool output found for function call {call.call_id!r} of {call.name!r}; send an item of the type "
                "function_call_output for it."
            )


def _error(message: str) -> RequestError:
    return RequestError(message, param="input", code="invalid_value")


def continued(items: Sequence[Item]) -> list[Item]:
    """What the next turn can build on: a call that was cut short is left out, unless the client has answered it."""
    answered = {item.call_id for item in items if isinstance(item, FunctionCallOutput)}
    return [
        item
        for item in items
        if not (isinstance(item, FunctionCall) and item.status != "completed" and item.call_id not in answered)
    ]


def chat_messages(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The conversation as the chat API has it: reasoning, text and calls of one turn are one assistant message."""
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    turn: dict[str, Any] | None = None  # the assistant message that still grows

    def grow(room: bool) -> dict[str, Any]:
        """The growing message, a new one if there is none or it has no room."""
        nonlocal turn
        if turn is None or not room:
            turn = {"role": "assistant", "content": ""}
            messages.append(turn)
        return turn

    for item in items:
        match item:
            case Reasoning():
                grow(room=False)["reasoning_content"] = item.text
            case Message(role="assistant"):
                grow(room=turn is not None and not turn["content"])["content"] = item.text
            case FunctionCall():
                call = {"name": item.name, "arguments": item.arguments}
                calls = grow(room=True).setdefault("tool_calls", [])
                calls.append({"id": item.call_id, "type": "function", "function": call})
            case FunctionCallOutput():
                turn = None
                messages.append({"role": "tool", "tool_call_id": item.call_id, "content": item.text})
            case Message():
                turn = None
                messages.append({"role": item.role, "content": item.text})
    return messages


def cuts(items: Sequence[Item]) -> list[int]:
    """Where the beginning of a conversation may be cut off: before a message of the user, calls and outputs staying
    together. The first is 0, all of it; the last leaves the last of these messages and what is behind it.
    """
    return [0, *(at for at, item in enumerate(items) if at and isinstance(item, Message) and item.role == "user")]
