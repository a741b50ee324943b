"""From a request to a response job: a turn that is ready to run, and what is needed to write and store its response."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import ContextLengthExceeded, RequestError
from octavo.sampling import SamplingParams
from octavo.server.generation.context import OverContext
from octavo.server.generation.params import RESPONSE_FIELDS, served_name
from octavo.server.generation.prompts import normalise_messages, truncation
from octavo.server.generation.service import Service
from octavo.server.generation.template_variables import template_variables
from octavo.server.generation.turn import Turn, TurnRequest
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.formats import told_format
from octavo.server.responses.items import Item, new_id
from octavo.server.responses.messages import chat_messages, check_calls, continued, cuts
from octavo.server.responses.params import response_params
from octavo.server.responses.read_items import Reference, read_items
from octavo.server.responses.replies import (
    ConversationReference,
    ReasoningConfig,
    ResponseObject,
    TextConfig,
)
from octavo.server.responses.schema import ReasoningFields, ResponseRequest, TextFields, TurnFields
from octavo.server.responses.store import ResponseStore
from octavo.server.responses.tools import Toolbox, read_tools
from octavo.server.responses.writer import Style
from octavo.server.transport.refusals import naming

LOGPROBS = "message.output_text.logprobs"
SEALED_REASONING = "reasoning.encrypted_content"
_NOTHING_TO_INCLUDE = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""What outputs that this server never makes would carry."""


@dataclass(frozen=True)
class ResponseJob:
    """One response to be made."""

    owner: str
    response: ResponseObject
    """As it begins."""
    inputs: Sequence[Item]
    """The request's own, without the history."""
    turn: Turn
    style: Style
    stream: bool


@dataclass(frozen=True)
class Stores:
    """What a history can come from."""

    responses: ResponseStore
    conversations: ConversationStore


async def job_of(service: Service, stores: Stores, owner: str, body: ResponseRequest) -> ResponseJob:
    """Raises RequestError for what cannot be done, before anything is done."""
    model = served_name(body.model, service.backend.model_names)
    style = _style(body)
    if body.background and body.store is False:
        raise RequestError(
            "'background' needs 'store': a response that is not kept cannot be asked for later.",
            param="background",
            code="invalid_value",
        )
    top = body.top_logprobs or 0
    params = response_params(body, service.backend.default_params, logprobs=top if style.logprobs else None)
    toolbox = read_tools(body.tools, body.tool_choice)
    own_id = f"resp_{body.request_id}" if body.request_id else new_id("resp")
    turn, inputs = await turn_of(service, stores, owner, body, params, toolbox, own_id)
    return ResponseJob(owner, _begun(body, own_id, model, params, toolbox), inputs, turn, style, bool(body.stream))


