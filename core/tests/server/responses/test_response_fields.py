"""Known fields that a response cannot honour: refused by name unless they ask for nothing."""

from __future__ import annotations

import pytest
from server_fake import FakeEngine

from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest
from octavo.server.responses.schema import ResponseRequest
from octavo.server.transport.fields import CHAT_UNSUPPORTED, COMPLETION_UNSUPPORTED, RESPONSES_UNSUPPORTED

ASKS = {
    "response_format": {"type": "json_object"},
    "functions": [{"name": "f"}],
    "function_call": "auto",
    "modalities": ["text", "audio"],
    "service_tier": "flex",
    "length_penalty": 0.5,
    "stream_interval": 4,
    "n": 2,
    "documents": [{}],
    "vllm_xargs": {"a": 1},
    "spaces_between_special_tokens": False,
    "add_generation_prompt": False,
    "include_reasoning": False,
    "verbosity": "low",
}
"""A value that asks for something, for the fields of which true does not."""


@pytest.mark.parametrize("name", sorted(RESPONSES_UNSUPPORTED))
def test_it_is_refused_by_name(served, engine: FakeEngine, name: str) -> None:
    reply = served.respond(**{name: ASKS.get(name, True)})
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, name, "unsupported_parameter")
    assert name in reply.error["message"]
    assert not engine.seen


def test_fields_of_the_chat_api_tell_their_successors(served) -> None:
    for old, new in (("messages", "input"), ("max_tokens", "max_output_tokens"), ("response_format", "text.format")):
        assert new in served.respond(**{old: 3}).error["message"]


def test_what_asks_for_nothing_passes(served) -> None:
    harmless = {"n": 1, "service_tier": "default", "context_management": [], "logprobs": False, "functions": []}
    assert served.respond(**harmless, prompt_cache_retention="24h", unknown=1).status == 200


def test_no_field_is_both_built_and_unsupported() -> None:
    both = set(RESPONSES_UNSUPPORTED) & set(ResponseRequest.model_fields)
    assert both == {"n", "response_format", "return_token_ids"}  # shared with the other APIs, which honour them


def test_no_field_of_the_other_apis_is_ignored() -> None:
    known = {
        *ChatCompletionRequest.model_fields,
        *CompletionRequest.model_fields,
        *CHAT_UNSUPPORTED,
        *COMPLETION_UNSUPPORTED,
    }
    assert known <= {*ResponseRequest.model_fields, *RESPONSES_UNSUPPORTED}
