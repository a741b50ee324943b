"""A streaming client of any OpenAI-compatible server, on the standard library alone: ``octavo chat`` needs little."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from octavo.errors import ConfigError, RequestError

TIMEOUT_SECONDS = 600.0
"""For one read, not for the whole answer: a long prompt may take minutes before the first token."""


@dataclass(frozen=True)
class Piece:
    """One event of an answer."""

    text: str = ""
    tokens: int | None = None
    """Tokens of the whole answer, where the event tells."""
    finish_reason: str | None = None


class ChatClient:
    """Asks one server. Raises ConfigError when nobody answers, RequestError with the server's words when it refuses."""

    def __init__(self, url: str, *, api_key: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a server; give one like http://127.0.0.1:8000 with --url")
        try:
            self._host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{url!r} has no valid port ({error}); set --url") from error
        self._secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/") or "/v1"
        self._url = url
        self._headers = {"content-type": "application/json"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    def models(self) -> list[str]:
        """Names of the served models."""
        with self._exchange("GET", "/models") as response:
            try:
                names = [str(card["id"]) for card in json.load(response)["data"]]
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(f"{self._url} does not speak the OpenAI API; set --url") from error
        if not names:
            raise ConfigError(f"{self._url} serves no model")
        return names

    def stream(self, model: str, messages: Sequence[dict[str, str]], **fields: Any) -> Generator[Piece, None, None]:
        """Pieces of the answer to a conversation. Closing the generator ends the request, and so the generation."""
        body = {
            "model": model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields,
        }
        with self._exchange("POST", "/chat/completions", json.dumps(body)) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[len(b"data:") :].strip()
                if data == b"[DONE]":
                    return
                yield _piece(data)
            raise RequestError("the server closed the connection before the answer was complete")

    @contextmanager
    def _exchange(self, method: str, path: str, body: str | None = None) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, self._base + path, body, self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise RequestError(_refusal(response.read(), response.status))
            yield response
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ConfigError(
                f"no answer from {self._url} ({reason}); start a server with `octavo serve MODEL`, "
                "or give the address of one with --url"
            ) from error
        finally:
            connection.close()


def _refusal(body: bytes, status: int) -> str:
    """The server's reason, however it shaped it."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return f"the server answered {status}"


def _piece(data: bytes) -> Piece:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise RequestError(f"the server sent an event that is not JSON: {error}") from error
    if failure := event.get("error"):
        raise RequestError(str(failure.get("message", failure) if isinstance(failure, dict) else failure))
    usage = event.get("usage") or {}
    choices = event.get("choices") or [{}]
    text = (choices[0].get("delta") or {}).get("content") or ""
    return Piece(text, usage.get("completion_tokens"), choices[0].get("finish_reason"))
