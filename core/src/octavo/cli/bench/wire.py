"""HTTP as a load generator needs it: few instructions per token, so that it does not measure itself.

One connection carries one request at a time and is kept for the next.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from octavo.errors import ConfigError, RequestError


class Delta(msgspec.Struct):
    """What a chat chunk adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class EventChoice(msgspec.Struct):
    """One choice of an event, of either API."""

    text: str | None = None
    delta: Delta | None = None

    @property
    def says(self) -> bool:
        """Whether there is text."""
        delta = self.delta
        return bool(self.text or (delta and (delta.content or delta.reasoning_content or delta.reasoning)))


class EventUsage(msgspec.Struct):
    """Tokens of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class Event(msgspec.Struct):
    """One event of a stream."""

    choices: list[EventChoice] = []
    usage: EventUsage | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(Event).decode


class Address:
    """Where a server is. ``url`` may end with the version of the API or before it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a server; give one like http://127.0.0.1:8000 with --url")
        self.url = url
        self.host = parts.hostname
        self.secure = parts.scheme == "https"
        self.port = parts.port or (443 if self.secure else 80)
        self.root = parts.path.rstrip("/").removesuffix("/v1")
        """Path that all others begin with."""


class Connection:
    """One connection to a server, opened when it is first used."""

    def __init__(self, address: Address, api_key: str | None = None) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._head = f"host: {address.host}:{address.port}\r\n"
        if api_key:
            self._head += f"authorization: Bearer {api_key}\r\n"

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body."""
        status, reader, headers = await self._ask("GET", path, b"")
        return status, b"".join([part async for part in self._body(reader, headers)])

    async def events(self, path: str, body: bytes) -> AsyncGenerator[Event, None]:
        """Events of a streamed answer, without [DONE]. Raises RequestError with what the server said."""
        status, reader, headers = await self._ask("POST", path, body)
        if status != 200:
            said = b"".join([part async for part in self._body(reader, headers)])
            raise RequestError(f"the server answered {status}: {said[:400].decode(errors='replace')}")
        rest = b""
        async for part in self._body(reader, headers):
            *blocks, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for block in blocks:
                if not block.startswith(b"data:") or block[5:].strip() == b"[DONE]":
                    continue  # comments keep a connection alive
                event = _decode_event(block[5:])
                if event.error is not None:
                    raise RequestError(f"the server failed: {str(event.error)[:400]}")
                yield event

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, asyncio.StreamReader, dict[str, str]]:
        reader, writer = await self._connect()
        head = f"{method} {self._address.root}{path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(first.split(" ", 2)[1]), reader, headers

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            address = self._address
            context = ssl.create_default_context() if address.secure else None
            try:
                self._streams = await asyncio.open_connection(address.host, address.port, ssl=context)
            except OSError as error:
                raise ConfigError(
                    f"no answer from {address.url} ({error.strerror or error}); start a server with "
                    "`octavo serve MODEL`, or give the address of one with --url"
                ) from error
        return self._streams

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncGenerator[bytes, None]:
        if headers.get("transfer-encoding") == "chunked":
            while size := int((await reader.readline()).split(b";")[0], 16):
                yield (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        elif "content-length" in headers:
            yield await reader.readexactly(int(headers["content-length"]))
        else:
            while part := await reader.read(65536):
                yield part
            headers["connection"] = "close"
        if headers.get("connection", "").lower() == "close":
            self.close()

    def close(self) -> None:
        """Close; the next request opens a new one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
