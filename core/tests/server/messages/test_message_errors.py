"""What the Messages API refuses: by its own error object, with the path of what is at fault."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from server_fake import FakeEngine

from octavo.errors import EngineDead, QueueFull

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "look", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "seen"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}


def asks(content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


def told(reply: Any) -> dict[str, Any]:
    """The error of a reply, after checking its shape."""
    assert set(reply.json) == {"type", "error", "request_id"}
    assert reply.json["type"] == "error"
    assert reply.json["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]
    assert set(reply.json["error"]) == {"type", "message"}
    return reply.json["error"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": ["Hi"]}, "messages"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages.0.role"),
        ({"messages": [{"content": "Hi"}]}, "messages.0.role"),
        (asks(None), "messages.0.content"),
        (asks(7), "messages.0.content"),
        (asks(["Hi"]), "messages.0.content.0"),
        (asks([{"text": "Hi"}]), "messages.0.content.0"),
        (asks([{"type": "text"}]), "messages.0.content.0.text"),
        (asks([{"type": "text", "text": "a"}, IMAGE]), "messages.0.content.1.type"),
        (asks([{"type": "document", "source": {}}]), "messages.0.content.0.type"),
        (asks([CALL]), "messages.0.content.0.type"),
        (asks([RESULT], "assistant"), "messages.0.content.0.type"),
        (asks([RESULT]), "messages"),
        (asks([CALL], "assistant"), "messages"),
        (asks([{**CALL, "input": None}], "assistant"), "messages.0.content.0.input"),
        (asks([{**CALL, "id": None}], "assistant"), "messages.0.content.0.id"),
        (asks([{**CALL, "name": ""}], "assistant"), "messages.0.content.0.name"),
        (asks([CALL, CALL], "assistant"), "messages.0.content.1.id"),
        (asks([{"type": "server_tool_use", "id": "s"}], "assistant"), "messages.0.content.0.type"),
        ({"messages": [*HI, {"role": "assistant", "content": [CALL]}, *HI]}, "messages"),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [CALL]},
                    {"role": "user", "content": [RESULT, RESULT]},
                ]
            },
            "messages.1.content.1.tool_use_id",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": [CALL]},
                    {"role": "user", "content": [{**RESULT, "content": [IMAGE]}]},
                ]
            },
            "messages.1.content.0.content.0.type",
        ),
        ({"messages": [{"role": "assistant", "content": ""}]}, "messages"),
        ({"system": 7}, "system"),
        ({"system": [IMAGE]}, "system.0.type"),
        ({"tools": [{"name": "look"}]}, "tools.0.input_schema"),
        ({"tools": [{**TOOL, "name": "two words"}]}, "tools.0.name"),
        ({"tools": [TOOL, TOOL]}, "tools.1.name"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tools": [{**TOOL, "description": 1}]}, "tools.0.description"),
        ({"tools": [{**TOOL, "strict": 1}]}, "tools.0.strict"),
        ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "must"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}},
            "tool_choice.disable_parallel_tool_use",
        ),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json"}}}, "output_config.format"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
        ({"output_format": {"type": "json_schema", "schema": 1}}, "output_format"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits.0.type"),
        ({"mcp_servers": [{"url": "u"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"n": 2}, "n"),
        ({"guided_json": {}}, "guided_json"),
        ({"stop": "x"}, "stop"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_a_wrong_value_is_a_400_that_names_its_path(served, engine: FakeEngine, path, fields, named) -> None:
    reply = served.request("POST", path, {"model": "fake", "max_tokens": 9, "messages": HI} | fields)
    error = told(reply)
    assert (reply.status, error["type"]) == (400, "invalid_request_error")
    assert named in error["message"]
    assert not engine.seen


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop"),
        ({"thinking": {"type": "enabled", "display": "full"}}, "thinking.display"),
        ({"top_p": 0}, "top_p"),
    ],
)
def test_a_wrong_value_of_sampling_is_named(served, engine: FakeEngine, fields, named) -> None:
    reply = served.request("POST", "/v1/messages", {"model": "fake", "max_tokens": 9, "messages": HI} | fields)
    assert (reply.status, named in told(reply)["message"], engine.seen) == (400, True, [])


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (QueueFull("full"), 429, "rate_limit_error"),
        (EngineDead("gone"), 503, "overloaded_error"),
        (RuntimeError("secret"), 500, "api_error"),
    ],
)
def test_failures_have_the_types_of_the_api(served, engine: FakeEngine, error, status, kind) -> None:
    engine.fail_at, engine.error = 0, error
    reply = served.request("POST", "/v1/messages", {"model": "fake", "max_tokens": 9, "messages": HI})
    assert (reply.status, told(reply)["type"]) == (status, kind)
    assert "secret" not in reply.body.decode()


def test_the_client_raises_the_exceptions_of_each_status(claude: anthropic.Anthropic, served) -> None:
    with pytest.raises(
        anthropic.NotFoundError, match=r"The model 'claude-none' is not served here; served: fake, org/fake-model\."
    ) as missing:
        claude.messages.create(model="claude-none", max_tokens=9, messages=HI)
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert missing.value.request_id == missing.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError, match="messages: must hold at least one message"):
        claude.messages.count_tokens(model="fake", messages=[])
    reply = served.request("POST", "/v1/messages", b"{" + b" " * 200_000)
    assert (reply.status, told(reply)["type"]) == (413, "request_too_large")
    reply = served.request("GET", "/v1/messages")
    assert (reply.status, told(reply)["type"]) == (405, "invalid_request_error")
    reply = served.request("GET", "/v1/messages/batches")
    assert (reply.status, told(reply)["type"]) == (404, "not_found_error")


def test_other_routes_keep_their_errors(served) -> None:
    assert served.request("POST", "/v1/chat/completions", {"model": "none", "messages": HI}).status == 404
    assert "error" in served.request("GET", "/v1/message").json
    assert set(served.request("GET", "/v1/message").json) == {"error"}


TEXT = {"type": "text", "text": "Hi"}
CALLED = [*HI, {"role": "assistant", "content": [CALL]}]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"chat_template_kwargs": {}}, "chat_template_kwargs"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"return_token_ids": True}, "return_token_ids"),
        ({"compaction": {"type": "x"}}, "compaction"),
        ({"fallbacks": [{"model": "m"}]}, "fallbacks"),
        ({"inference_geo": "us"}, "inference_geo"),
        ({"thread": {"id": "t"}}, "thread"),
        ({"diagnostics": {"previous_message_id": "m"}}, "diagnostics"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"messages": [{"role": "user", "content": "Hi", "name": "Bo"}]}, "messages.0.name"),
        (asks([{**TEXT, "color": "red"}]), "messages.0.content.0.color"),
        ({"system": [{**TEXT, "color": "red"}]}, "system.0.color"),
        (asks([{**CALL, "caller": {"type": "code_execution_20250825"}}], "assistant"), "messages.0.content.0.caller"),
        (asks([{**CALL, "toolset_name": "x"}], "assistant"), "messages.0.content.0.toolset_name"),
        (
            {"messages": [*CALLED, {"role": "user", "content": [{**RESULT, "is_error": "no"}]}]},
            "messages.2.content.0.is_error",
        ),
        (
            {"messages": [*CALLED, {"role": "user", "content": [{**RESULT, "status": "ok"}]}]},
            "messages.2.content.0.status",
        ),
        ({"tools": [{**TOOL, "input_examples": [{}]}]}, "tools.0.input_examples"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools.0.defer_loading"),
        ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}, "tools.0.allowed_callers"),
        ({"tools": [{**TOOL, "parameters": {}}]}, "tools.0.parameters"),
        ({"tools": [TOOL], "tool_choice": {"type": "auto", "name": "look"}}, "tool_choice.name"),
        ({"thinking": {"type": "enabled", "budget_tokens": "5"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "effort": "low"}}, "thinking.effort"),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 5}}}, "output_config.task_budget"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {}, "strict": True}}},
            "output_config.format.strict",
        ),
        ({"context_management": {"edits": 5}}, "context_management.edits"),
        ({"context_management": {"keep": 5}}, "context_management.keep"),
        ({"metadata": "me"}, "metadata"),
    ],
)
def test_a_field_that_nobody_reads_is_refused(served, engine: FakeEngine, path, fields, named) -> None:
    reply = served.request("POST", path, {"model": "fake", "max_tokens": 9, "messages": HI} | fields)
    assert (reply.status, told(reply)["type"]) == (400, "invalid_request_error")
    assert named in told(reply)["message"]
    assert not engine.seen


def test_what_concerns_caching_billing_and_speed_alone_passes(served, engine: FakeEngine) -> None:
    cached = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {
        "model": "fake",
        "max_tokens": 9,
        "system": [{**TEXT, **cached}],
        "messages": [
            {"role": "user", "content": [{**TEXT, "citations": None, **cached}]},
            {"role": "assistant", "content": [{**TEXT, "citations": [{"type": "char_location"}]}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]},
            {"role": "assistant", "content": [{**CALL, "caller": {"type": "direct"}, **cached}]},
            {"role": "user", "content": [{**RESULT, "is_error": False, **cached}]},
        ],
        "tools": [{**TOOL, **cached, "eager_input_streaming": True, "allowed_callers": ["direct"], "type": "custom"}],
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "speed": "fast",
        "inference_geo": "global",
        "betas": ["x"],
        "anthropic_version": "bedrock-2023-05-31",
        "anthropic_beta": ["y"],
        "user_profile_id": "p",
        "fallbacks": [],
        "stream_options": None,
        **cached,
    }
    assert served.request("POST", "/v1/messages", body).status == 200
    assert served.request("POST", "/v1/messages/count_tokens", body).json["input_tokens"] == len(engine.seen[0].prompt)