async def turn_of(
    service: Service,
    stores: Stores,
    owner: str,
    body: TurnFields,
    params: SamplingParams,
    toolbox: Toolbox,
    id: str,
    *,
    over: OverContext | None = None,
) -> tuple[Turn, list[Item]]:
    """The turn that a request asks for, and the items that are its own. ``over``: what becomes of an output limit that
    the context has no room for, in place of what the request asks.
    """
    if over is None:
        cuts_anyway = body.truncation == "auto" or body.max_output_tokens is None
        over = body.context_overflow or ("truncate" if cuts_anyway else "error")
    if body.previous_response_id is not None and body.conversation is not None:
        raise RequestError(
            "'previous_response_id' and 'conversation' exclude each other: each brings a history.",
            param="previous_response_id",
            code="invalid_value",
        )
    inputs = await _resolved(stores.responses, owner, body.input)
    history: list[Item] = []
    if body.previous_response_id is not None:
        history = await stores.responses.history(owner, body.previous_response_id)
    elif body.conversation is not None:
        history = await stores.conversations.items(owner, body.conversation)
    items = continued([*history, *inputs])
    if not items:
        raise RequestError("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    check_calls(items)
    turn = await _fitting(service, body, params, toolbox, id, items, over)
    return turn, inputs


async def _resolved(store: ResponseStore, owner: str, value: Any) -> list[Item]:
    """The request's items, references replaced by what they refer to."""
    given = [] if value is None else read_items(value)
    wanted = [item.id for item in given if isinstance(item, Reference)]
    found = await store.find(owner, wanted) if wanted else {}
    return [found[item.id] if isinstance(item, Reference) else item for item in given]


async def _fitting(
    service: Service,
    body: TurnFields,
    params: SamplingParams,
    toolbox: Toolbox,
    id: str,
    items: list[Item],
    over: OverContext,
) -> Turn:
    """The turn with all items, or, under truncation, with as many of the latest as fit."""
    context = service.backend.max_model_len
    variables = template_variables(body.chat_template_kwargs, body.reasoning.effort if body.reasoning else None)

    async def attempt(cut: int) -> Turn:
        ask = TurnRequest(
            messages=_messages(body.instructions, items[cut:]),
            params=params,
            tools=toolbox.tools,
            tool_choice=toolbox.choice,
            parallel_tool_calls=body.parallel_tool_calls is not False,
            template_variables=variables,
            truncation=truncation(body.truncate_prompt_tokens, body.truncation_side),
            over_context=over,
            field_names=RESPONSE_FIELDS,
            options=body.options,
        )
        return await Turn.prepare(service, ask, id)

    if body.truncation != "auto":
        turn = await attempt(0)
        return _checked(turn, context - 1, context, "set 'truncation': \"auto\" to leave out the oldest items")
    # An output of any length is room for the input taken away; half of the context is the input's in any case.
    room = context - min(params.max_tokens or 1, context // 2)
    places = cuts(items)
    turn = await attempt(0)
    if turn.job.prompt_tokens <= room or len(places) == 1:
        return _checked(turn, context - 1, context, "shorten it")
    low, high = 1, len(places) - 1  # the prompt grows shorter with each place, so half of them go with each attempt
    turn = await attempt(places[high])
    while low < high:
        middle = (low + high) // 2
        shorter = await attempt(places[middle])
        if shorter.job.prompt_tokens <= room:
            turn, high = shorter, middle
        else:
            low = middle + 1
    return _checked(turn, context - 1, context, "shorten the last message")


def _messages(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    with naming(RESPONSE_FIELDS):
        return normalise_messages(chat_messages(instructions, items))


def _checked(turn: Turn, room: int, context: int, cure: str) -> Turn:
    tokens = turn.job.prompt_tokens
    if tokens > room:
        raise ContextLengthExceeded(
            f"The input has {tokens} tokens, and the context of {context} leaves room for {room}; {cure}.",
            param="input",
        )
    return turn


def _style(body: ResponseRequest) -> Style:
    for i, name in enumerate(body.include or ()):
        if name not in (LOGPROBS, SEALED_REASONING, *_NOTHING_TO_INCLUDE):
            raise RequestError(
                f"'include[{i}]' is {name[:60]!r}; this server includes {LOGPROBS} and {SEALED_REASONING}.",
                param=f"include[{i}]",
                code="invalid_value",
            )
    include = body.include or ()
    return Style(
        logprobs=LOGPROBS in include or bool(body.top_logprobs),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
        seal_reasoning=SEALED_REASONING in include,
        obfuscate=bool(body.stream_options and body.stream_options.include_obfuscation),
    )


def _begun(body: ResponseRequest, id: str, model: str, params: SamplingParams, toolbox: Toolbox) -> ResponseObject:
    reasoning, text = body.reasoning or ReasoningFields(), body.text or TextFields()
    return ResponseObject(
        id=id,
        created_at=int(time.time()),
        status="queued" if body.background else "in_progress",
        background=bool(body.background),
        conversation=None if body.conversation is None else ConversationReference(body.conversation),
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        max_tool_calls=body.max_tool_calls,
        metadata=body.metadata or {},
        model=model,
        output=[],
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=ReasoningConfig(reasoning.effort),
        safety_identifier=body.safety_identifier,
        store=body.store is not False,
        temperature=params.temperature,
        text=TextConfig(told_format(text.format)),
        tool_choice=toolbox.told_choice,
        tools=toolbox.told,
        top_logprobs=body.top_logprobs or 0,
        top_p=params.top_p,
        truncation=body.truncation or "disabled",
        user=body.user,
    )
