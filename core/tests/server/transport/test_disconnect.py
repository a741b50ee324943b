"""A client that goes away takes its generation with it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from server_fake import FakeEngine


@contextmanager
def open_request(port: int, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(head.encode() + data)
        yield sock


CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
ONE = ("/v1/completions", {"prompt": "a"})
MANY = ("/v1/completions", {"prompt": ["a", "b", "c"], "n": 2})


@pytest.mark.parametrize(("path", "body"), [CHAT, ONE, MANY], ids=["chat", "one", "many"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_before_the_first_token(served, engine: FakeEngine, path: str, body: dict[str, Any], stream: bool) -> None:
    engine.pause = 60
    prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    with open_request(served.port, path, body | {"stream": stream}):
        engine.wait_until(lambda: engine.running == prompts)
    engine.wait_until(lambda: engine.running == 0)
    assert len(engine.ended) == prompts


@pytest.mark.parametrize(("path", "body"), [CHAT, ONE, MANY], ids=["chat", "one", "many"])
def test_in_the_middle_of_a_stream(served, engine: FakeEngine, path: str, body: dict[str, Any]) -> None:
    engine.max_model_len = 2_000_000
    engine.script = engine.script[:1] * 100_000
    engine.pause = 0.001
    with open_request(served.port, path, body | {"stream": True, "max_tokens": 100_000}) as sock:
        assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")
        while b"Hello" not in (data := sock.recv(4096)):
            assert data
    engine.wait_until(lambda: engine.running == 0)
    assert engine.ended


def test_a_reader_that_stopped_reading_and_then_left(served, engine: FakeEngine) -> None:
    """The server waits in the middle of a write when the client goes."""
    engine.max_model_len = 2_000_000
    engine.script = engine.script[:1] * 1_000_000
    path, body = ONE
    with open_request(served.port, path, body | {"stream": True, "max_tokens": 1_000_000}) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = -1
        while engine.made != before:  # until all buffers are full and the engine is not asked any more
            before = engine.made
            time.sleep(0.3)
    engine.wait_until(lambda: engine.running == 0)
    assert engine.made < 1_000_000
    assert engine.ended


def test_the_official_client_closing_its_stream(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.max_model_len = 2_000_000
    engine.script = engine.script[:1] * 100_000
    engine.pause = 0.001
    with client.completions.create(model="fake", prompt="a", stream=True, max_tokens=100_000) as stream:
        next(iter(stream))
    engine.wait_until(lambda: engine.running == 0)
    assert engine.ended


def test_half_a_body_starts_nothing(served, engine: FakeEngine) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as sock:
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b'content-length: 500\r\n\r\n{"prompt": '
        )
    assert served.complete().status == 200
    assert len(engine.seen) == 1


def test_a_request_that_is_finished_is_not_aborted(served, engine: FakeEngine) -> None:
    assert served.chat().status == 200
    assert served.complete(prompt=["a", "b"], stream=True).status == 200
    engine.wait_until(lambda: engine.running == 0)
    assert engine.ended == []
