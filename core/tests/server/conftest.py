"""A real uvicorn on a loopback port, serving the fake engine; raw and official clients of it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import openai
import pytest
import uvicorn
import uvloop

from octavo.server import ServerSettings, create_app
from octavo.server.loop import listen, uvicorn_config
from octavo.server.transport.limits import Limits

sys.path.insert(0, str(Path(__file__).parent))
from server_fake import FakeEngine


@dataclass
class Reply:
    """One raw HTTP exchange."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, after checking its shape."""
        assert set(self.json) == {"error"}, self.body
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert isinstance(error["type"], str)
        assert error["code"] is None or isinstance(error["code"], str)
        return error

    @property
    def events(self) -> list[Any]:
        """Data of a server-sent stream; the last must be [DONE]."""
        assert self.headers["content-type"].startswith("text/event-stream")
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        assert all(block.startswith("data: ") and "\n" not in block for block in blocks)
        assert blocks.pop() == "data: [DONE]"
        return [json.loads(block.removeprefix("data: ")) for block in blocks]

    @property
    def named_events(self) -> list[Any]:
        """Data of a server-sent stream whose events have names: the same as their types, numbered from the first's."""
        assert self.headers["content-type"].startswith("text/event-stream")
        blocks = self.body.decode().split("\n\n")
        assert blocks.pop() == ""
        events = []
        for block in blocks:
            name, data = block.split("\n")
            events.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {events[-1]['type']}"
        first = events[0]["sequence_number"]
        assert [event["sequence_number"] for event in events] == list(range(first, first + len(events)))
        return events


@dataclass
class Served:
    """A running server: address and a raw client."""

    port: int
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"content-type": "application/json"} if data is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, data, given | (headers or {}))
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def chat(self, **fields: Any) -> Reply:
        return self.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]} | fields)

    def respond(self, headers: dict[str, str] | None = None, **fields: Any) -> Reply:
        return self.request("POST", "/v1/responses", {"input": "Hi"} | fields, headers)

    def complete(self, **fields: Any) -> Reply:
        return self.request("POST", "/v1/completions", {"prompt": "Hi"} | fields)


Serve: TypeAlias = Callable[[FakeEngine, ServerSettings], AbstractContextManager[Served]]


@contextmanager
def serving(engine: FakeEngine, settings: ServerSettings) -> Iterator[Served]:
    """A running server over an engine."""
    app = create_app(engine, settings)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn_config(app, settings.limits, loop="uvloop"))

    async def serve() -> None:
        await server.serve(sockets=[listener])
        await app.state.service.close()

    thread = threading.Thread(target=uvloop.run, args=(serve(),))
    thread.start()
    try:
        yield Served(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def serve_with() -> Serve:
    """``serving``, for tests that need settings of their own."""
    return serving


@pytest.fixture(scope="session")
def serve() -> Serve:
    """How tests get a server with settings of their own."""
    return serving


@pytest.fixture(scope="session")
def _server() -> Iterator[tuple[FakeEngine, Served]]:
    engine = FakeEngine()
    limits = Limits(
        body_bytes=100_000, prompts=5, sequences=12, file_bytes=300_000, stored_bytes=900_000, batch_lines=40
    )
    with serving(engine, ServerSettings(limits=limits, batch_lines_in_flight=4)) as served:
        yield engine, served


@pytest.fixture
def engine(_server: tuple[FakeEngine, Served]) -> FakeEngine:
    """The engine behind ``served``, as new."""
    engine = _server[0]
    engine.__init__()  # type: ignore[misc]  # the server holds this very object
    return engine


@pytest.fixture
def served(_server: tuple[FakeEngine, Served], engine: FakeEngine) -> Served:
    """The running server."""
    return _server[1]


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    """The official client; it does not retry, so that one call is one request."""
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        yield client
