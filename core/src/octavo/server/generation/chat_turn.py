"""What a chat request asks, as a turn."""

from __future__ import annotations

from octavo.errors import RequestError
from octavo.sampling import SamplingParams
from octavo.server.generation.params import chat_fields, output_limit
from octavo.server.generation.prompts import normalise_messages, truncation
from octavo.server.generation.schema import ChatCompletionRequest
from octavo.server.generation.template_variables import template_variables
from octavo.server.generation.tools import Offer, chat_tools
from octavo.server.generation.turn import TurnRequest
from octavo.server.transport.settings import ServerSettings


def chat_ask(body: ChatCompletionRequest, params: SamplingParams, settings: ServerSettings) -> TurnRequest:
    """A chat request's turn. Raises RequestError naming the field at fault."""
    goes_on = bool(body.continue_final_message)
    if goes_on and body.add_generation_prompt:
        raise RequestError(
            "'continue_final_message' and 'add_generation_prompt' exclude each other.", param="continue_final_message"
        )
    add_prompt = not goes_on if body.add_generation_prompt is None else body.add_generation_prompt
    if body.chat_template is not None and not settings.trust_request_chat_template:
        raise RequestError(
            "'chat_template': templates of clients are not run here; the model's own is used, unless the server is "
            "started with --trust-request-chat-template.",
            param="chat_template",
            code="unsupported_parameter",
        )
    about_tools = (body.tools, body.functions, body.tool_choice, body.function_call)
    offer = Offer(choice="none") if about_tools == (None,) * 4 else chat_tools(body)
    return TurnRequest(
        messages=normalise_messages(body.messages),
        params=params,
        tools=offer.tools,
        tool_choice=offer.choice,
        parallel_tool_calls=body.parallel_tool_calls is not False and body.functions is None,
        add_generation_prompt=add_prompt,
        continue_final_message=goes_on,
        template_variables=template_variables(
            body.chat_template_kwargs, body.reasoning_effort, documents=body.documents
        ),
        chat_template=body.chat_template,
        truncation=truncation(body.truncate_prompt_tokens, body.truncation_side),
        over_context=body.context_overflow or ("error" if output_limit(body) is not None else "truncate"),
        field_names=chat_fields(body),
        options=body.options,
    )
