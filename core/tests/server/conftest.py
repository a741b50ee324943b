"""A real uvicorn on a loopback port, serving the fake engine; raw and official clients of it."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest
import uvicorn

from octavo.server import ServerSettings, create_app
from octavo.server.loop import listen

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

    def complete(self, **fields: Any) -> Reply:
        return self.request("POST", "/v1/completions", {"prompt": "Hi"} | fields)


@pytest.fixture(scope="session")
def _server() -> Iterator[tuple[FakeEngine, Served]]:
    engine = FakeEngine()
    settings = ServerSettings(
        max_body_bytes=100_000,
        max_prompts=5,
        max_sequences=12,
        max_file_bytes=300_000,
        max_stored_bytes=900_000,
        max_batch_lines=40,
        batch_lines_in_flight=4,
    )
    app = create_app(engine, settings)
    listener = listen("127.0.0.1", 0)
    served = Served(listener.getsockname()[1])
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield engine, served
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


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
