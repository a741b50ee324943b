"""A turn's parts to output items and events: the order and the fields that the official client's accumulator checks.

response.created → response.in_progress
→ per item: output_item.added → (content_part.added →) deltas → done (→ content_part.done) → output_item.done
→ response.completed | response.incomplete | response.failed
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from octavo.server.generation.content_tokens import ContentToken
from octavo.server.generation.logprobs import TokenNames, chat_logprobs
from octavo.server.generation.replies import TokenLogprob
from octavo.server.generation.turn import Piece
from octavo.server.responses.items import Item
from octavo.server.responses.open_items import Emit, Ending, OpenCall, OpenMessage, OpenReasoning
from octavo.server.responses.replies import (
    Event,
    IncompleteDetails,
    ResponseError,
    ResponseObject,
    ResponseStatus,
    ResponseUsage,
)
from octavo.server.transport.errors import Failure
from octavo.text.parsing.parts import CallArguments, CallBegins, CallCut, ContentText, ReasoningText

_ERROR_CODES = {400: "invalid_prompt", 404: "invalid_prompt", 429: "rate_limit_exceeded"}
"""The API has a closed list of codes; all other failures are the server's."""


@dataclass(frozen=True)
class Style:
    """What a request asks of its output beside the text."""

    logprobs: bool = False
    tokens_as_ids: bool = False
    seal_reasoning: bool = False
    """Fill ``encrypted_content``."""
    obfuscate: bool = False
    """Pad the deltas, so that their sizes tell nothing of the text."""


class Writer:
    """Writes one response. ``response`` is as far as it has come; every event has the next number."""

    def __init__(self, response: ResponseObject, names: TokenNames, style: Style) -> None:
        self.response = response
        self._names = names
        self._style = style
        self._number = 0
        self._done: list[Item] = []
        self._open: OpenMessage | OpenReasoning | OpenCall | None = None
        self._calls: dict[int, OpenCall] = {}
        self._blank: list[tuple[str, list[TokenLogprob]]] = []  # white space: a message begins, or calls are set apart
        self._emit = Emit(self._event, obfuscate=style.obfuscate)

    def _event(self, kind: str, **fields: Any) -> Event:
        event = Event(type=kind, sequence_number=self._number, **fields)
        self._number += 1
        return event

    def lifecycle(self, *kinds: str, status: ResponseStatus) -> list[Event]:
        """Events ``response.created``, ``response.queued`` or ``response.in_progress``."""
        self.response = structs.replace(self.response, status=status)
        return [self._event(f"response.{kind}", response=self.response) for kind in kinds]

    def push(self, piece: Piece) -> list[Event]:
        """What a piece adds."""
        events: list[Event] = []
        for part, tokens in zip(piece.parts, piece.content_tokens or [()] * len(piece.parts), strict=True):
            logprobs = self._logprobs_of(tokens)
            if logprobs and not isinstance(part, ContentText) and isinstance(self._open, OpenMessage):
                events += self._open.add("", logprobs)  # of a token that the message ends in
            match part:
                case ContentText(text):
                    events += self._words(text, logprobs)
                case ReasoningText(text):
                    events += self._thoughts(text)
                case CallBegins(index, call_id, name):
                    events += self._begin(OpenCall(self._emit, len(self._done) + bool(self._open), call_id, name))
                    assert isinstance(self._open, OpenCall)
                    self._calls[index] = self._open
                case CallArguments(index, json):
                    events += self._calls[index].add(json)
                case CallCut():
                    events += self._close("incomplete")
        return events

    def _words(self, text: str, logprobs: list[TokenLogprob]) -> list[Event]:
        if isinstance(self._open, OpenMessage):
            return self._open.add(text, logprobs)
        self._blank.append((text, logprobs))
        if not text.strip():
            return []
        events = self._begin(OpenMessage(self._emit, len(self._done) + bool(self._open)))
        return events + self._flush()

    def _flush(self) -> list[Event]:
        """The white space held back and what came with it, as one delta."""
        assert isinstance(self._open, OpenMessage)
        held, self._blank = self._blank, []
        return self._open.add("".join(text for text, _ in held), [entry for _, entries in held for entry in entries])

    def _thoughts(self, text: str) -> list[Event]:
        events: list[Event] = []
        if not isinstance(self._open, OpenReasoning):
            if not text.strip():
                return events
            events = self._begin(
                OpenReasoning(self._emit, len(self._done) + bool(self._open), seal=self._style.seal_reasoning)
            )
        assert isinstance(self._open, OpenReasoning)
        return events + self._open.add(text)

    def _begin(self, item: OpenMessage | OpenReasoning | OpenCall) -> list[Event]:
        events = self._close("completed")
        if not isinstance(item, OpenMessage):
            self._blank.clear()
        self._open = item
        return events + item.begin()

    def _close(self, status: Ending) -> list[Event]:
        if self._open is None:
            return []
        item = self._open.item(status)
        events = self._open.end(item)
        self._done.append(item)
        self._open = None
        return events

    def _logprobs_of(self, tokens: Iterable[ContentToken]) -> list[TokenLogprob]:
        if not self._style.logprobs:
            return []
        return chat_logprobs(tokens, self._names, as_ids=self._style.tokens_as_ids).content

    def finish(self, reason: str | None, usage: ResponseUsage) -> list[Event]:
        """Close what is open, and settle the response; `end` is left to be sent."""
        incomplete = reason == "length"
        events = self._opened_blank() + self._close("incomplete" if incomplete else "completed")
        self.response = structs.replace(
            self.response,
            status="incomplete" if incomplete else "completed",
            incomplete_details=IncompleteDetails("max_output_tokens") if incomplete else None,
            completed_at=None if incomplete else int(time.time()),
            output=list(self._done),
            usage=usage,
        )
        return events

    def _opened_blank(self) -> list[Event]:
        """An answer of nothing, or of white space alone, is a message too."""
        if self._done or self._open:
            return []
        events = self._begin(OpenMessage(self._emit, 0))
        return events + (self._flush() if self._blank else [])

    def fail(self, failure: Failure, usage: ResponseUsage | None = None) -> None:
        """The response failed; what it had begun stays, as incomplete. `end` is left to be sent."""
        output = [*self._done, *([self._open.item("incomplete")] if self._open else [])]
        error = ResponseError(_ERROR_CODES.get(failure.status, "server_error"), failure.message)
        self.response = structs.replace(self.response, status="failed", error=error, output=output, usage=usage)

    def end(self) -> Event:
        """The last event, with the response as `finish` or `fail` left it."""
        return self._event(f"response.{self.response.status}", response=self.response)

    def error(self, code: str | None, message: str, param: str | None = None) -> Event:
        """The stream ends without an end of the response."""
        return self._event("error", code=code, message=message, param=param)
