"""Fields of the OpenAI API and of its common extensions whose feature is not built.

A client that sends one expects something from it, so it is refused by name, never ignored; null and the
values that ask for nothing pass. Building a feature means: delete its line here, add its field to
``schema.py``. Names that appear nowhere pass too: they belong to other servers and mean nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import RequestError

Harmless = Callable[[Any, Mapping[str, Any]], bool]
"""Whether a value, in its whole body, asks for nothing."""


def never(_value: Any, _body: Mapping[str, Any]) -> bool:
    """Every value but null asks for something."""
    return False


def only(*harmless: Any) -> Harmless:
    """These JSON values ask for nothing. Types count: true is not 1."""
    return lambda value, _body: any(type(value) is type(h) and value == h for h in harmless)


@dataclass(frozen=True)
class Unbuilt:
    """A known field that works only with values that ask for nothing."""

    harmless: Harmless = never
    instead: str = ""
    """What the client can do, as a sentence."""


_SUCCESSORS = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "guided_json_object": "json_object",
    "structural_tag": "structural_tag",
    "json_schema": "json",
    "regex": "regex",
    "grammar": "grammar",
    "ebnf": "grammar",
}
"""What structured output was called by earlier and other servers, and what it is in ``structured_outputs``."""
_MEDIA = Unbuilt(instead="Only text is supported.")

_COMMON: dict[str, Unbuilt] = {
    # structured output, by the names of several servers
    **{
        old: Unbuilt(instead=f'Its successor is "structured_outputs": {{"{new}": …}}.')
        for old, new in _SUCCESSORS.items()
    },
    "guided_decoding_backend": Unbuilt(only("auto", "guidance"), "Leave it out: structured_outputs has one backend."),
    "guided_whitespace_pattern": Unbuilt(instead="Leave it out: whitespace is as in JSON, up to 64 at a time."),
    # sampling
    "use_beam_search": Unbuilt(only(False), "Beam search is not available; use n with sampling."),
    "length_penalty": Unbuilt(only(1, 1.0), "It belongs to beam search."),
    "logprob_token_ids": Unbuilt(),
    "repetition_detection": Unbuilt(),
    "thinking_token_budget": Unbuilt(),
    "watermarking": Unbuilt(only(False)),
    # prompt and text
    "spaces_between_special_tokens": Unbuilt(only(True)),
    "return_prompt_text": Unbuilt(only(False)),
    "stream_interval": Unbuilt(only(1)),
    "kv_transfer_params": Unbuilt(),
    "ec_transfer_params": Unbuilt(),
    "vllm_xargs": Unbuilt(only({})),
}

CHAT_UNBUILT: Mapping[str, Unbuilt] = {
    **_COMMON,
    "audio": _MEDIA,
    "modalities": Unbuilt(only(["text"]), "Only text is supported."),
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "moderation": Unbuilt(),
    "verbosity": Unbuilt(only("medium")),
    "service_tier": Unbuilt(only("auto", "default"), 'Only "auto" and "default" are supported.'),
    "web_search_options": Unbuilt(),
    "add_special_tokens": Unbuilt(only(False), "The chat template writes the special tokens."),
}

COMPLETION_UNBUILT: Mapping[str, Unbuilt] = {
    **_COMMON,
    "prompt_embeds": Unbuilt(),
}

_OF_CHAT = "It belongs to the chat completions API; this API's own name for it is "

RESPONSES_UNBUILT: Mapping[str, Unbuilt] = {
    **_COMMON,
    # by the names of the chat API
    "messages": Unbuilt(instead=f"{_OF_CHAT}input."),
    "max_tokens": Unbuilt(instead=f"{_OF_CHAT}max_output_tokens."),
    "max_completion_tokens": Unbuilt(instead=f"{_OF_CHAT}max_output_tokens."),
    "response_format": Unbuilt(only({"type": "text"}), f"{_OF_CHAT}text.format."),
    "reasoning_effort": Unbuilt(instead=f"{_OF_CHAT}reasoning.effort."),
    "functions": Unbuilt(only([]), f"{_OF_CHAT}tools."),
    "function_call": Unbuilt(only("none"), f"{_OF_CHAT}tool_choice."),
    "logprobs": Unbuilt(only(False), f"{_OF_CHAT}include, with message.output_text.logprobs."),
    "verbosity": Unbuilt(only("medium"), f"{_OF_CHAT}text.verbosity."),
    "web_search_options": Unbuilt(),
    "audio": _MEDIA,
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "include_reasoning": Unbuilt(only(True), "Reasoning is an item of its own, which can be left alone."),
    "prompt_logprobs": Unbuilt(instead="Chat completions have it."),
    "echo": Unbuilt(only(False)),
    "add_special_tokens": Unbuilt(only(False), "The chat template writes the special tokens."),
    "add_generation_prompt": Unbuilt(only(True)),
    "continue_final_message": Unbuilt(only(False)),
    "return_token_ids": Unbuilt(only(False), "Chat completions have it."),
    # OpenAI
    "best_of": Unbuilt(only(1)),
    "suffix": Unbuilt(),
    "prompt_embeds": Unbuilt(),
    "n": Unbuilt(only(1), "A response is one answer; chat completions give several."),
    "prompt": Unbuilt(instead="There are no stored prompt templates; send instructions and input."),
    "modalities": Unbuilt(only(["text"]), "Only text is supported."),
    "image": Unbuilt(only({}, {"context_compression": "auto"}, {"context_compression": "disabled"})),
    "moderation": Unbuilt(),
    "context_management": Unbuilt(only([]), "With truncation, a response leaves out the oldest items."),
    "background_options": Unbuilt(only({}, {"completion_window": "soonest"})),
    "service_tier": Unbuilt(only("auto", "default"), 'Only "auto" and "default" are supported.'),
    "documents": Unbuilt(only([]), "chat_template_kwargs can pass values to the chat template."),
    "chat_template": Unbuilt(instead="Templates of clients are not run; the model's own is used."),
    # of other servers
    "enable_response_messages": Unbuilt(only(False)),
    "previous_input_messages": Unbuilt(only([]), "previous_response_id brings the history."),
}


def undescribed(unbuilt: Mapping[str, Unbuilt]) -> Callable[[dict[str, Any]], None]:
    """What takes these fields out of a request model's JSON schema: there may be some among those it shares."""

    def take_out(schema: dict[str, Any]) -> None:
        for name in schema["properties"].keys() & unbuilt.keys():
            del schema["properties"][name]

    return take_out


def refuse_unbuilt(body: Mapping[str, Any], unbuilt: Mapping[str, Unbuilt]) -> None:
    """Raise RequestError for the first field of ``body`` that asks for a feature that is not built."""
    for name in body.keys() & unbuilt.keys():
        value, rule = body[name], unbuilt[name]
        if value is not None and not rule.harmless(value, body):
            message = f"'{name}' is not supported by this server with the value given. {rule.instead}".rstrip()
            raise RequestError(message, param=name, code="unsupported_parameter")
