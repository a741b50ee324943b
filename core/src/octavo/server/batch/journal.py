"""What a run of lines has finished, on disk: a file of answers and one of errors, each a line per request.

Every line is written whole as soon as its request has ended, so that a killed process loses none; `sync` is for the
power to fail. A line's id holds the run's name and its number in the input. From these a later process knows what is
finished, and whether the files belong to its input at all.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from octavo.errors import ConfigError
from octavo.server.batch.inside import Reply
from octavo.server.batch.lines import AnyLine, BadLine, Line


class LineResponse(Struct):
    """What the server answered to a line."""

    status_code: int
    request_id: str
    body: Raw


class LineError(Struct):
    """Why a line was not asked."""

    code: str
    message: str
    param: str | None
    line: int


class LineResult(Struct):
    """A line of output."""

    id: str
    custom_id: str | None
    response: LineResponse | None
    error: LineError | None


class _Details(Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(Struct):
    """The usage of an answer, in the words of any of the APIs."""

    prompt_tokens: int | None = None
    input_tokens: int | None = None
    completion_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Answer(Struct):
    usage: _Usage | None = None


class _KeptResponse(Struct):
    body: _Answer | None = None


class _Kept(Struct):
    """What is read again of a line of output."""

    id: str
    response: _KeptResponse | None


@dataclass
class Tokens:
    """Tokens of all answers."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def add(self, answer: _Answer | None) -> None:
        """Count an answer's."""
        usage = answer.usage if answer is not None else None
        if usage is None:
            return
        self.input += usage.prompt_tokens or usage.input_tokens or 0
        self.output += usage.completion_tokens or usage.output_tokens or 0
        taken = usage.prompt_tokens_details or usage.input_tokens_details or _Details()
        made = usage.completion_tokens_details or usage.output_tokens_details or _Details()
        self.cached += taken.cached_tokens or 0
        self.reasoning += made.reasoning_tokens or 0


_decode_answer = msgspec.json.Decoder(_Answer).decode
_decode_kept = msgspec.json.Decoder(_Kept).decode
_encode = msgspec.json.Encoder().encode


class _Numbers:
    """A set of line numbers, a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def __contains__(self, number: int) -> bool:
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        at = number >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(at + 1024 - len(self._bits)))
        self._bits[at] |= 1 << (number & 7)


class Journal:
    """The two files of one run. Raises ConfigError if they belong to another run, or another process has them.

    ``run`` names the run in the ids of its lines. Call everything from one thread, `sync` excepted.
    """

    def __init__(self, answers: Path, errors: Path, run: str) -> None:
        self.answers, self.errors, self.run = answers, errors, run
        self.answered = 0
        self.failed = 0
        self.tokens = Tokens()
        self._finished = _Numbers()
        self._files: dict[Path, int] = {}
        self._dirty: set[int] = set()
        try:
            self._open(answers)
            self._recover(answers, self._count_answer)
            if errors.exists():
                self._open(errors)
                self._recover(errors, self._count_error)
        except BaseException:
            self.close()
            raise

    def __contains__(self, line: AnyLine) -> bool:
        return line.number in self._finished

    def id_of(self, line: AnyLine) -> str:
        """The id of a line's result; also its request id."""
        return f"batch_req_{self.run}-{line.number}"

    def answer(self, line: Line, reply: Reply) -> None:
        """Keep the answer to a line: among the answers if it is one, else among the errors."""
        try:
            usage, body = _read_answer(reply.body)
        except msgspec.DecodeError:
            message = f"Line {line.number}: the server's answer, with status {reply.status}, is not JSON."
            self.refuse(BadLine(line.number, line.custom_id, "invalid_answer", message))
            return
        request_id = reply.headers.get("x-request-id", self.id_of(line))
        result = LineResult(self.id_of(line), line.custom_id, LineResponse(reply.status, request_id, Raw(body)), None)
        if 200 <= reply.status < 300:
            self._write(self.answers, line, result)
            self.answered += 1
            self.tokens.add(usage)
        else:
            self._write(self.errors, line, result)
            self.failed += 1

    def refuse(self, line: BadLine) -> None:
        """Keep why a line was not asked."""
        error = LineError(line.code, line.message, line.param, line.number)
        self._write(self.errors, line, LineResult(self.id_of(line), line.custom_id, None, error))
        self.failed += 1

    async def sync(self) -> None:
        """See to it that what was written outlives a power failure. Costs nothing if nothing was written."""
        dirty, self._dirty = self._dirty, set()
        for file in dirty:
            await asyncio.to_thread(os.fsync, file)

    def close(self) -> None:
        """Let go of the files."""
        while self._files:
            _, file = self._files.popitem()
            os.close(file)

    def _open(self, path: Path) -> int:
        try:
            new = not path.exists()
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            if new:
                sync_folder(path.parent)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        self._files[path] = file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{path} is being written by another run; wait for it, or choose another file") from None
        return file

    def _write(self, path: Path, line: AnyLine, result: LineResult) -> None:
        data = memoryview(_one_line(_encode(result)))
        try:
            file = self._files[path] if path in self._files else self._open(path)
            while data:
                data = data[os.write(file, data) :]
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
        self._dirty.add(file)
        self._finished.add(line.number)

    def _recover(self, path: Path, count: Callable[[_Kept], None]) -> None:
        """Take note of what is there. What a kill or a power failure has torn is cut off, if it is this run's."""
        begin = b'{"id":"batch_req_%s-' % self.run.encode()
        whole = 0
        with path.open("rb") as file:
            for data in file:
                if not data.endswith(b"\n") or b"\0" in data:
                    if not (data.startswith(begin) or begin.startswith(data) or not data.strip(b"\0\n")):
                        raise self._foreign(path)
                    break
                if not data.startswith(begin):
                    raise self._foreign(path)
                try:
                    kept = _decode_kept(data)
                    number = int(kept.id[len(begin) - len(b'{"id":"') :])
                except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
                    raise self._foreign(path) from None
                whole += len(data)
                if number not in self._finished:
                    self._finished.add(number)
                    count(kept)
        if whole < path.stat().st_size:
            os.truncate(path, whole)

    def _foreign(self, path: Path) -> ConfigError:
        return ConfigError(
            f"{path} is there and is no output of this input: going on would mix them up; name another file, or "
            "replace it with --overwrite"
        )

    def _count_answer(self, kept: _Kept) -> None:
        self.answered += 1
        self.tokens.add(kept.response.body if kept.response is not None else None)

    def _count_error(self, _kept: _Kept) -> None:
        self.failed += 1


def sync_folder(folder: Path) -> None:
    """See to it that a new name in it outlives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_answer(body: bytes) -> tuple[_Answer | None, bytes]:
    """An answer's usage, where it has one, and the answer as one line. Raises DecodeError if it is not JSON."""
    if b"\n" in body:
        body = msgspec.json.format(body, indent=-1)
    try:
        return _decode_answer(body), body
    except msgspec.ValidationError:  # JSON of another kind
        return None, body


def _one_line(data: bytes) -> bytes:
    """JSON as a line that no reader breaks: some split where Unicode does, see `octavo.server.transport.sse.event`."""
    if not data.isascii():
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return data + b"\n"
