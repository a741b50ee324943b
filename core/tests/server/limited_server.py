"""A real server with limits of the test's own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn
from server.conftest import Served
from server_fake import FakeEngine

from octavo.server import ServerSettings, create_app
from octavo.server.loop import listen, uvicorn_config
from octavo.server.transport.limits import Limits


@contextlib.contextmanager
def serving(engine: FakeEngine, limits: Limits, **settings: Any) -> Iterator[Served]:
    """Serve ``engine`` under ``limits``."""
    listener = listen("127.0.0.1", 0)
    app = create_app(engine, ServerSettings(limits=limits, **settings))
    server = uvicorn.Server(uvicorn_config(app, limits, loop="uvloop"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Served(listener.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        assert not thread.is_alive()


def connect(served: Served, *, receive_buffer: int | None = None) -> socket.socket:
    """A raw connection."""
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", served.port))
    return sock


def read_all(sock: socket.socket) -> bytes:
    """All until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := sock.recv(65536):
            data += more
    return data
