"""``octavo chat``: a conversation in the terminal with any OpenAI-compatible server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from rich.console import Console

from octavo.cli.chat_client import ChatClient, NoModelList
from octavo.errors import OctavoError, RequestError

DEFAULT_URL = "http://127.0.0.1:8000"

_HELP = """\
/system TEXT   set the system message; - takes it away, nothing shows it
/model NAME    talk to another model of the server; nothing shows them
/reset         forget the conversation
/exit          leave (or Ctrl-D)
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one; \"\"\" begins and ends a longer text."""
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would command the terminal. What a model says is printed, never obeyed."""
_QUOTES = '"""'
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

ReadLine = Callable[[str], str]
"""Given the prompt; returns a line, raises EOFError at the end."""


def chat(
    url: str = DEFAULT_URL,
    model: str | None = None,
    system: str | None = None,
    *,
    api_key: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    console: Console | None = None,
    read_line: ReadLine | None = None,
) -> None:
    """Talk until /exit or the end of the input.

    ``model`` None takes the first that the server lists. ``system`` opens every conversation. ``read_line``
    is asked for the user's lines; the default reads from the terminal.

    Raises ConfigError when no server answers at the start or it does not list its models and none is named,
    RequestError when it refuses to list them.
    """
    console = console or Console(highlight=False)
    client = ChatClient(url, api_key=api_key)
    if model is None:
        model = client.models()[0]
    limits = {"temperature": temperature, "max_tokens": max_tokens}
    session = _Session(
        client, model, system, console, {name: value for name, value in limits.items() if value is not None}
    )
    console.print(f"Talking to {model}. /help tells the commands; Ctrl-C stops an answer.", style="dim", markup=False)
    session.run(read_line or _terminal_reader(console))


def _terminal_reader(console: Console) -> ReadLine:
    with suppress(ImportError):  # Python may be built without it
        import readline  # gives the prompt line editing and history

        if "libedit" not in (readline.__doc__ or ""):
            readline.parse_and_bind("set enable-bracketed-paste on")  # what is pasted is one message, lines and all
    if not console.is_terminal:
        return input
    # The editor must know the prompt, and which of it takes no room, or it paints over it.
    return lambda prompt: input(f"\x01\x1b[1m\x02{prompt}\x01\x1b[0m\x02" if console.color_system else prompt)


def read_message(read_line: ReadLine) -> str:
    r"""The user's next message: a line, lines that end in \\, or what stands between two \"\"\"."""
    line = read_line("> ")
    if line.lstrip().startswith(_QUOTES):
        lines = [line.lstrip().removeprefix(_QUOTES)]
        while not lines[-1].rstrip().endswith(_QUOTES):
            lines.append(read_line("… "))
        lines[-1] = lines[-1].rstrip().removesuffix(_QUOTES)
        return "\n".join(lines).strip("\n")
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1].removesuffix("\\")
        lines.append(read_line("… "))
    return "\n".join(lines).strip()


class _Session:
    """One conversation and its commands."""

    def __init__(
        self, client: ChatClient, model: str, system: str | None, console: Console, fields: dict[str, Any]
    ) -> None:
        self._client = client
        self._model = model
        self._system = system or ""
        self._console = console
        self._fields = fields
        self._messages: list[dict[str, str]] = []

    def run(self, read_line: ReadLine) -> None:
        """Take messages until the user leaves."""
        while True:
            try:
                message = read_message(read_line)
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._note("Ctrl-D or /exit leaves.")
                continue
            command, _, rest = message.partition(" ")
            if command in ("/exit", "/quit"):
                return
            if "\n" not in message and message.startswith("/"):
                self._obey(command, rest.strip())
            elif message:
                self._answer(message)

    def _obey(self, command: str, rest: str) -> None:
        match command:
            case "/reset" | "/new":
                self._messages.clear()
                self._note("The conversation is forgotten.")
            case "/system":
                self._system = "" if rest == "-" else rest or self._system
                self._note(f"System message: {self._system}" if self._system else "There is no system message.")
            case "/model":
                self._choose_model(rest)
            case _:
                self._note(_HELP)

    def _choose_model(self, name: str) -> None:
        """Switch; the conversation goes on. A server that lists its models must have it."""
        try:
            names = self._client.models()
        except NoModelList:
            names = [name or self._model]  # then it says so itself when it is asked
        except OctavoError as error:
            self._fail(error)
            return
        if name and name not in names:
            self._fail(RequestError(f"{name} is not served here; the models are {', '.join(names)}"))
            return
        self._model = name or self._model
        others = [other for other in names if other != self._model]
        self._note(f"Talking to {self._model}." + (f" Others: {', '.join(others)}." if others else ""))

    def _note(self, text: str) -> None:
        self._console.print(text.translate(_CONTROLS), style="dim", markup=False)

    def _fail(self, error: OctavoError) -> None:
        self._console.print(str(error).translate(_CONTROLS), style="red", markup=False)

    def _answer(self, line: str) -> None:
        """Ask, print the answer as it comes, and remember both. A question without an answer is not remembered."""
        question = {"role": "user", "content": line}
        opening = [{"role": "system", "content": self._system}] if self._system else []
        paper = _Paper(self._console)
        pace = _Pace()
        note = ""
        try:
            asked = [*opening, *self._messages, question]
            with closing(self._client.stream(self._model, asked, **self._fields)) as pieces:
                for piece in pieces:
                    if piece.text or piece.reasoning:
                        pace.tick()
                        paper.write(piece.reasoning, piece.text)
                    if piece.tokens is not None:
                        pace.tokens = piece.tokens
                    if piece.finish_reason == "length":
                        note = ", cut off at the limit of tokens"
        except KeyboardInterrupt:
            note = ", stopped"
        except OctavoError as error:
            paper.end()
            self._fail(error)
            return
        paper.end()
        if paper.said:
            self._messages += [question, {"role": "assistant", "content": "".join(paper.said)}]
        self._note(pace.summary() + note)


class _Paper:
    """Where an answer is written as it comes, not through rich, which lays out what it prints: pieces are no lines."""

    def __init__(self, console: Console) -> None:
        self._file = console.file
        self._styled = console.is_terminal and console.color_system is not None
        self._thinking = False
        self._blank = True
        """Nothing stands in the line yet."""
        self.said: list[str] = []
        """The content, without reasoning."""

    def write(self, reasoning: str, words: str) -> None:
        """Write reasoning dim, then content."""
        if reasoning:
            if not self._thinking and self._styled:
                self._file.write(_DIM)
            self._thinking = True
            self._put(reasoning)
        if words:
            self._end_thoughts()
            self.said.append(words)
            self._put(words)
        self._file.flush()

    def end(self) -> None:
        """End the line."""
        self._end_thoughts()
        if not self._blank:
            self._file.write("\n")
        self._file.flush()

    def _end_thoughts(self) -> None:
        if self._thinking:
            self._file.write((_PLAIN if self._styled else "") + ("" if self._blank else "\n"))
            self._thinking, self._blank = False, True

    def _put(self, text: str) -> None:
        shown = text.translate(_CONTROLS)
        self._file.write(shown)
        if shown:
            self._blank = shown.endswith("\n")


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
        noun = "pieces" if self.tokens is None else "tokens"
        if self._first is None:
            return f"{count} {noun}"
        parts = [f"{count} {noun}", f"first after {self._first - self._asked:.2f} s"]
        if count > 1 and self._last > self._first:
            parts.append(f"{(count - 1) / (self._last - self._first):.1f} {noun}/s")
        return ", ".join(parts)
