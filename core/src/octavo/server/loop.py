"""One process that serves an engine: socket, signals, drain."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import math
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
import uvloop
from starlette.types import ASGIApp

from octavo.errors import ConfigError
from octavo.server.app import create_app
from octavo.server.generation.backend import Backend
from octavo.server.transport import cores
from octavo.server.transport.limits import Limits
from octavo.server.transport.protocol import limited_protocol
from octavo.server.transport.settings import ServerSettings

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8000

_BACKLOG = 2048


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listen(host: str = DEFAULT_HOST, port: int = DEFAULT_PORT) -> socket.socket:
    """A listening socket; port 0 takes a free one. Call it before loading a model: a port in use shows at once.

    Raises ConfigError naming the flag that cures it.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"cannot listen on {host}:{port}: ports end at 65535; choose one with --port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}; set --host and --port") from error
    except OSError as error:
        raise ConfigError(_bind_message(host, port, error)) from error


def _bind_message(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the program that has it, or choose another with --port"
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {port}; choose one above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose one with --host (127.0.0.1, or 0.0.0.0 for all)"
    return f"cannot listen on {host}:{port}: {error.strerror}; set --host and --port"


def url_of(listener: socket.socket) -> str:
    """The base URL that clients of a listening socket use."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def exposed(listener: socket.socket) -> bool:
    """Whether other machines can reach a listening socket."""
    return not ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback


def serve(
    llm: Backend,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    listener: socket.socket | None = None,
    settings: ServerSettings | None = None,
    say: Callable[[str], None] = _say,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and close the engine. Blocks; runs its own event loop.

    On the first signal it stops accepting, and running requests have ``settings.drain_seconds`` to finish; a
    second one ends them at once. ``listener`` is a socket from ``listen``, in place of host and port. ``say``
    is given the few lines that an operator should see.

    Raises ConfigError when it cannot listen.
    """
    uvloop.run(serve_async(llm, listener or listen(host, port), settings or ServerSettings(), say))


async def serve_async(
    llm: Backend, listener: socket.socket, settings: ServerSettings, say: Callable[[str], None] = _say
) -> None:
    """``serve`` on the running event loop, for callers that build the engine on it. The loop gets another executor."""
    _allow_descriptors(settings.limits.connections)
    app = create_app(llm, settings)
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(thread_name_prefix="octavo-io", initializer=cores.unpin)
    )
    config = uvicorn_config(app, settings.limits, timeout_graceful_shutdown=settings.drain_seconds)
    server = _Server(config, ready=lambda: _announce(listener, say))
    try:
        await app.state.service.start()
        with _signals(server, settings, say), cores.pinned():
            await server.serve(sockets=[listener])
    finally:
        listener.close()
        await app.state.service.close()
        await llm.close()


def uvicorn_config(app: ASGIApp, limits: Limits, **more: Any) -> uvicorn.Config:
    """How uvicorn serves an app of ours."""
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,  # ours has the request id
        server_header=False,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        **more,
    )


_SPARE_DESCRIPTORS = 256
"""For the engine's files, pipes and sockets."""


def _allow_descriptors(connections: int) -> None:
    """Let the process open as many files as there may be connections, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _announce(listener: socket.socket, say: Callable[[str], None]) -> None:
    if exposed(listener):
        say(
            f"Warning: {listener.getsockname()[0]} can be reached from other machines, and this server does not "
            "authenticate its clients yet; --host 127.0.0.1 keeps it to this one."
        )
    say(f"Octavo is ready at {url_of(listener)}")


class _Server(uvicorn.Server):
    """uvicorn, telling when it is ready and leaving signals to us: it would raise them again after the drain,
    before the engine is closed.
    """

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _signals(server: _Server, settings: ServerSettings, say: Callable[[str], None]) -> Iterator[None]:
    """Drain on the first SIGINT or SIGTERM, stop at once on the second."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True
            return
        running = len(server.server_state.tasks)
        if running:
            say(
                f"Stopping: running requests ({running}) have {settings.drain_seconds} s to finish; "
                "signal again to end them now."
            )
        server.should_exit = True

    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
