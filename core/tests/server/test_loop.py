"""The serving process: its socket, its signals, what it prints."""

from __future__ import annotations

import errno
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.server.loop import exposed, listen, serve, url_of

SERVE = """
import sys
sys.path.insert(0, {tests!r})
from server_fake import FakeEngine
from octavo.server import ServerSettings, serve

engine = FakeEngine(script=(258,) * 40, pause={pause})
serve(engine, host={host!r}, port=0, settings=ServerSettings(drain_seconds={drain}))
print("closed", engine.closed, "ended", len(engine.ended), "torch", "torch" in sys.modules)
"""


@contextmanager
def process(*, pause: float = 0.0, host: str = "127.0.0.1", drain: int = 30) -> Iterator[subprocess.Popen[str]]:
    script = SERVE.format(tests=str(Path(__file__).parent), pause=pause, host=host, drain=drain)
    with subprocess.Popen(
        [sys.executable, "-W", "error::DeprecationWarning:uvicorn", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def start_stream(port: int) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A running stream, after its first token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"prompt": "a", "stream": True, "max_tokens": 40})
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    return connection, response


def port_of(line: str) -> int:
    assert line.startswith("Octavo is ready at http://127.0.0.1:")
    return int(line.removesuffix("/v1").rpartition(":")[2])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_cleanly(number: signal.Signals) -> None:
    with process() as child:
        port_of(first_line(child))
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (0, "closed 1 ended 0 torch False\n", "")


def test_a_running_request_is_finished_before_the_end() -> None:
    with process(pause=0.03) as child:
        port = port_of(first_line(child))
        connection, response = start_stream(port)
        child.send_signal(signal.SIGTERM)
        rest = response.read().decode()
        connection.close()
        out, err = child.communicate(timeout=20)
    assert rest.count("Hello") == 39
    assert rest.endswith("data: [DONE]\n\n")
    assert out.startswith("Stopping: running requests (1) have 30 s to finish")
    assert out.endswith("closed 1 ended 0 torch False\n")
    assert (child.returncode, err) == (0, "")


def test_new_connections_are_refused_while_it_drains() -> None:
    with process(pause=0.05) as child:
        port = port_of(first_line(child))
        connection, response = start_stream(port)
        child.send_signal(signal.SIGTERM)
        assert first_line(child).startswith("Stopping")
        refused = False
        while not refused and response.readline():  # as long as the old request runs
            with socket.socket() as probe:
                refused = probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
        assert refused
        response.read()
        connection.close()


@pytest.mark.parametrize("drain", [0, 30])
def test_a_request_that_does_not_finish_in_time_is_cut_short(drain: int) -> None:
    """By the limit, or by a second signal."""
    with process(pause=1.0, drain=drain) as child:
        connection, _ = start_stream(port_of(first_line(child)))
        child.send_signal(signal.SIGINT)
        assert first_line(child).startswith("Stopping")
        if drain:
            child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=20)
        connection.close()
    assert child.returncode == 0
    assert out.startswith("closed 1 ")


def test_a_server_that_others_can_reach_says_so() -> None:
    with process(host="0.0.0.0") as child:
        assert first_line(child).startswith("Warning: 0.0.0.0 can be reached from other machines")
        assert first_line(child).startswith("Octavo is ready at http://0.0.0.0:")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=20)


def test_a_port_in_use_is_named_with_its_flag() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} on 127.0.0.1 is in use.*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("no such host", 8000), ("203.0.113.7", 8000), ("127.0.0.1", 70_000)])
def test_an_address_that_cannot_be_is_named(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match=f"{host}.*--host|{host}.*--port"):
        listen(host, port)


def test_serve_refuses_before_it_touches_the_engine(engine) -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="in use"):
        serve(engine, port=taken.getsockname()[1])
    assert engine.closed == 0


@pytest.mark.parametrize(
    ("host", "shown", "open_to_all"),
    [("127.0.0.1", "127.0.0.1", False), ("localhost", "", False), ("::1", "[::1]", False)],
)
def test_a_url_that_works_is_shown(host: str, shown: str, open_to_all: bool) -> None:
    try:
        listener = listen(host, 0)
    except ConfigError as error:
        pytest.skip(f"this machine has no {host}: {error}")
    with listener:
        assert url_of(listener).startswith(f"http://{shown}")
        assert url_of(listener).endswith(f":{listener.getsockname()[1]}/v1")
        assert exposed(listener) is open_to_all


def test_there_are_files_enough_for_the_connections_that_are_allowed() -> None:
    """Many shells allow a process 1024 files."""
    few = "import resource; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    few += "resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))\n"
    script = few + SERVE.format(tests=str(Path(__file__).parent), pause=0.0, host="127.0.0.1", drain=1)
    script += "print(min(hard, 2048 + 256) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert "ready at" in first_line(child)
        child.send_signal(signal.SIGTERM)
        assert child.stdout is not None
        assert child.stdout.read().splitlines()[-1] == "True"
