"""Limits on connections, headers, slow uploads, slow readers and the time of a request, on raw sockets."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import openai
import pytest
from server.conftest import Served
from server.limited_server import connect, read_all, serving
from server_fake import HELLO, FakeEngine

from octavo.server.transport.limits import Limits

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n"


def error_of(reply: bytes, status: int) -> dict[str, str]:
    """The error object of a raw reply that ends its connection."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), reply[:300]
    assert b"\r\nconnection: close" in head.lower()
    [error] = json.loads(body).values()
    assert set(error) == {"message", "type", "param", "code"}
    return error  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def limited() -> Iterator[Served]:
    limits = Limits(connections=8, headers=5, header_bytes=2048, header_seconds=0.5, idle_seconds=1.0, body_seconds=0.5)
    with serving(FakeEngine(), limits) as served:
        yield served


def test_a_connection_too_many_is_told_to_come_back(limited: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(connect(limited)).sendall(GET[:10])
        reply = read_all(stack.enter_context(connect(limited)))
        error = error_of(reply, 503)
        assert b"\r\nretry-after: 1\r\n" in reply
        assert (error["code"], error["type"]) == ("too_many_connections", "server_error")
        assert "8 connections" in error["message"]
    until(lambda: limited.request("GET", "/health").status == 200)


def until(check, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("request_bytes", "limit"),
    [
        (GET + b"a: b\r\n" * 5 + b"\r\n", "headers"),
        (GET + b"a: " + b"b" * 2048 + b"\r\n\r\n", "header_bytes"),
        (b"GET /" + b"x" * 2048 + b" HTTP/1.1\r\nhost: x\r\n\r\n", "header_bytes"),
        (GET + b"endless: " + b"x" * 400_000, "header_bytes"),
        (b"GET /" + b"x" * 400_000, "header_bytes"),
    ],
)
def test_headers_too_many_or_too_large_are_a_431(limited: Served, request_bytes: bytes, limit: str) -> None:
    with connect(limited) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request_bytes)
        reply = read_all(sock)
    if reply:  # with bytes of ours unread, the system may reset the connection instead
        error = error_of(reply, 431)
        assert error["code"] == "headers_too_large"
        assert f"({limit})" in error["message"]
    else:
        assert len(request_bytes) > 100_000


def test_as_many_headers_as_are_allowed_pass(limited: Served) -> None:
    with connect(limited) as sock:
        sock.sendall(GET + b"a: b\r\n" * 3 + b"connection: close\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 200 ")


def test_headers_that_come_too_slowly_are_a_408(limited: Served) -> None:
    with connect(limited) as sock:
        sock.sendall(GET)
        error = error_of(read_all(sock), 408)
    assert (error["code"], "(header_seconds)" in error["message"]) == ("request_timeout", True)


