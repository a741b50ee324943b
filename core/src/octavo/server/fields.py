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


_GUIDED = Unbuilt(instead="Its successor is structured_outputs, which is not supported yet either.")
_CONSTRAINED = Unbuilt(instead="Output cannot be constrained yet.")
_MEDIA = Unbuilt(instead="Only text is supported.")

_COMMON: dict[str, Unbuilt] = {
    # OpenAI
    "response_format": Unbuilt(only({"type": "text"}), 'Only {"type": "text"} is supported.'),
    # structured output, by the names of several servers
    **dict.fromkeys(
        (
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "guided_json_object",
            "guided_decoding_backend",
            "guided_whitespace_pattern",
            "structural_tag",
        ),
        _GUIDED,
    ),
    **dict.fromkeys(("structured_outputs", "grammar", "json_schema", "regex", "ebnf"), _CONSTRAINED),
    # sampling
    "use_beam_search": Unbuilt(only(False), "Beam search is not available; use n with sampling."),
    "length_penalty": Unbuilt(only(1, 1.0), "It belongs to beam search."),
    "allowed_token_ids": Unbuilt(only([]), "logit_bias can favour tokens."),
    "bad_words": Unbuilt(only([]), "logit_bias can forbid tokens."),
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


def refuse_unbuilt(body: Mapping[str, Any], unbuilt: Mapping[str, Unbuilt]) -> None:
    """Raise RequestError for the first field of ``body`` that asks for a feature that is not built."""
    for name in body.keys() & unbuilt.keys():
        value, rule = body[name], unbuilt[name]
        if value is not None and not rule.harmless(value, body):
            message = f"'{name}' is not supported by this server with the value given. {rule.instead}".rstrip()
            raise RequestError(message, param=name, code="unsupported_parameter")
