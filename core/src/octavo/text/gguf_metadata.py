"""Reads the key-value section at the head of a GGUF file, and nothing after it.

Layout (GGUF versions 2 and 3, little endian): magic ``GGUF``, u32 version, u64 tensor count, u64 key count, then per key
a string, a u32 type and the value. A string is a u64 length and UTF-8 bytes; an array is a u32 element type, a u64
length and the elements. Source: the GGUF specification, docs/gguf.md of ggml.

Why not `gguf.GGUFReader` here: it keeps a numpy view per array element, so that a vocabulary of 262 144 tokens takes
it several seconds; walking the same bytes once takes a fraction of one.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from octavo.errors import CheckpointError

Value: TypeAlias = "bool | int | float | str | list[bool] | list[int] | list[float] | list[str] | list[Value]"

MAGIC = b"GGUF"
VERSIONS = (2, 3)

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LENGTH = struct.Struct("<Q")
_DEEPEST_ARRAY = 4  # arrays of arrays exist in the format; no writer goes deeper than two


def read_metadata(path: Path, wanted: Callable[[str], bool] = lambda key: True) -> dict[str, Value]:
    """The metadata of the GGUF file at `path`, by key, for the keys that `wanted` accepts.

    Maps the file and touches the pages of its key-value section only. Raises CheckpointError when the file cannot be
    read, is not a GGUF file of a known version, or ends inside the section.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(path, data).metadata(wanted)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # mmap refuses an empty file
        raise CheckpointError(f"{path} is not a GGUF file: {error}") from error
    except (struct.error, IndexError) as error:
        raise CheckpointError(
            f"{path} is truncated: it ends inside its metadata, at {path.stat().st_size} bytes; fetch it again"
        ) from error


class _Cursor:
    """A position in the mapped file. Reading past the end raises struct.error or IndexError."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def metadata(self, wanted: Callable[[str], bool]) -> dict[str, Value]:
        if self.data[:4] != MAGIC:
            raise CheckpointError(f"{self.path} is not a GGUF file: it starts with {self.data[:4]!r}, not {MAGIC!r}")
        self.at = 4
        version = self._scalar("I")
        if version not in VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
            kind = "is big-endian" if swapped in VERSIONS else f"has GGUF version {version}"
            raise CheckpointError(f"{self.path} {kind}; little-endian versions {VERSIONS} can be read, convert it again")
        self._scalar("Q")  # tensor count: the tensors are not read here
        count = self._scalar("Q")
        metadata: dict[str, Value] = {}
        for _ in range(int(count)):
            key = self._string()
            kind_of_value = int(self._scalar("I"))
            if wanted(key):
                metadata[key] = self._value(kind_of_value, key)
            else:
                self._skip(kind_of_value, key)
        return metadata

    def _scalar(self, code: str) -> bool | int | float:
        layout = struct.Struct("<" + code)
        value: bool | int | float
        (value,) = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        """The next `count` strings. The one hot loop: a vocabulary with its merges is half a million strings."""
        data, at, length_at = self.data, self.at, _LENGTH.unpack_from
        size = len(data)
        found = []
        for _ in range(count):
            (length,) = length_at(data, at)
            start = at + 8
            at = start + length
            if at > size:
                raise IndexError(at)
            try:
                found.append(data[start:at].decode())
            except UnicodeDecodeError as error:
                raise CheckpointError(f"{self.path}: the string at byte {start} of its metadata is not UTF-8") from error
        self.at = at
        return found

    def _value(self, kind: int, key: str, depth: int = 0) -> Value:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._scalar(self._code(kind, key))
        element, count = self._array_head(key, depth)
        if element == _STRING:
            return self._strings(count)
        if element == _ARRAY:
            return [self._value(_ARRAY, key, depth + 1) for _ in range(count)]
        code = self._code(element, key)
        width = struct.calcsize(code)
        if self.at + count * width > len(self.data):
            raise IndexError(self.at + count * width)
        values = list(struct.unpack_from(f"<{count}{code}", self.data, self.at))
        self.at += count * width
        return values

    def _skip(self, kind: int, key: str, depth: int = 0) -> None:
        if kind == _STRING:
            self.at += 8 + _LENGTH.unpack_from(self.data, self.at)[0]
        elif kind != _ARRAY:
            self.at += struct.calcsize(self._code(kind, key))
        else:
            element, count = self._array_head(key, depth)
            if element in (_STRING, _ARRAY):
                for _ in range(count):
                    self._skip(element, key, depth + 1)
            else:
                self.at += count * struct.calcsize(self._code(element, key))
        if self.at > len(self.data):
            raise IndexError(self.at)

    def _array_head(self, key: str, depth: int) -> tuple[int, int]:
        if depth >= _DEEPEST_ARRAY:
            raise CheckpointError(f"{self.path}: {key} nests arrays more than {_DEEPEST_ARRAY} deep; the file is damaged")
        return int(self._scalar("I")), int(self._scalar("Q"))

    def _code(self, kind: int, key: str) -> str:
        code = _SCALARS.get(kind)
        if code is None:
            raise CheckpointError(f"{self.path}: {key} has value type {kind}, which GGUF does not define; the file is damaged")
        return code
