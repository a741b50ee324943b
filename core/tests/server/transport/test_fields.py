"""Known fields whose feature is not built: refused by name unless they ask for nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import BaseModel
from server_fake import FakeEngine

from octavo.server.generation.schema import ChatCompletionRequest, CompletionRequest, SamplingFields
from octavo.server.messages.schema import UNSUPPORTED as MESSAGES_UNSUPPORTED
from octavo.server.messages.schema import MessagesRequest
from octavo.server.pooling.schema import POOLING_UNSUPPORTED, EmbeddingRequest, RerankRequest, ScoreRequest
from octavo.server.responses.schema import ResponseRequest
from octavo.server.transport.fields import (
    CHAT_UNSUPPORTED,
    COMPLETION_UNSUPPORTED,
    RESPONSES_UNSUPPORTED,
    UnsupportedField,
)

ASKS = {
    "modalities": ["text", "audio"],
    "service_tier": "flex",
    "verbosity": "low",
    "length_penalty": 0.5,
    "stream_interval": 4,
    "best_of": 3,
    "vllm_xargs": {"a": 1},
    "spaces_between_special_tokens": False,
}
"""A value that asks for something, for the fields of which true does not."""


@pytest.mark.parametrize("name", sorted(CHAT_UNSUPPORTED))
def test_chat_refuses_by_name(served, engine: FakeEngine, name: str) -> None:
    reply = served.chat(**{name: ASKS.get(name, True)})
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, name, "unsupported_parameter")
    assert name in reply.error["message"]
    assert not engine.seen


@pytest.mark.parametrize("name", sorted(COMPLETION_UNSUPPORTED))
def test_completions_refuse_by_name(served, engine: FakeEngine, name: str) -> None:
    reply = served.complete(**{name: ASKS.get(name, True)})
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, name, "unsupported_parameter")
    assert not engine.seen


@pytest.mark.parametrize(
    ("name", "successor"),
    [
        ("guided_json", "json"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "grammar"),
        ("guided_json_object", "json_object"),
        ("ebnf", "grammar"),
    ],
)
def test_a_renamed_field_tells_its_successor(served, name: str, successor: str) -> None:
    assert f'"structured_outputs": {{"{successor}": …}}' in served.chat(**{name: "x"}).error["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": "none"},
        {"function_call": "none"},
        {"response_format": {"type": "text"}},
        {"parallel_tool_calls": True},
        {"parallel_tool_calls": False},
        {"store": True},
        {"prediction": {"type": "content", "content": "Hello"}},
        {"include_reasoning": True},
        {"documents": []},
        {"truncation_side": "left"},
        {"service_tier": "auto"},
        {"service_tier": "default"},
        {"modalities": ["text"]},
        {"use_beam_search": False},
        {"length_penalty": 1.0},
        {"length_penalty": 1},
        {"echo": False},
        {"add_special_tokens": False},
        {"verbosity": "medium"},
        {"spaces_between_special_tokens": True},
        {"bad_words": []},
        {"user": "me", "metadata": {"a": "b"}, "safety_identifier": "x", "prompt_cache_key": "y", "session_id": "z"},
        {"unheard_of": {"deep": [1, 2]}},
    ],
)
def test_what_asks_for_nothing_passes(served, fields) -> None:
    assert served.chat(**fields).status == 200


@pytest.mark.parametrize("value", [1, 1.0, "false", [], 0])
def test_types_count(served, value) -> None:
    """1 is not true, 0 is not false."""
    assert served.chat(use_beam_search=value).error["param"] == "use_beam_search"


@pytest.mark.parametrize(
    ("unsupported", "model"), [(CHAT_UNSUPPORTED, ChatCompletionRequest), (COMPLETION_UNSUPPORTED, CompletionRequest)]
)
def test_no_field_is_both_built_and_unsupported(unsupported, model) -> None:
    assert not unsupported.keys() & model.model_fields.keys()


@pytest.mark.parametrize(
    ("model", "unsupported"),
    [
        (ChatCompletionRequest, CHAT_UNSUPPORTED),
        (CompletionRequest, COMPLETION_UNSUPPORTED),
        (ResponseRequest, RESPONSES_UNSUPPORTED),
        (MessagesRequest, MESSAGES_UNSUPPORTED),
        (EmbeddingRequest, POOLING_UNSUPPORTED),
        (ScoreRequest, POOLING_UNSUPPORTED),
        (RerankRequest, POOLING_UNSUPPORTED),
    ],
)
def test_nothing_is_built_and_refused(model: type[BaseModel], unsupported: Mapping[str, UnsupportedField]) -> None:
    own = model.model_fields.keys() - SamplingFields.model_fields.keys()
    assert not own & unsupported.keys()
    described = model.model_json_schema()["properties"]
    assert not described.keys() & unsupported.keys()
    assert own <= described.keys()
