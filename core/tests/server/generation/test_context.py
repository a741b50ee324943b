"""Output limits that the context has no room for, and errors that name fields as the client has sent them."""

from __future__ import annotations

from typing import Any

import pytest
from server_fake import FakeEngine

from octavo.errors import ContextLengthExceeded, RequestError
from octavo.server.transport.refusals import naming


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 998}, "max_tokens"),
        ("/v1/completions", {"prompt": ["Hi", "Hello"], "max_tokens": 995}, "max_tokens"),
        ("/v1/chat/completions", {"max_tokens": 982}, "max_tokens"),
        ("/v1/chat/completions", {"max_completion_tokens": 982}, "max_completion_tokens"),
        ("/v1/chat/completions", {"max_tokens": 982, "max_completion_tokens": 982}, "max_completion_tokens"),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 982}, "max_output_tokens"),
    ],
)
def test_an_output_limit_beyond_the_context_is_refused_by_its_name(
    served, engine: FakeEngine, path: str, fields: dict[str, Any], param: str, stream: bool
) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]} if "chat" in path else {}
    body = {**chat, **fields, "stream": stream}
    reply = served.request("POST", path, body)
    assert (reply.status, reply.error["param"], reply.error["code"]) == (400, param, "context_length_exceeded")
    assert f"'{param}'" in reply.error["message"]
    assert "maximum context length is 1000 tokens" in reply.error["message"]
    assert not engine.seen
    assert served.request("POST", path, {**body, "context_overflow": "truncate"}).status == 200
    for seen in engine.seen:
        assert seen.params.max_tokens == 1000 - max(len(one.prompt) for one in engine.seen)
    fitting = {name: value - 1 if isinstance(value, int) else value for name, value in body.items() if name != "stream"}
    assert served.request("POST", path, fitting).status == 200


def test_what_the_client_did_not_ask_for_fits(served, engine: FakeEngine) -> None:
    engine.max_model_len, engine.default_params = 30, {"max_new_tokens": 500}
    assert served.chat().status == 200
    assert served.complete(prompt=[1] * 20).status == 200
    assert served.respond().status == 200
    assert [seen.params.max_tokens for seen in engine.seen] == [11, 10, 11]
    assert served.complete(prompt=[1] * 20, max_tokens=11, context_overflow="error").status == 400


def test_an_input_that_may_be_cut_brings_an_output_that_may(served, engine: FakeEngine) -> None:
    engine.max_model_len = 30
    assert served.respond(max_output_tokens=500, truncation="auto").status == 200
    assert engine.seen[0].params.max_tokens == 11


def test_tokens_are_counted_whatever_may_come_of_them(served, engine: FakeEngine) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5000}
    assert served.request("POST", "/tokenize", body).json["count"] == 19
    counted = served.request("POST", "/v1/responses/input_tokens", {"input": "Hi", "max_output_tokens": 5000})
    assert counted.json["input_tokens"] == 19


@pytest.mark.parametrize(
    ("error", "path", "fields", "param"),
    [
        (ContextLengthExceeded("lower max_tokens", param="max_tokens"), "chat/completions", {}, "max_tokens"),
        (
            ContextLengthExceeded("lower max_tokens", param="max_tokens"),
            "chat/completions",
            {"max_completion_tokens": 5},
            "max_completion_tokens",
        ),
        (ContextLengthExceeded("lower max_tokens", param="max_tokens"), "responses", {}, "max_output_tokens"),
        (ContextLengthExceeded("the prompt is too long", param="prompt"), "responses", {}, "input"),
        (ContextLengthExceeded("the prompt is too long", param="prompt"), "chat/completions", {}, "messages"),
        (ContextLengthExceeded("the prompt is too long", param="prompt"), "completions", {"prompt": "Hi"}, "prompt"),
        (RequestError("no", param="messages[1].content"), "responses", {}, "input"),
        (RequestError("no", param="messages[1].content"), "chat/completions", {}, "messages[1].content"),
        (RequestError("no", param="max_tokens_more"), "responses", {}, "max_tokens_more"),
    ],
)
def test_what_the_engine_refuses_has_the_client_s_name(
    served, engine: FakeEngine, error: RequestError, path: str, fields: dict[str, Any], param: str
) -> None:
    engine.fail_at, engine.error = 0, error
    body = {"messages": [{"role": "user", "content": "Hi"}]} if path == "chat/completions" else {"input": "Hi"}
    reply = served.request("POST", f"/v1/{path}", {**body, **fields})
    assert (reply.status, reply.error["param"]) == (400, param)
    if "max_tokens" in str(error):
        assert reply.error["message"] == f"lower {param}"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat", {"min_tokens": 9, "max_completion_tokens": 5}, "max_completion_tokens (5)"),
        ("responses", {"min_tokens": 9, "max_output_tokens": 5}, "max_output_tokens (5)"),
        ("messages", {"min_tokens": 9, "max_tokens": 5}, "max_tokens (5)"),
        ("messages", {"max_tokens": 5, "stop_sequences": ["x"] * 300}, "stop_sequences"),
    ],
)
def test_a_message_speaks_of_the_fields_of_its_api(served, path: str, fields: dict[str, Any], param: str) -> None:
    talk = {"messages": [{"role": "user", "content": "Hi"}]}
    paths = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
    body = {"input": "Hi"} if path == "responses" else {"model": "fake", **talk}
    reply = served.request("POST", paths[path], {**body, **fields})
    assert reply.status == 400
    assert param in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat", {"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
        (
            "chat",
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
        ),
        ("respond", {"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
        ("respond", {"reasoning": {"budget": 5}}, "reasoning.budget"),
        ("respond", {"text": {"schema": {}}}, "text.schema"),
        ("respond", {"text": {"format": {"type": "text", "schema": {}}}}, "text.format.schema"),
    ],
)
def test_a_member_that_nobody_reads_is_refused(served, path: str, fields: dict[str, Any], param: str) -> None:
    reply = getattr(served, path)(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_other_errors_keep_their_words() -> None:
    error = ContextLengthExceeded("send no more prompt than max_tokens, not 'prompt'", param="top_p")
    with pytest.raises(ContextLengthExceeded, match=r"^send no more prompt than limit, not .input.$") as caught:
        with naming({"max_tokens": "limit", "prompt": "input"}):
            raise error
    assert (caught.value.param, caught.value.code) == ("top_p", "context_length_exceeded")
