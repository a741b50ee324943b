"""``octavo chat`` against the fake engine, with injected lines and in a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console
from server_fake import BANG, HELLO, WOR, FakeEngine

from octavo.cli.chat import chat, read_message
from octavo.cli.chat_client import ChatClient
from octavo.errors import ConfigError, RequestError
from octavo.server.loop import listen


def talk(url: str, *lines: str | Callable[[], str], **options) -> str:
    """What the screen shows after these lines."""
    left = list(lines)

    def read_line(prompt: str) -> str:
        if not left:
            raise EOFError
        line = left.pop(0)
        return line if isinstance(line, str) else line()

    screen = io.StringIO()
    chat(url, console=Console(file=screen, width=200, highlight=False), read_line=read_line, **options)
    return screen.getvalue()


def test_it_answers_and_remembers(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "one", "two", system="Be brief.")
    assert shown.count("Hello, world!") == 2
    assert "Talking to fake." in shown
    assert re.search(r"5 tokens, first after \d+\.\d\d s", shown)
    assert engine.seen[0].text == "system:Be brief.|user:one|assistant:"
    assert engine.seen[1].text == "system:Be brief.|user:one|assistant:Hello, world!|user:two|assistant:"


def test_reset_forgets_all_but_the_system_message(served, engine: FakeEngine) -> None:
    talk(served.url, "one", "/reset", "two", system="Be brief.")
    assert engine.seen[1].text == "system:Be brief.|user:two|assistant:"


def test_exit_leaves_and_other_commands_help(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "", "   ", "/what", "/exit", "never sent")
    assert shown.count("Ctrl-C stops an answer") == 2, "at the start, and in the help"
    assert not engine.seen


def test_the_options_reach_the_engine(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "one", model="org/fake-model", temperature=0.5, max_tokens=2)
    assert "Talking to org/fake-model." in shown
    assert "2 tokens" in shown
    assert "cut off at the limit of tokens" in shown
    assert (engine.seen[0].params.temperature, engine.seen[0].params.max_tokens) == (0.5, 2)


def test_a_refused_question_is_shown_and_forgotten(served, engine: FakeEngine) -> None:
    engine.fail_at = 1

    def mend() -> str:
        engine.fail_at = None
        return "two"

    shown = talk(served.url, "one", mend)
    assert "The server failed on this request" in shown
    assert engine.seen[1].text == "user:two|assistant:"


def test_a_wrong_model_name_does_not_end_the_session(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "one", "two", model="none")
    assert shown.count("is not served here") == 2


def test_interrupting_the_prompt_keeps_the_session(served, engine: FakeEngine) -> None:
    def interrupt() -> str:
        raise KeyboardInterrupt

    assert "Hello, world!" in talk(served.url, interrupt, "one")


def test_the_model_cannot_command_the_terminal(served, engine: FakeEngine) -> None:
    engine.script = (0x1B, 0x5B, 0x41, 0x07, 0x09, HELLO, 0x0A, BANG)
    assert "[A\tHello\n!\n" in talk(served.url, "one")


def test_no_server_is_told_with_the_cure() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConfigError, match=f"no answer from http://127.0.0.1:{port}.*octavo serve"):
        talk(f"http://127.0.0.1:{port}", "one")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port"])
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        ChatClient(url)


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "http://127.0.0.1:{}", "http://127.0.0.1:{}/v1/"])
def test_the_address_may_be_short(served, form: str) -> None:
    assert ChatClient(form.format(served.port)).models() == ["fake", "org/fake-model"]


def test_in_a_terminal_control_c_stops_the_answer_and_the_generation(served, engine: FakeEngine) -> None:
    engine.script = (HELLO,) + (WOR,) * 10_000
    engine.pause = 0.01
    ours, theirs = pty.openpty()
    script = (
        "import fcntl, signal, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "  # so that Ctrl-C becomes a signal
        "signal.signal(signal.SIGINT, signal.default_int_handler); "  # ignored where the tests run in the background
        f"from octavo.cli.chat import chat; chat({served.url!r})"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=os.environ | {"TERM": "dumb"},
    )
    os.close(theirs)
    screen = b""

    def see(text: bytes) -> None:
        nonlocal screen
        while text not in screen:
            assert select.select([ours], [], [], 30)[0], f"no {text!r} after {screen!r}"
            screen += os.read(ours, 4096)
        screen = screen.partition(text)[2]

    try:
        see(b"> ")
        os.write(ours, b"hello there\n")
        see(b"Hello wor wor")
        os.write(ours, b"\x03")
        see(b", stopped")
        engine.wait_until(lambda: engine.running == 0)
        assert engine.ended
        engine.script = (BANG,)
        see(b"> ")
        os.write(ours, b"again\n")
        see(b"1 tokens")
        os.write(ours, b"/exit\n")
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert engine.seen[1].text.startswith("user:hello there|assistant:Hello wor wor")
    assert engine.seen[1].text.endswith("|user:again|assistant:")


# ---- Commands


def test_the_system_message_is_set_shown_and_taken_away(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "/system", "/system Be brief.", "one", "/system", "/reset", "/system -", "two")
    assert "There is no system message.\n" in shown
    assert shown.count("System message: Be brief.\n") == 2
    assert engine.seen[0].text == "system:Be brief.|user:one|assistant:"
    assert engine.seen[1].text == "user:two|assistant:"


def test_the_model_is_switched_within_a_conversation(served, engine: FakeEngine) -> None:
    shown = talk(served.url, "/model", "/model none", "one", "/model org/fake-model", "two")
    assert "Talking to fake. Others: org/fake-model.\n" in shown
    assert "none is not served here; the models are fake, org/fake-model\n" in shown
    assert "Talking to org/fake-model. Others: fake.\n" in shown
    assert engine.seen[1].text == "user:one|assistant:Hello, world!|user:two|assistant:"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one"], "one"),
        (["  one  "], "one"),
        (["one\\", "two\\", "three"], "one\ntwo\nthree"),
        (['"""', "one", "", "  two", '"""'], "one\n\n  two"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        (["one\ntwo"], "one\ntwo"),  # as a paste brings it
    ],
)
def test_a_message_may_have_many_lines(lines: list[str], message: str) -> None:
    left = list(lines)
    assert read_message(lambda prompt: left.pop(0)) == message
    assert not left


# ---- Other people's servers


@contextmanager
def other_server(*answers: tuple[int, str, str]) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Gives these answers (status, content type, body) in turn, and keeps what it was asked."""
    left = list(answers)
    asked: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.rfile.read(int(self.headers.get("content-length", 0)))))
            status, kind, body = left.pop(0)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the name is the library's

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


