"""``octavo chat`` against the fake engine, with injected lines and in a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.console import Console
from server_fake import BANG, HELLO, WOR, FakeEngine

from octavo.cli.chat import chat
from octavo.cli.chat_client import ChatClient
from octavo.errors import ConfigError
from octavo.server.loop import listen


def talk(url: str, *lines: str | Callable[[], str], **options) -> str:
    """What the screen shows after these lines."""
    left = list(lines)

    def read_line() -> str:
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
    assert shown.count("Ctrl-C stops an answer") == 2
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
