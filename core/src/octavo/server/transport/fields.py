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
class UnsupportedField:
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
_MEDIA = UnsupportedField(instead="Only text is supported.")

_COMMON: dict[str, UnsupportedField] = {
    # structured output, by the names of several servers
    **{
        old: UnsupportedField(instead=f'Its successor is "structured_outputs": {{"{new}": …}}.')
        for old, new in _SUCCESSORS.items()
    },
    "guided_decoding_backend": UnsupportedField(
        only("auto", "guidance"), "Leave it out: structured_outputs has one backend."
    ),
    "guided_whitespace_pattern": UnsupportedField(
        instead="Leave it out: whitespace is as in JSON, up to 64 at a time."
    ),
    # sampling
    "use_beam_search": UnsupportedField(only(False), "Beam search is not available; use n with sampling."),
    "length_penalty": UnsupportedField(only(1, 1.0), "It belongs to beam search."),
    "logprob_token_ids": UnsupportedField(),
    "repetition_detection": UnsupportedField(),
    "thinking_token_budget": UnsupportedField(),
    "watermarking": UnsupportedField(only(False)),
    # prompt and text
    "spaces_between_special_tokens": UnsupportedField(only(True)),
    "return_prompt_text": UnsupportedField(only(False)),
    "stream_interval": UnsupportedField(only(1)),
    "kv_transfer_params": UnsupportedField(),
    "ec_transfer_params": UnsupportedField(),
    "vllm_xargs": UnsupportedField(only({})),
}

CHAT_UNSUPPORTED: Mapping[str, UnsupportedField] = {
    **_COMMON,
    "audio": _MEDIA,
    "modalities": UnsupportedField(only(["text"]), "Only text is supported."),
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "moderation": UnsupportedField(),
    "verbosity": UnsupportedField(only("medium")),
    "service_tier": UnsupportedField(only("auto", "default"), 'Only "auto" and "default" are supported.'),
    "web_search_options": UnsupportedField(),
    "add_special_tokens": UnsupportedField(only(False), "The chat template writes the special tokens."),
}

COMPLETION_UNSUPPORTED: Mapping[str, UnsupportedField] = {
    **_COMMON,
    "prompt_embeds": UnsupportedField(),
}

_OF_CHAT = "It belongs to the chat completions API; this API's own name for it is "

RESPONSES_UNSUPPORTED: Mapping[str, UnsupportedField] = {
    **_COMMON,
    # by the names of the chat API
    "messages": UnsupportedField(instead=f"{_OF_CHAT}input."),
    "max_tokens": UnsupportedField(instead=f"{_OF_CHAT}max_output_tokens."),
    "max_completion_tokens": UnsupportedField(instead=f"{_OF_CHAT}max_output_tokens."),
    "response_format": UnsupportedField(only({"type": "text"}), f"{_OF_CHAT}text.format."),
    "reasoning_effort": UnsupportedField(instead=f"{_OF_CHAT}reasoning.effort."),
    "functions": UnsupportedField(only([]), f"{_OF_CHAT}tools."),
    "function_call": UnsupportedField(only("none"), f"{_OF_CHAT}tool_choice."),
    "logprobs": UnsupportedField(only(False), f"{_OF_CHAT}include, with message.output_text.logprobs."),
    "verbosity": UnsupportedField(only("medium"), f"{_OF_CHAT}text.verbosity."),
    "web_search_options": UnsupportedField(),
    "audio": _MEDIA,
    "media_io_kwargs": _MEDIA,
    "mm_processor_kwargs": _MEDIA,
    "include_reasoning": UnsupportedField(only(True), "Reasoning is an item of its own, which can be left alone."),
    "prompt_logprobs": UnsupportedField(instead="Chat completions have it."),
    "echo": UnsupportedField(only(False)),
    "add_special_tokens": UnsupportedField(only(False), "The chat template writes the special tokens."),
    "add_generation_prompt": UnsupportedField(only(True)),
    "continue_final_message": UnsupportedField(only(False)),
    "return_token_ids": UnsupportedField(only(False), "Chat completions have it."),
    # OpenAI
    "best_of": UnsupportedField(only(1)),
    "suffix": UnsupportedField(),
    "prompt_embeds": UnsupportedField(),
    "n": UnsupportedField(only(1), "A response is one answer; chat completions give several."),
    "prompt": UnsupportedField(instead="There are no stored prompt templates; send instructions and input."),
    "modalities": UnsupportedField(only(["text"]), "Only text is supported."),
    "image": UnsupportedField(only({}, {"context_compression": "auto"}, {"context_compression": "disabled"})),
    "moderation": UnsupportedField(),
    "context_management": UnsupportedField(only([]), "With truncation, a response leaves out the oldest items."),
    "background_options": UnsupportedField(only({}, {"completion_window": "soonest"})),
    "service_tier": UnsupportedField(only("auto", "default"), 'Only "auto" and "default" are supported.'),
    "documents": UnsupportedField(only([]), "chat_template_kwargs can pass values to the chat template."),
    "chat_template": UnsupportedField(instead="Templates of clients are not run; the model's own is used."),
    # of other servers
    "enable_response_messages": UnsupportedField(only(False)),
    "previous_input_messages": UnsupportedField(only([]), "previous_response_id brings the history."),
}


def undescribed(unsupported: Mapping[str, UnsupportedField]) -> Callable[[dict[str, Any]], None]:
    """What takes these fields out of a request model's JSON schema: there may be some among those it shares."""

    def take_out(schema: dict[str, Any]) -> None:
        for name in schema["properties"].keys() & unsupported.keys():
            del schema["properties"][name]

    return take_out


def refuse_unsupported(body: Mapping[str, Any], unsupported: Mapping[str, UnsupportedField]) -> None:
    """Raise RequestError for the first field of ``body`` that asks for a feature that is not built."""
    for name in body.keys() & unsupported.keys():
        value, rule = body[name], unsupported[name]
        if value is not None and not rule.harmless(value, body):
            message = f"'{name}' is not supported by this server with the value given. {rule.instead}".rstrip()
            raise RequestError(message, param=name, code="unsupported_parameter")