STREAM = "text/event-stream"
SAID = 'data: {"choices": [{"delta": {"content": "Good"}}]}\n\ndata: {"choices": [{"delta": {"content": " day"}}]}\n\n'
END = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


def test_a_server_that_tells_no_usage_has_its_pieces_counted() -> None:
    with other_server((200, STREAM, SAID + END + "data: [DONE]\n\n")) as (url, asked):
        shown = talk(url, "one", model="m")
    assert "Good day\n2 pieces, first after" in shown
    assert asked[0][0] == "/v1/chat/completions"


def test_a_stream_may_end_without_done_but_not_without_a_reason() -> None:
    with other_server((200, STREAM, SAID + END), (200, STREAM, SAID)) as (url, _):
        shown = talk(url, "one", "two", model="m")
    assert shown.count("Good day\n") == 2
    assert shown.count("closed the connection before the answer was complete") == 1


def test_a_server_that_does_not_know_stream_options_is_asked_without() -> None:
    refusal = '{"error": {"message": "Unrecognized field: stream_options"}}'
    answers = [(400, "application/json", refusal), *[(200, STREAM, SAID + END)] * 2]
    with other_server(*answers) as (url, asked):
        assert talk(url, "one", "two", model="m").count("Good day") == 2
    assert [b"stream_options" in body for _, body in asked] == [True, False, False]


