"""A server whose model thinks (like this) and calls tools [name {"json": "so"}]; official clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from server_fake import E_ACUTE, FakeEngine

from octavo.server import ServerSettings
from octavo.server.transport.limits import Limits
from octavo.text.parsing.parts import CallArguments, CallBegins, ContentText, Part, ReasoningText
from octavo.text.parsing.reasoning import ReasoningParser
from octavo.text.parsing.tools import ToolParser


class Bracketed:
    """Finds calls, a character at a time."""

    def __init__(self) -> None:
        self._call = -1
        self._inside = ""
        """Of a call: what has come of its name, or " " while its arguments come."""

    def push(self, text: str) -> list[Part]:
        return [part for character in text for part in self._push(character)]

    def _push(self, character: str) -> list[Part]:
        if not self._inside:
            if character != "[":
                return [ContentText(character)]
            self._inside = character
            self._call += 1
            return []
        if character == "]":
            self._inside = ""
            return []
        if self._inside == " ":
            return [CallArguments(self._call, character)]
        if character != " ":
            self._inside += character
            return []
        name, self._inside = self._inside[1:], " "
        return [CallBegins(self._call, f"call_{self._call}", name)]

    def finish(self) -> list[Part]:
        return []


class Parenthesised:
    """Finds reasoning, a character at a time."""

    def __init__(self, inside: bool) -> None:
        self.thinking = inside

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for character in text:
            if character in "()":
                self.thinking = character == "("
            else:
                parts.append(ReasoningText(character) if self.thinking else ContentText(character))
        return parts

    def finish(self) -> list[Part]:
        return []


TOOLS = ToolParser("bracketed", open=lambda tools: Bracketed(), claims=lambda template: False)
THOUGHTS = ReasoningParser(
    "parenthesised",
    open=Parenthesised,
    opened=lambda end: end.endswith("("),
    unclosed=lambda said: said.rfind("(") > said.rfind(")"),
    claims=lambda template: False,
)


def says(engine: FakeEngine, text: str) -> None:
    """Make the model answer so, a character per token."""
    engine.script = tuple(E_ACUTE if character == "é" else ord(character) for character in text)


@pytest.fixture(scope="session")
def _talker(serve: Any) -> Iterator[tuple[FakeEngine, Any]]:
    engine = FakeEngine()
    engine.tokenizer.template = "has a place for tools"
    settings = ServerSettings(
        plugged=(TOOLS, THOUGHTS),
        tool_parser=TOOLS.name,
        reasoning_parser=THOUGHTS.name,
        limits=Limits(body_bytes=100_000),
    )
    with serve(engine, settings) as served:
        yield engine, served


@pytest.fixture
def engine(_talker: tuple[FakeEngine, Any]) -> FakeEngine:
    """The engine behind ``served``, as new."""
    _talker[0].__init__()  # type: ignore[misc]  # the server holds this very object
    return _talker[0]


@pytest.fixture
def served(_talker: tuple[FakeEngine, Any], engine: FakeEngine) -> Any:
    """The running server."""
    return _talker[1]


@pytest.fixture
def claude(served: Any) -> Iterator[anthropic.Anthropic]:
    """The official client; it does not retry, so that one call is one request."""
    url = served.url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def say(engine: FakeEngine) -> Any:
    """What the model shall answer, a character per token."""
    return lambda text: says(engine, text)
