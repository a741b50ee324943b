"""SageMaker's two routes, and what balancers ask."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from server_fake import FakeEngine

from octavo import __version__
from octavo.errors import EngineDead

HI = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("body", "kind"), [({"messages": HI}, "chat.completion"), ({"prompt": "Hi"}, "text_completion")]
)
def test_the_body_says_which_api_is_meant(served, body, kind) -> None:
    reply = served.request("POST", "/invocations", body | {"max_tokens": 2})
    assert (reply.status, reply.json["object"]) == (200, kind)
    assert reply.headers["x-request-id"] in reply.json["id"]


def test_an_invocation_can_be_a_stream(served) -> None:
    events = served.request("POST", "/invocations", {"prompt": "Hi", "stream": True}).events
    assert "".join(event["choices"][0]["text"] for event in events) == "Hello, world!"


def test_errors_are_those_of_the_api(served, engine: FakeEngine) -> None:
    reply = served.request("POST", "/invocations", {"prompt": "Hi", "max_tokens": -1})
    assert (reply.status, reply.error["param"]) == (400, "max_tokens")
    engine.fail_at = 0
    reply = served.request("POST", "/invocations", {"prompt": "Hi"})
    assert (reply.status, reply.error["type"]) == (500, "server_error")


@pytest.mark.parametrize("body", [{}, {"prompt": None}, {"requestType": "NEW_SESSION"}, {"query": "a"}])
def test_a_body_of_no_api_is_a_400(served, body) -> None:
    reply = served.request("POST", "/invocations", body)
    assert reply.status == 400
    assert "messages for /v1/chat/completions" in reply.error["message"]


def test_the_adapter_s_header_names_the_model(served, engine: FakeEngine) -> None:
    def invoke(adapter: str) -> Any:
        headers = {"X-Amzn-SageMaker-Adapter-Identifier": adapter}
        return served.request("POST", "/invocations", {"prompt": "Hi", "model": "fake"}, headers)

    assert invoke("org/fake-model").json["model"] == "org/fake-model"
    assert (invoke("other").status, len(engine.seen)) == (404, 1)


def test_a_client_that_goes_away_ends_its_invocation(served, engine: FakeEngine) -> None:
    import http.client

    engine.pause = 0.05
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    body = json.dumps({"prompt": "Hi", "stream": True})
    connection.request("POST", "/invocations", body, {"content-type": "application/json"})
    connection.getresponse().read(10)
    connection.close()
    engine.wait_until(lambda: engine.ended and not engine.running)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_ping_tells_whether_the_engine_serves(served, engine: FakeEngine, method) -> None:
    assert served.request(method, "/ping").status == 200
    engine.dead = EngineDead("gone")
    assert served.request(method, "/ping").status == 503


def test_the_version_is_told(served) -> None:
    assert served.request("GET", "/version").json == {"version": __version__}


def test_the_load_counts_the_requests_being_answered(served, engine: FakeEngine) -> None:
    def load() -> int:
        return served.request("GET", "/load").json["server_load"]

    assert load() == 0
    engine.pause = 0.2
    other = threading.Thread(target=served.complete)
    other.start()
    engine.wait_until(lambda: engine.running == 1)
    assert load() == 1
    other.join(30)
    engine.pause = 0
    assert served.complete(max_tokens=-1).status == 400
    assert load() == 0
