"""A streaming client of any OpenAI-compatible server, on the standard library alone: ``octavo chat`` needs little."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from octavo.errors import ConfigError, RequestError

TIMEOUT_SECONDS = 600.0
"""For one read, not for the whole answer: a long prompt may take minutes before the first token."""

_VERSION = re.compile(r"/v\d\w*(/|$)")


@dataclass(frozen=True)
class Piece:
    """One event of an answer."""

    text: str = ""
    reasoning: str = ""
    """What the model thinks aloud before it answers."""
    tokens: int | None = None
    """Tokens of the whole answer, where the event tells."""
    finish_reason: str | None = None


class NoModelList(ConfigError):
    """The server does not tell which models it has."""


class _Refused(RequestError):
    """The server answered with an error status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ChatClient:
    """Asks one server. Raises ConfigError when nobody answers, RequestError with the server's words when it refuses.

    ``url`` may end before the version of the API: ``/v1`` is added where its path has none.
    """

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a server; give one like http://127.0.0.1:8000 with --url")
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} has no valid port ({error}); set --url") from error
        self._secure = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/chat/completions")
        self._base = path if _VERSION.search(path) else path + "/v1"
        self._url = url
        self._headers = {"content-type": "application/json", "accept": "text/event-stream, application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._asks_usage = True

    def models(self) -> list[str]:
        """Names of the served models, at least one. Raises NoModelList where the server does not tell."""
        cure = "name one of its models with --model"
        try:
            with self._exchange("GET", "/models") as response:
                listed = json.load(response)
            names = [str(card["id"]) for card in listed["data"]]
        except _Refused as error:
            if error.status in (404, 405, 501):
                raise NoModelList(f"{self._url} does not list its models; {cure}") from error
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise NoModelList(f"{self._url} does not list its models as the OpenAI API does; {cure}") from error
        if not names:
            raise NoModelList(f"{self._url} serves no model")
        return names

    def stream(self, model: str, messages: Sequence[dict[str, str]], **fields: Any) -> Generator[Piece, None, None]:
        """Pieces of the answer to a conversation. Closing the generator ends the request, and so the generation."""
        body = {"model": model, "messages": messages, "stream": True, **fields}
        if self._asks_usage:
            try:
                yield from self._pieces(body | {"stream_options": {"include_usage": True}})
                return
            except _Refused as error:
                # Older servers do not know the field; nothing has been said yet, so it can be asked again without.
                if error.status not in (400, 422) or "stream_options" not in str(error):
                    raise
                self._asks_usage = False
        yield from self._pieces(body)

    def _pieces(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        with self._exchange("POST", "/chat/completions", json.dumps(body)) as response:
            if response.headers.get_content_type() == "application/json":  # a server that does not stream
                yield _piece(response.read(), "message")
                return
            finished = False
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[len(b"data:") :].strip()
                if data == b"[DONE]":
                    return
                piece = _piece(data, "delta")
                finished = finished or piece.finish_reason is not None
                yield piece
            if not finished:
                raise RequestError("the server closed the connection before the answer was complete")

    @contextmanager
    def _exchange(self, method: str, path: str, body: str | None = None) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, self._base + path, body, self._headers)
            response = connection.getresponse()
            if response.status >= 300:  # a redirection would take the key elsewhere
                raise _Refused(_refusal(response, self._base + path), response.status)
            yield response
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ConfigError(
                f"no answer from {self._url} ({reason}); start a server with `octavo serve MODEL`, "
                "or give the address of one with --url"
            ) from error
        finally:
            connection.close()


def _refusal(response: http.client.HTTPResponse, path: str) -> str:
    """The server's reason, however it shaped it, and the cure where we know one."""
    try:
        body = json.loads(response.read(1_000_000))
        error = body.get("error") or body.get("detail") or body["message"]
        said = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, AttributeError):
        said = f"the server answered {response.status} {response.reason} to {path}"
    if response.status in (401, 403):
        return f"{said} (--api-key, or OPENAI_API_KEY)"
    if 300 <= response.status < 400:
        return f"{said}: it is at {response.headers.get('location', 'another address')}; give that with --url"
    return said


def _piece(data: bytes, message: str) -> Piece:
    """One event, or a whole answer, whose choice has the text under ``message``."""
    try:
        event = json.loads(data)
    except ValueError as error:
        raise RequestError(f"the server sent an event that is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise RequestError(f"the server sent an event that is no object: {str(event)[:80]}")
    if failure := event.get("error"):
        raise RequestError(str(failure.get("message", failure) if isinstance(failure, dict) else failure))
    usage = event.get("usage") or {}
    choices = event.get("choices") or [{}]
    said = choices[0].get(message) or {}
    return Piece(
        said.get("content") or "",
        said.get("reasoning_content") or said.get("reasoning") or "",
        usage.get("completion_tokens"),
        choices[0].get("finish_reason"),
    )
