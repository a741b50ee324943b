"""Names of the server: a page elsewhere must not pass for ours by pointing its own name here."""

from __future__ import annotations

import pytest
from server_fake import FakeEngine
from starlette.types import Message

from octavo.server import ServerSettings, create_app
from octavo.server.transport.hosts import harmless, is_loopback, name_of


@pytest.mark.parametrize(
    "host", ["evil.example", "EVIL.example.:8000", "127.0.0.1.evil.example", "localhost.evil.example"]
)
def test_a_public_name_is_refused_with_the_cure(served, engine: FakeEngine, host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
        body = {"messages": [{"role": "user", "content": "Hi"}]} if method == "POST" else None
        reply = served.request(method, path, body, {"host": host})
        assert reply.status == 403
        assert "--allowed-host" in reply.error["message"]
    assert not engine.seen


@pytest.mark.parametrize(
    "host", ["localhost:8000", "127.0.0.1", "[::1]:80", "box", "box.local", "host.docker.internal:1"]
)
def test_names_that_no_stranger_can_own_pass(served, host: str) -> None:
    assert served.request("GET", "/v1/models", headers={"host": host}).status == 200


async def _status(app, server: str, host: str) -> int:
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "http_version": "1.1", "path": "/health",
        "raw_path": b"/health", "query_string": b"", "root_path": "", "headers": [(b"host", host.encode())],
        "server": (server, 8000), "client": ("10.0.0.9", 1),
    }  # fmt: skip
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"]


async def test_a_name_may_be_allowed_and_other_interfaces_answer_to_any() -> None:
    app = create_app(FakeEngine(), ServerSettings(allowed_hosts=("Models.example",)))
    assert await _status(app, "127.0.0.1", "models.EXAMPLE:443") == 200
    assert await _status(app, "127.0.0.1", "other.example") == 403
    assert await _status(app, "::1", "other.example") == 403
    assert await _status(app, "10.0.0.1", "other.example") == 200


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"])
def test_a_page_of_another_site_cannot_send_forms(served, kind: str) -> None:
    def send(site: str) -> int:
        headers = {"content-type": kind, "sec-fetch-site": site}
        return served.request("POST", "/v1/chat/completions", b"{}", headers).status

    assert send("cross-site") == 403
    assert send("same-origin") == 415
    assert served.request("GET", "/", headers={"sec-fetch-site": "cross-site"}).status == 200, "a link may lead here"


def test_names_are_read_as_browsers_write_them() -> None:
    assert [name_of(h) for h in ("A.b:1", "[::1]:1", "[fe80::1]", "a.", "")] == ["a.b", "::1", "fe80::1", "a", ""]
    assert harmless("10.1.2.3") and harmless("") and not harmless("10.1.2.3.nip.example")
    assert is_loopback("127.9.9.9") and not is_loopback("10.0.0.1") and not is_loopback("localhost")
