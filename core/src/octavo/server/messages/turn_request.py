"""A request of the Messages API as a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.sampling import SamplingParams
from octavo.server.generation.params import MESSAGE_FIELDS
from octavo.server.generation.prompts import normalise_messages, truncation
from octavo.server.generation.template_variables import THINKING
from octavo.server.generation.turn import TurnRequest
from octavo.server.messages.history import chat_messages
from octavo.server.messages.refusals import known_only, wrong
from octavo.server.messages.schema import TurnFields
from octavo.server.messages.tools import read_choice, read_tools
from octavo.structured_output import StructuredOutput

_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""The API's words, and those that chat templates know."""
_HARMLESS_EDIT = "clear_thinking"
"""Begins the names of the edits that drop old reasoning, which chat templates do anyway."""


@dataclass(frozen=True)
class Thinking:
    """Whether the client wants to be told of reasoning, and of their text."""

    wanted: bool = False
    text: bool = True


def read_thinking(value: Mapping[str, Any] | None) -> Thinking:
    """``thinking``. Without it there are no thinking blocks: clients that did not ask take the first block for text.

    ``budget_tokens`` is a target that no model here knows of.
    """
    if value is None:
        return Thinking()
    known_only(value, "thinking", ("type", "budget_tokens", "display"))
    kind, budget = value.get("type"), value.get("budget_tokens")
    if budget is not None and (type(budget) is not int or budget < 1):
        wrong("thinking.budget_tokens", f"is {budget!r:.40}; it must be an integer of at least 1")
    if kind not in ("enabled", "adaptive", "disabled"):
        wrong("thinking.type", f"is {kind!r:.40}; it must be enabled, adaptive or disabled")
    display = value.get("display")
    if display not in (None, "summarized", "omitted"):
        wrong("thinking.display", f"is {display!r:.40}; it must be summarized or omitted")
    return Thinking(kind != "disabled", display != "omitted")


def message_ask(body: TurnFields, params: SamplingParams) -> TurnRequest:
    """A request's turn. Raises RequestError naming the field at fault."""
    _check_edits(body.context_management)
    known_only(body.output_config or {}, "output_config", ("effort", "format"))
    messages, goes_on = chat_messages(body.system, body.messages)
    tools = read_tools(body.tools)
    choice, parallel = read_choice(body.tool_choice, tools)
    return TurnRequest(
        messages=normalise_messages(messages),
        params=_held_to_format(body, params),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
        template_variables=_variables(body),
        truncation=truncation(body.truncate_prompt_tokens, body.truncation_side),
        over_context=body.context_overflow or "truncate",
        field_names=MESSAGE_FIELDS,
        options=body.options,
    )


def _variables(body: TurnFields) -> dict[str, Any]:
    """What templates know of thinking, under both of its names, and of effort."""
    wanted = read_thinking(body.thinking).wanted
    variables: dict[str, Any] = dict.fromkeys(THINKING, wanted)
    effort = (body.output_config or {}).get("effort")
    if effort is not None:
        if not isinstance(effort, str) or effort not in _EFFORTS:
            wrong("output_config.effort", f"is {effort!r:.40}; it must be one of {', '.join(_EFFORTS)}")
        variables["reasoning_effort"] = _EFFORTS[effort]
    return variables


def _held_to_format(body: TurnFields, params: SamplingParams) -> SamplingParams:
    """The sampling that obeys ``output_config.format``, or its older name ``output_format``."""
    where, asked = "output_config.format", (body.output_config or {}).get("format")
    if asked is None:
        where, asked = "output_format", body.output_format
    if asked is None:
        return params
    if not isinstance(asked, dict) or asked.get("type") != "json_schema" or not isinstance(asked.get("schema"), dict):
        wrong(where, 'must be {"type": "json_schema", "schema": …}')
    known_only(asked, where, ("type", "schema"))
    if params.structured is not None:
        wrong(where, f"and '{params.structured.param}' both constrain the output; send one of them")
    return replace(params, structured=StructuredOutput(json=asked["schema"], param=where))


def _check_edits(management: Mapping[str, Any] | None) -> None:
    known_only(management or {}, "context_management", ("edits",))
    edits = (management or {}).get("edits") or []
    if not isinstance(edits, list):
        wrong("context_management.edits", "must be a list of edits")
    for at, edit in enumerate(edits):
        kind = edit.get("type") if isinstance(edit, dict) else None
        if not isinstance(kind, str) or not kind.startswith(_HARMLESS_EDIT):
            wrong(
                f"context_management.edits.{at}.type",
                f"is {kind!r:.60}, which is not supported; this server edits no conversations",
            )
