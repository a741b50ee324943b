"""The ``input`` of a request, and the ``items`` of a conversation: checked strictly, each error naming its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn, TypeAlias, get_args

import msgspec

from octavo.errors import RequestError
from octavo.server.responses.items import (
    FunctionCall,
    FunctionCallOutput,
    InputText,
    Item,
    ItemStatus,
    Message,
    OutputText,
    Reasoning,
    ReasoningText,
    Refusal,
    SummaryText,
    new_id,
    unsealed,
)
from octavo.server.transport.refusals import wrong

_ROLES = ("user", "assistant", "system", "developer")
_STATUSES = get_args(ItemStatus)
_ID = re.compile(r"[A-Za-z0-9._:-]{1,160}")


class Reference(msgspec.Struct):
    """An item that the server is to have kept. ``where`` it stands in the request."""

    id: str
    where: str


Given: TypeAlias = Item | Reference


def read_items(value: Any, where: str = "input") -> list[Given]:
    """Items of a request: a string is one user message. Raises RequestError naming the item and field at fault."""
    if isinstance(value, str):
        return [Message(id=new_id("msg"), role="user", content=[InputText(value)])]
    if not isinstance(value, list):
        wrong(where, "must be a string or an array of items", "invalid_type")
    return [_item(item, f"{where}[{i}]") for i, item in enumerate(value)]


def _item(item: Any, where: str) -> Given:
    if not isinstance(item, dict):
        wrong(where, "must be an object", "invalid_type")
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if set(item) - {"type"} == {"id"} else None
    if kind is None:
        _missing(f"{where}.type")
    if kind == "item_reference":
        return Reference(_id(item, where, None), where)
    read = _KINDS.get(kind) if isinstance(kind, str) else None
    if read is None:
        wrong(
            f"{where}.type",
            f"is {str(kind)[:40]!r}, which is not supported; this server takes {', '.join(_KINDS)} and item_reference",
            "unsupported_item_type",
        )
    return read(item, where)


def _message(item: Mapping[str, Any], where: str) -> Message:
    role = item.get("role")
    if role is None:
        _missing(f"{where}.role")
    if role not in _ROLES:
        wrong(f"{where}.role", f"is {str(role)[:40]!r}; it must be one of {', '.join(_ROLES)}")
    content, at = item.get("content"), f"{where}.content"
    parts: list[InputText | OutputText | Refusal]
    if content is None:
        _missing(at)
    if isinstance(content, str):
        parts = [OutputText(content) if role == "assistant" else InputText(content)]
    elif role == "assistant":
        parts = _parts(content, at, _ASSISTANT_PARTS)
    else:
        parts = _parts(content, at, _INPUT_PARTS)
    return Message(id=_id(item, where, "msg"), role=role, content=parts, status=_status(item, where))


def _call(item: Mapping[str, Any], where: str) -> FunctionCall:
    call = FunctionCall(
        id=_id(item, where, "fc"),
        call_id=_string(item, "call_id", where),
        name=_string(item, "name", where),
        arguments=_string(item, "arguments", where),
        status=_status(item, where),
    )
    if not call.name:
        wrong(f"{where}.name", "is empty; it must be the name that the model called")
    return call


def _call_output(item: Mapping[str, Any], where: str) -> FunctionCallOutput:
    output, at = item.get("output"), f"{where}.output"
    if output is None:
        _missing(at)
    return FunctionCallOutput(
        id=_id(item, where, "fco"),
        call_id=_string(item, "call_id", where),
        output=output if isinstance(output, str) else _parts(output, at, _INPUT_PARTS),
        status=_status(item, where),
    )


def _reasoning(item: Mapping[str, Any], where: str) -> Reasoning:
    sealed = item.get("encrypted_content")
    if sealed is not None:
        at = f"{where}.encrypted_content"
        if not isinstance(sealed, str):
            wrong(at, "must be a string", "invalid_type")
        try:
            unsealed(sealed)
        except ValueError as error:
            wrong(at, f"cannot be read: {error}")
    return Reasoning(
        id=_id(item, where, "rs"),
        summary=_parts(item.get("summary") or [], f"{where}.summary", {"summary_text": ("text", SummaryText)}),
        content=_parts(item.get("content") or [], f"{where}.content", {"reasoning_text": ("text", ReasoningText)}),
        encrypted_content=sealed or msgspec.UNSET,
        status=_status(item, where),
    )


_KINDS: Mapping[str, Callable[[Mapping[str, Any], str], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
    "reasoning": _reasoning,
}

_Part: TypeAlias = tuple[str, Callable[[str], Any]]
_INPUT_PARTS: Mapping[str, _Part] = {"input_text": ("text", InputText)}
_ASSISTANT_PARTS: Mapping[str, _Part] = {"output_text": ("text", OutputText), "refusal": ("refusal", Refusal)}


def _parts(parts: Any, where: str, kinds: Mapping[str, _Part]) -> list[Any]:
    if not isinstance(parts, list):
        also = "a string or " if kinds in (_INPUT_PARTS, _ASSISTANT_PARTS) else ""
        wrong(where, f"must be {also}an array of parts", "invalid_type")
    return [_part(part, f"{where}[{i}]", kinds) for i, part in enumerate(parts)]


def _part(part: Any, where: str, kinds: Mapping[str, _Part]) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        wrong(where, "must be an object with a 'type'", "invalid_type")
    if kind not in kinds:
        wrong(
            f"{where}.type",
            f"is {kind[:40]!r}, which is not supported here; this server takes text only: {', '.join(kinds)}",
            "unsupported_content_type",
        )
    key, make = kinds[kind]
    text = part.get(key)
    if not isinstance(text, str):
        wrong(f"{where}.{key}", "must be a string", "invalid_type")
    return make(text)


def _string(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if value is None:
        _missing(f"{where}.{name}")
    if not isinstance(value, str):
        wrong(f"{where}.{name}", "must be a string", "invalid_type")
    return value


def _id(item: Mapping[str, Any], where: str, prefix: str | None) -> str:
    """The item's own id, or a new one."""
    value = item.get("id")
    if value is None and prefix is not None:
        return new_id(prefix)
    given = _string(item, "id", where)
    if not _ID.fullmatch(given):
        wrong(f"{where}.id", "must be 1 to 160 letters, digits and . _ : -")
    return given


def _status(item: Mapping[str, Any], where: str) -> Literal["in_progress", "completed", "incomplete"]:
    value = item.get("status")
    if value is None:
        return "completed"
    if value not in _STATUSES:
        wrong(f"{where}.status", f"is {str(value)[:40]!r}; it must be one of {', '.join(_STATUSES)}")
    status: Literal["in_progress", "completed", "incomplete"] = value
    return status


def _missing(where: str) -> NoReturn:
    raise RequestError(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")


def only_items(given: Sequence[Given]) -> list[Item]:
    """The items, where references make no sense."""
    for item in given:
        if isinstance(item, Reference):
            wrong(f"{item.where}.type", "may not be item_reference here; send the item itself")
    return [item for item in given if not isinstance(item, Reference)]
