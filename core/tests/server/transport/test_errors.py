"""Every failure is an OpenAI error object with the right status, and tells no secrets."""

from __future__ import annotations

import logging
import socket

import openai
import pytest
from server_fake import FakeEngine

from octavo.errors import ContextLengthExceeded, EngineDead, QueueFull, RequestError, RequestFailed

USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "a",}',
        b"{'prompt': 'a'}",
        b'{"temperature": NaN}',
        b'\xff\xfe{"prompt": "a"}',
        b'{"prompt": "\\ud800", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[]",
        b'"text"',
        b"null",
        b"[" * 50_000,
    ],
)
def test_malformed_json_is_a_400(served, engine: FakeEngine, path: str, body: bytes) -> None:
    reply = served.request("POST", path, body)
    assert (reply.status, reply.error["code"]) == (400, "invalid_json")
    assert not engine.seen


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_content_type_is_a_415(served, engine: FakeEngine, kind: str) -> None:
    """A web page can send these to localhost without asking first."""
    reply = served.request("POST", "/v1/completions", b'{"prompt": "a"}', {"content-type": kind})
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    assert not engine.seen


def test_a_charset_is_no_other_content_type(served) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert served.request("POST", "/v1/completions", b'{"prompt": "a"}', headers).status == 200


def test_an_unknown_route_is_a_404(served) -> None:
    reply = served.request("GET", "/v1/nothing")
    assert (reply.status, reply.error["code"]) == (404, "not_found")
    assert "/v1/nothing" in reply.error["message"]


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/v1/models/"])
def test_nothing_is_served_that_was_not_meant_to_be(served, path: str) -> None:
    assert served.request("GET", path).status == 404


def test_a_wrong_method_is_a_405(served) -> None:
    reply = served.request("GET", "/v1/chat/completions")
    assert (reply.status, reply.error["code"], reply.headers["allow"]) == (405, "method_not_allowed", "POST")


def test_a_large_body_is_a_413(served, engine: FakeEngine) -> None:
    reply = served.request("POST", "/v1/completions", {"prompt": "x" * 100_000})
    assert (reply.status, reply.error["code"]) == (413, "request_too_large")
    assert "100000" in reply.error["message"]
    assert not engine.seen


def test_a_large_body_of_undeclared_length_is_a_413(served, engine: FakeEngine) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(11):
            sock.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert not engine.seen


def test_the_largest_body_passes(served) -> None:
    body = b'{"prompt": "a", "user": "'
    body += b"x" * (100_000 - len(body) - 2) + b'"}'
    assert served.request("POST", "/v1/completions", body).status == 200


def test_an_unknown_model_is_a_404_for_the_official_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=USER)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert "fake, org/fake-model" in caught.value.message
    with pytest.raises(
        openai.NotFoundError, match=r"The model 'gpt-4o' is not served here; served: fake, org/fake-model\."
    ):
        client.completions.create(model="gpt-4o", prompt="a")


def test_a_bad_request_is_one_for_the_official_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"top_p must be in \(0, 1\], not 7\.0") as caught:
        client.chat.completions.create(model="fake", messages=USER, top_p=7)
    assert (caught.value.param, caught.value.type) == ("top_p", "invalid_request_error")
    assert caught.value.request_id


ENGINE_ERRORS = [
    (RequestError("prompt is too odd", param="prompt"), 400, "invalid_request_error", None, {}),
    (
        ContextLengthExceeded("1200 > 1000", param="messages"),
        400,
        "invalid_request_error",
        "context_length_exceeded",
        {},
    ),
    (QueueFull("256 requests wait"), 429, "rate_limit_error", "queue_full", {"retry-after": "1"}),
    (QueueFull("4096 wait", retry_after=7.2), 429, "rate_limit_error", "queue_full", {"retry-after": "8"}),
    (EngineDead("gone: secret"), 503, "server_error", "engine_dead", {"retry-after": "10"}),
    (RequestFailed("secret"), 500, "server_error", "internal_error", {"x-should-retry": "false"}),
    (ZeroDivisionError("secret"), 500, "server_error", "internal_error", {"x-should-retry": "false"}),
]


@pytest.mark.parametrize(("error", "status", "kind", "code", "headers"), ENGINE_ERRORS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["a", ["a", "b", "c"]])
def test_what_the_engine_raises_before_the_first_token_is_a_status(
    served, engine: FakeEngine, error, status, kind, code, headers, stream, prompt
) -> None:
    engine.error, engine.fail_at = error, 0
    reply = served.complete(prompt=prompt, stream=stream)
    assert (reply.status, reply.error["type"], reply.error["code"]) == (status, kind, code)
    assert reply.headers.items() >= headers.items()
    assert "secret" not in reply.error["message"]
    assert (status < 500) == (str(error) == reply.error["message"])
    engine.wait_until(lambda: engine.running == 0)


@pytest.mark.parametrize(("error", "status", "kind", "code", "headers"), ENGINE_ERRORS)
@pytest.mark.parametrize("path", ["chat", "complete"])
def test_what_the_engine_raises_later_is_an_event(
    served, engine: FakeEngine, error, status, kind, code, headers, path
) -> None:
    engine.error, engine.fail_at = error, 2
    *events, last = getattr(served, path)(stream=True).events
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * len(events)
    assert events
    assert (last["error"]["type"], last["error"]["code"]) == (kind, code)
    assert "secret" not in last["error"]["message"]


def test_a_broken_stream_raises_in_the_official_client(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.fail_at = 2
    stream = client.chat.completions.create(model="fake", messages=USER, stream=True)
    said = [next(stream).choices[0].delta.content for _ in range(3)]
    with pytest.raises(openai.APIError, match="failed"):
        next(stream)
    assert said == ["", "Hello", ","]


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_a_reason_that_is_not_of_the_api_is_a_failure(served, engine: FakeEngine, reason: str) -> None:
    engine.bad_finish = reason
    assert (served.chat().status, served.complete(stream=True).status) == (500, 500)


def test_the_log_has_what_the_client_is_not_told(served, engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    engine.fail_at = 0
    with caplog.at_level(logging.ERROR, logger="octavo.server"):
        reply = served.request("POST", "/v1/completions", {"prompt": "a"}, {"x-request-id": "look-for-me"})
    assert reply.status == 500
    assert "look-for-me" in reply.error["message"]
    [record] = [r for r in caplog.records if r.name == "octavo.server"]
    assert "look-for-me" in record.getMessage()
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "secret /path of the engine"


def test_one_failure_leaves_the_server_serving(served, engine: FakeEngine) -> None:
    engine.fail_at = 0
    assert served.chat().status == 500
    engine.fail_at = None
    assert served.chat().status == 200


def test_one_failed_prompt_ends_its_siblings(served, engine: FakeEngine) -> None:
    engine.fail_at, engine.pause = 1, 0.01
    assert served.complete(prompt=["a", "b", "c"]).status == 500
    engine.wait_until(lambda: engine.running == 0 and len(engine.ended) == 3)