def test_headers_of_a_second_request_have_the_same_time(limited: Served) -> None:
    with connect(limited) as sock:
        sock.sendall(GET + b"\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
        sock.sendall(GET)
        assert b"HTTP/1.1 408 " in read_all(sock)


def test_a_connection_that_asks_nothing_is_closed(limited: Served) -> None:
    with connect(limited) as sock:
        assert read_all(sock) == b""


def test_an_idle_connection_is_closed(limited: Served) -> None:
    with connect(limited) as sock:
        sock.sendall(GET + b"\r\n")
        assert read_all(sock).count(b"HTTP/1.1 ") == 1


def test_a_body_that_comes_too_slowly_is_a_408(limited: Served) -> None:
    with connect(limited) as sock:
        sock.sendall(HEAD + b"content-length: 100\r\n\r\n{")
        error = error_of(read_all(sock), 408)
    assert (error["code"], "(body_seconds)" in error["message"]) == ("request_timeout", True)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"NONSENSE\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999999999999999999\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_400(limited: Served, garbage: bytes) -> None:
    with connect(limited) as sock:
        sock.sendall(garbage)
        reply = read_all(sock)
    assert reply.startswith(b"HTTP/1.1 400 ") or b'"code":"unsupported_media_type"' in reply, reply
    assert b"Traceback" not in reply


@pytest.mark.parametrize("host", [b"[", b"[::1", b"a b", b"\xff", b"x" * 500, b"evil.example\x00"])
def test_a_malformed_host_is_nobodys_failure(limited: Served, host: bytes) -> None:
    with connect(limited) as sock:
        sock.sendall(b"GET /nothing HTTP/1.1\r\nconnection: close\r\nhost: " + host + b"\r\n\r\n")
        reply = read_all(sock)
    assert reply.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")), reply


def test_an_encoded_body_is_a_415(limited: Served) -> None:
    reply = limited.request("POST", "/v1/completions", b"\x1f\x8b\x08", {"content-encoding": "gzip"})
    assert (reply.status, reply.error["code"]) == (415, "unsupported_media_type")
    assert "gzip" in reply.error["message"]


# -- the time of a request -----------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat", "complete"])
def test_an_answer_that_takes_too_long_is_a_504_and_aborted(path: str, stream: bool) -> None:
    engine = FakeEngine(pause=60.0)
    with serving(engine, Limits(request_seconds=0.4)) as served:
        reply = getattr(served, path)(stream=stream)
        assert (reply.status, reply.error["code"], reply.error["type"]) == (504, "request_timeout", "server_error")
        assert "request_seconds" in reply.error["message"]
        assert reply.headers["x-should-retry"] == "false"
        engine.wait_until(lambda: engine.running == 0 and len(engine.ended) == 1)


def test_a_stream_that_takes_too_long_ends_with_an_error_and_is_aborted() -> None:
    engine = FakeEngine(pause=0.2, script=(HELLO,) * 1000)
    with serving(engine, Limits(request_seconds=1.0)) as served:
        *events, last = served.chat(stream=True).events
        assert events[0]["choices"][0]["delta"]["role"] == "assistant"
        assert last["error"]["code"] == "request_timeout"
        engine.wait_until(lambda: engine.running == 0 and len(engine.ended) == 1)
        engine.pause, engine.script = 0.0, (HELLO,)
        assert served.chat().status == 200


def test_no_time_limit_is_none() -> None:
    with serving(FakeEngine(pause=0.1), Limits(request_seconds=0)) as served:
        assert served.chat().status == 200


# -- streams -------------------------------------------------------------------------------------------


def test_a_silent_stream_is_kept_awake_by_comments() -> None:
    engine = FakeEngine(pause=0.5, script=(HELLO, HELLO))
    with serving(engine, Limits(keep_alive_seconds=0.1)) as served:
        reply = served.chat(stream=True)
        blocks = reply.body.decode().split("\n\n")
        assert blocks.count(": keep-alive") >= 4
        assert blocks[0] == ": keep-alive", "the first token is waited for as well"
        assert blocks[-2] == "data: [DONE]"
        with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
            chunks = client.completions.create(model="fake", prompt="a", stream=True)
            assert "".join(chunk.choices[0].text for chunk in chunks) == "HelloHello"


def test_a_stream_that_speaks_gets_no_comments() -> None:
    engine = FakeEngine(pause=0.02, script=(HELLO,) * 30)
    with serving(engine, Limits(keep_alive_seconds=0.3)) as served:
        assert b"keep-alive" not in served.chat(stream=True).body


def test_what_goes_wrong_after_a_comment_is_an_event() -> None:
    engine = FakeEngine(pause=0.3, fail_at=0)
    with serving(engine, Limits(keep_alive_seconds=0.1)) as served:
        reply = served.chat(stream=True)
        assert reply.status == 200
        blocks = [block for block in reply.body.decode().split("\n\n") if block != ": keep-alive"]
        assert json.loads(blocks[0].removeprefix("data: "))["error"]["code"] == "internal_error"
        assert blocks[1:] == ["data: [DONE]", ""]


SPACE = 32
"""The first token of the first choice; that of choice j is the j-th after it."""
FLOOD = json.dumps({"prompt": "x", "stream": True, "n": 64, "max_tokens": 10_000}).encode()


def flood(sock, body: bytes = FLOOD) -> None:
    sock.sendall(HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body)


def test_a_client_that_stops_reading_is_let_go_of() -> None:
    engine = FakeEngine(script=(SPACE, *(HELLO,) * 10_000), max_model_len=20_000)
    with serving(engine, Limits(reader_seconds=0.5)) as served, connect(served, receive_buffer=4096) as sock:
        flood(sock)
        assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        engine.wait_until(lambda: engine.running == 0 and len(engine.ended) == 1, 60)
        assert engine.made < 10_000, "the engine is not asked for what nobody reads"
        assert served.chat(max_tokens=1).status == 200


def test_a_client_that_reads_slowly_is_served() -> None:
    engine = FakeEngine(script=(SPACE, *(HELLO,) * 700), max_model_len=20_000)
    with serving(engine, Limits(reader_seconds=0.5)) as served, connect(served, receive_buffer=65536) as sock:
        flood(sock)
        tail = b""
        while b"[DONE]" not in tail:
            more = sock.recv(262_144)
            assert more, "the server hung up"
            tail = tail[-10:] + more
            time.sleep(0.01)
        assert not engine.ended
