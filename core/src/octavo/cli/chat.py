"""``octavo chat``: a conversation in the terminal with any OpenAI-compatible server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from rich.console import Console

from octavo.cli.chat_client import ChatClient
from octavo.errors import OctavoError

DEFAULT_URL = "http://127.0.0.1:8000"

_HELP = "/reset forgets the conversation, /exit (or Ctrl-D) leaves, Ctrl-C stops an answer."
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would command the terminal. What a model says is printed, never obeyed."""


def chat(
    url: str = DEFAULT_URL,
    model: str | None = None,
    system: str | None = None,
    *,
    api_key: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    console: Console | None = None,
    read_line: Callable[[], str] | None = None,
) -> None:
    """Talk until /exit or the end of the input.

    ``model`` None takes the first that the server lists. ``system`` opens every conversation. ``read_line``
    returns the user's next line and raises EOFError at the end; the default reads from the terminal.

    Raises ConfigError when no server answers at the start, RequestError when it refuses to list its models.
    """
    console = console or Console(highlight=False)
    client = ChatClient(url, api_key=api_key)
    if model is None:
        model = client.models()[0]
    limits = {"temperature": temperature, "max_tokens": max_tokens}
    session = _Session(
        client, model, system, console, {name: value for name, value in limits.items() if value is not None}
    )
    console.print(f"Talking to {model}. {_HELP}", style="dim", markup=False)
    session.run(read_line or _terminal_reader(console))


def _terminal_reader(console: Console) -> Callable[[], str]:
    with suppress(ImportError):  # Python may be built without it
        import readline  # noqa: F401 - gives the prompt line editing and history
    return lambda: console.input("[bold]> [/bold]")


class _Session:
    """One conversation and its commands."""

    def __init__(
        self, client: ChatClient, model: str, system: str | None, console: Console, fields: dict[str, Any]
    ) -> None:
        self._client = client
        self._model = model
        self._console = console
        self._fields = fields
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)

    def run(self, read_line: Callable[[], str]) -> None:
        """Take lines until the user leaves."""
        while True:
            try:
                line = read_line().strip()
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._note("Ctrl-D or /exit leaves.")
                continue
            if line == "/exit":
                return
            if line == "/reset":
                self._messages = list(self._opening)
                self._note("The conversation is forgotten.")
            elif line.startswith("/"):
                self._note(_HELP)
            elif line:
                self._answer(line)

    def _note(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False)

    def _answer(self, line: str) -> None:
        """Ask, print the answer as it comes, and remember both. A question without an answer is not remembered."""
        self._messages.append({"role": "user", "content": line})
        said: list[str] = []
        pace = _Pace()
        note = ""
        try:
            with closing(self._client.stream(self._model, self._messages, **self._fields)) as pieces:
                for piece in pieces:
                    if piece.text:
                        pace.tick()
                        said.append(piece.text)
                        # Not through rich, which lays out what it prints: pieces are no whole lines.
                        self._console.file.write(piece.text.translate(_CONTROLS))
                        self._console.file.flush()
                    if piece.tokens is not None:
                        pace.tokens = piece.tokens
                    if piece.finish_reason == "length":
                        note = ", cut off at the limit of tokens"
        except KeyboardInterrupt:
            note = ", stopped"
        except OctavoError as error:
            self._console.print()
            self._console.print(str(error), style="red", markup=False)
            self._messages.pop()
            return
        if said:
            self._messages.append({"role": "assistant", "content": "".join(said)})
        else:
            self._messages.pop()
        self._console.print()
        self._note(pace.summary() + note)


class _Pace:
    """How fast an answer comes."""

    def __init__(self) -> None:
        self._asked = time.monotonic()
        self._first: float | None = None
        self._last = self._asked
        self._pieces = 0
        self.tokens: int | None = None
        """As the server counts them; until it tells, every piece counts as one."""

    def tick(self) -> None:
        """A piece of text has come."""
        self._last = time.monotonic()
        self._first = self._last if self._first is None else self._first
        self._pieces += 1

    def summary(self) -> str:
        """Tokens, wait for the first, and rate after it."""
        count = self._pieces if self.tokens is None else self.tokens
        if self._first is None:
            return f"{count} tokens"
        parts = [f"{count} tokens", f"first after {self._first - self._asked:.2f} s"]
        if count > 1 and self._last > self._first:
            parts.append(f"{(count - 1) / (self._last - self._first):.1f} tok/s")
        return ", ".join(parts)
