"""The lines of a batch file: ``{"custom_id", "method": "POST", "url", "body"}``.

A line that cannot be run is an error of its own; the others go on.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import msgspec

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
    "/v2/rerank",
    "/rerank",
    "/score",
    "/pooling",
    "/classify",
)
"""What a line may ask for, where the server has it."""

MAX_CUSTOM_ID = 512

_CHUNK_LINES = 256
_CHUNK_BYTES = 1 << 20
_ENVELOPE = 64 * 1024
"""Bytes of a line beside its body."""


@dataclass(frozen=True)
class Line:
    """One request. ``number`` is its line in the file, from 1; ``body`` is JSON."""

    number: int
    custom_id: str
    url: str
    body: bytes


@dataclass(frozen=True)
class BadLine:
    """A line that is no request, and why. ``custom_id`` is ``None`` where it cannot be read."""

    number: int
    custom_id: str | None
    code: str
    message: str
    param: str | None = None


AnyLine: TypeAlias = Line | BadLine


@dataclass(frozen=True)
class Rules:
    """What a file's lines may hold."""

    endpoints: frozenset[str]
    endpoint: str | None = None
    """The only one, where the batch names it."""
    max_body_bytes: int = 1 << 24
    priority: int = 0
    """Added to the priority of every line; a line's own may only make it less urgent, unless this is 0."""
    keep: bool = False
    """Whether answers of the Responses API are stored where a line does not say."""


class Trouble(Exception):
    """Why a line is no request."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.param = code, param


def raw_lines(file: BinaryIO, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """The lines that are not blank, with their numbers; ``None`` in place of one of more than ``limit`` bytes."""
    number = 0
    while True:
        data: bytes | None = file.readline(limit + 2)
        if not data:
            return
        number += 1
        if len(data) > limit + 1 or (len(data) == limit + 1 and not data.endswith(b"\n")):
            rest = data
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(_CHUNK_BYTES)
            data = None
        elif number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if data is None or data.strip():
            yield number, data


@dataclass(frozen=True)
class Survey:
    """What a pass over a file finds."""

    lines: int
    digest: str


def survey(file: BinaryIO, rules: Rules) -> Survey:
    """Count the lines that are not blank, and digest them with their places: files with one digest run the same."""
    digest, count = hashlib.sha256(), 0
    for number, data in raw_lines(file, rules.max_body_bytes + _ENVELOPE):
        count += 1
        digest.update(b"%d:" % number)
        digest.update(data or b"too long\n")
    return Survey(count, digest.hexdigest())


class CustomIds:
    """Which custom ids were met, on disk past a few megabytes."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # one thread at a time
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-4096"):
            self._db.execute(f"PRAGMA {pragma}")
        self._db.execute("CREATE TABLE met (id BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def first(self, custom_id: str, number: int) -> int:
        """The line that had this id first: ``number``, or an earlier one."""
        key = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if self._db.execute("INSERT OR IGNORE INTO met VALUES (?, ?)", (key, number)).rowcount:
            return number
        return int(self._db.execute("SELECT line FROM met WHERE id = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        """Forget them."""
        self._db.close()


class LineReader:
    """Reads a file a chunk at a time; `read` may be called from any thread, one at a time."""

    def __init__(self, file: BinaryIO, rules: Rules) -> None:
        self._file = file
        self._rules = rules
        self._raw = raw_lines(file, rules.max_body_bytes + _ENVELOPE)
        self._ids = CustomIds()
        self._lock = threading.Lock()  # whoever is cancelled closes it, while a thread may still read

    def read(self) -> list[AnyLine]:
        """The next lines; none at the end of the file."""
        lines: list[AnyLine] = []
        size = 0
        with self._lock:
            for number, data in () if self._file.closed else self._raw:
                lines.append(self._parse(number, data))
                size += len(data or b"")
                if len(lines) >= _CHUNK_LINES or size >= _CHUNK_BYTES:
                    break
        return lines

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._ids.close()
            self._file.close()

    def _parse(self, number: int, data: bytes | None) -> AnyLine:
        custom_id: str | None = None
        try:
            line = _decoded(data, self._rules)
            custom_id = _custom_id(line)
            first = self._ids.first(custom_id, number)
            if first != number:
                raise Trouble(
                    "duplicate_custom_id", f"line {first} has the custom_id {custom_id!r:.80} already", "custom_id"
                )
            url = _url(line, self._rules)
            return Line(number, custom_id, url, _body(line, url, self._rules))
        except Trouble as trouble:
            return BadLine(number, custom_id, trouble.code, f"Line {number}: {trouble}.", trouble.param)


def _decoded(data: bytes | None, rules: Rules) -> dict[str, Any]:
    if data is None:
        raise Trouble("line_too_long", f"it is longer than the {rules.max_body_bytes} bytes of a request's body")
    try:
        line = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Trouble("invalid_json_line", f"it is not valid JSON: {why}") from error
    if not isinstance(line, dict):
        raise Trouble("invalid_json_line", "it is not a JSON object with custom_id, method, url and body")
    return line


def _custom_id(line: dict[str, Any]) -> str:
    custom_id = line.get("custom_id")
    if custom_id is None:
        raise Trouble("missing_required_parameter", "it has no custom_id", "custom_id")
    if not isinstance(custom_id, str) or not 0 < len(custom_id) <= MAX_CUSTOM_ID:
        raise Trouble(
            "invalid_custom_id",
            f"custom_id must be a string of 1 to {MAX_CUSTOM_ID} characters, not {custom_id!r:.40}",
            "custom_id",
        )
    return custom_id


def _url(line: dict[str, Any], rules: Rules) -> str:
    method, url = line.get("method", "POST"), line.get("url")
    if method != "POST":
        raise Trouble("invalid_method", f"the method must be POST, not {method!r:.40}", "method")
    if url is None:
        raise Trouble("missing_required_parameter", "it has no url", "url")
    if not isinstance(url, str) or url not in rules.endpoints:
        known = ", ".join(sorted(rules.endpoints))
        raise Trouble("invalid_url", f"the url {url!r:.80} is none that a batch can ask here; there are {known}", "url")
    if rules.endpoint is not None and url != rules.endpoint:
        raise Trouble("mismatched_endpoint", f"the url is {url}, and the batch's endpoint is {rules.endpoint}", "url")
    return url


def _body(line: dict[str, Any], url: str, rules: Rules) -> bytes:
    body = line.get("body")
    if not isinstance(body, dict):
        raise Trouble("invalid_body", "its body is not a JSON object", "body")
    for name in ("stream", "background"):
        if body.get(name):
            raise Trouble("unsupported_parameter", f"{name} has no meaning in a batch; leave it out", f"body.{name}")
    if rules.priority:
        own = body.get("priority")
        body["priority"] = rules.priority + (max(own, 0) if type(own) is int else 0)
    if url == "/v1/responses" and not rules.keep:
        body.setdefault("store", False)
    data = msgspec.json.encode(body)
    if len(data) > rules.max_body_bytes:
        raise Trouble("line_too_long", f"its body is longer than {rules.max_body_bytes} bytes", "body")
    return data
