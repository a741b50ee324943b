"""Failures, as the document tells of them: `octavo.server.transport.errors` makes the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct


class ErrorObject(Struct):
    """What went wrong: in words, its kind, the field at fault, and a word that programs can rely on."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(Struct):
    """Every answer that is no success; also an event of a stream that fails after it has begun."""

    error: ErrorObject


class AnthropicErrorObject(Struct):
    """What went wrong: its kind, and in words."""

    type: str
    message: str


class AnthropicErrorReply(Struct, tag_field="type", tag="error"):
    """The same on the routes of the Messages API."""

    error: AnthropicErrorObject
    request_id: str


@dataclass(frozen=True)
class Dialect:
    """How an API tells of failures, and how its streams end."""

    prefix: str
    """Of the names of its answers in the document."""
    errors: tuple[type[Struct], ...]
    """The shapes of its failures."""
    event: type[Struct] | None
    """The event of a stream that fails; ``None``: it is among the API's own events."""
    done: bool = False
    """Whether ``[DONE]`` ends a stream; events have no names then."""


OPENAI = Dialect("", (ErrorReply,), ErrorReply, done=True)
RESPONSES = Dialect("", (ErrorReply,), None)
ANTHROPIC = Dialect("Anthropic", (AnthropicErrorReply,), AnthropicErrorReply)
EITHER = Dialect("Either", (ErrorReply, AnthropicErrorReply), None)
"""Of routes that both APIs have."""

REASONS: Mapping[int, str] = {
    400: "The request cannot be served as asked; where a field is at fault, the message names it.",
    403: "The server does not answer to the name it was called by, or a web page of another site sent a form.",
    404: "What the request names is not there; what another key has stored is not, either.",
    408: "The request did not arrive in time.",
    413: "The body, or a file with all that are stored, is larger than this server takes.",
    415: "The body is of another type than this route takes.",
    416: "The file has no such range.",
    429: "The queue is full, or too many batches are open; come back later.",
    431: "The headers are larger than this server takes.",
    500: "The server failed on this request.",
    503: "The engine has stopped, or all connections are taken; come back later.",
    504: "The request took longer than it may.",
}
MODEL = (404,)
"""Of routes whose body may name a model that is not served."""
TURN = (404, 429)
"""Of routes that ask the model, which may have no room."""
ALWAYS = (400, 403, 408, 431, 500, 503, 504)
"""What any route may answer."""
WITHOUT_REQUEST = (400, 408, 431, 503)
"""What may be answered before it is known which route is meant: in OpenAI's shape, without a request id."""
RETRIED = (429, 503)
"""Answers that may say when to come back."""


def alternatives(dialect: Dialect, status: int) -> list[type[Struct]]:
    """The shapes that an answer of this status has."""
    early = (ErrorReply,) if status in WITHOUT_REQUEST else ()
    return list(dict.fromkeys((*dialect.errors, *early)))