def test_a_server_that_does_not_stream_is_understood() -> None:
    whole = '{"choices": [{"message": {"content": "Good day"}, "finish_reason": "stop"}], '
    whole += '"usage": {"completion_tokens": 7}}'
    with other_server((200, "application/json; charset=utf-8", whole)) as (url, _):
        assert "Good day\n7 tokens" in talk(url, "one", model="m")


def test_without_a_list_of_models_one_must_be_named_and_any_can_be() -> None:
    nothing = (404, "text/html", "<h1>Not found</h1>")
    with other_server(nothing) as (url, asked):
        with pytest.raises(ConfigError, match="does not list its models; name one of its models with --model"):
            talk(url, "one")
        assert asked[0][0] == "/v1/models"
    with other_server(nothing, (200, STREAM, SAID + END)) as (url, asked):
        assert "Talking to other." in talk(url, "/model other", "one", model="m")
        assert b'"model": "other"' in asked[1][1]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((502, "text/html", "<html>bad</html>"), "the server answered 502 Bad Gateway to /v1/chat/completions"),
        ((401, "application/json", '{"error": {"message": "No key."}}'), "No key. (--api-key, or OPENAI_API_KEY)"),
        ((400, "application/json", '{"detail": "Nope."}'), "Nope."),
        ((301, "text/html", ""), "give that with --url"),
        ((200, STREAM, "data: {nonsense\n\n"), "an event that is not JSON"),
        ((200, STREAM, 'data: {"error": "out of luck"}\n\n'), "out of luck"),
        ((400, "application/json", '{"error": {"message": "\\u001b[2Jgone"}}'), "[2Jgone"),
    ],
)
def test_refusals_are_readable_and_end_nothing(answer: tuple[int, str, str], told: str) -> None:
    with other_server(answer, (200, STREAM, SAID + END)) as (url, _):
        shown = talk(url, "one", "two", model="m")
    assert told in shown.replace("\n", " ")
    assert "\x1b" not in shown
    assert "Good day" in shown


def test_thoughts_are_shown_apart_and_not_remembered() -> None:
    reasoning = 'data: {"choices": [{"delta": {"reasoning_content": "Hm, "}}]}\n\n'
    reasoning += 'data: {"choices": [{"delta": {"reasoning": "well."}}]}\n\n'
    with other_server((200, STREAM, reasoning + SAID + END), (200, STREAM, SAID + END)) as (url, asked):
        assert "Hm, well.\nGood day\n" in talk(url, "one", "two", model="m")
    assert b"Hm" not in asked[1][1]
    assert b"Good day" in asked[1][1]


def test_in_a_terminal_thoughts_are_dim() -> None:
    reasoning = 'data: {"choices": [{"delta": {"reasoning": "Hm."}}]}\n\n'
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="standard", width=200, highlight=False)
    lines = iter(["one", "/exit"])
    with other_server((200, STREAM, reasoning + SAID + END)) as (url, _):
        chat(url, "m", console=console, read_line=lambda prompt: next(lines))
    assert "\x1b[2mHm.\x1b[0m\nGood day\n" in screen.getvalue()


@pytest.mark.parametrize(
    ("path", "asked"),
    [("", "/v1"), ("/", "/v1"), ("/v1", "/v1"), ("/api", "/api/v1"), ("/v1beta/openai/", "/v1beta/openai"),
     ("/v1/chat/completions", "/v1")],
)  # fmt: skip
def test_the_version_is_added_where_the_address_has_none(path: str, asked: str) -> None:
    with other_server((200, "application/json", '{"data": [{"id": "m"}]}')) as (url, requests):
        assert ChatClient(url + path).models() == ["m"]
    assert requests[0][0] == asked + "/models"


def test_a_list_of_models_that_is_refused_is_no_missing_list() -> None:
    with other_server((401, "application/json", "{}")) as (url, _), pytest.raises(RequestError, match="--api-key"):
        ChatClient(url).models()
