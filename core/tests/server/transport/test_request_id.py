"""Each response has an id that the log has too."""

from __future__ import annotations

import logging
import time

import openai
import pytest
from server_fake import FakeEngine


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/health", None),
        ("GET", "/v1/models", None),
        ("GET", "/nowhere", None),
        ("PUT", "/v1/models", None),
        ("POST", "/v1/completions", {"prompt": "a"}),
        ("POST", "/v1/completions", {"prompt": "a", "stream": True}),
        ("POST", "/v1/completions", b"{"),
        ("POST", "/v1/completions", b" " * 200_000),
    ],
)
def test_every_response_has_one(served, method: str, path: str, body) -> None:
    first, second = (served.request(method, path, body).headers["x-request-id"] for _ in range(2))
    assert first
    assert first != second
    assert served.request(method, path, body, {"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"


def test_a_failure_has_one(served, engine: FakeEngine) -> None:
    engine.fail_at = 0
    assert served.chat().headers["x-request-id"]


@pytest.mark.parametrize("bad", ["x" * 129, "two words", "tab\there", 'quote"', "é"])
def test_an_id_that_is_not_sane_is_replaced(served, bad: str) -> None:
    reply = served.request("GET", "/health", headers={"x-request-id": bad})
    assert reply.headers["x-request-id"] not in ("", bad)


def test_the_official_client_finds_it(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="fake", messages=[{"role": "user", "content": "Hi"}], extra_headers={"x-request-id": "mine"}
    )
    assert raw.headers["x-request-id"] == "mine"
    got = raw.parse()
    assert got.id == "chatcmpl-mine"
    assert got._request_id == "mine"


def test_the_access_log_tells_requests_but_not_probes(served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="octavo.access"):
        served.request("GET", "/health")
        served.request("GET", "/v1/models", headers={"x-request-id": "seen"})
        served.request("GET", "/v1/models/none")
        for _ in range(500):  # a line is written just after its response
            lines = [r.getMessage() for r in caplog.records if r.name == "octavo.access"]
            if len(lines) == 2:
                break
            time.sleep(0.01)
    first, second = lines
    assert "GET '/v1/models' 200" in first
    assert first.endswith("seen")
    assert "GET '/v1/models/none' 404" in second
