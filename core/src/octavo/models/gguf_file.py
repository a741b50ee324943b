"""The GGUF container: typed metadata, tensor table, aligned tensor data in one file.

Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3. Own parser: the `gguf` package's
reader keeps every token of the vocabulary as several numpy objects, which takes seconds with the
262,144 tokens of Gemma; this one takes a fraction of a second.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypeVar

import gguf
import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.models.mapped import memory_map
from octavo.quant import FORMATS, WeightFormat, WeightTensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
# GGUF value type -> struct character; bool is one byte.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_DIMENSIONS = 4
_Path = TypeVar("_Path", bound=PurePath)  # here, or on a hub
# name-00001-of-00003.gguf, counted from one
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True)
class GGUFTensor:
    """Where one tensor lies: logical ``shape`` outermost first, bytes [begin, end) of the file."""

    format: WeightFormat
    shape: tuple[int, ...]
    begin: int
    end: int


class GGUFFile:
    """A memory-mapped GGUF file.

    ``metadata`` maps each key to a Python value (int, float, bool, str, or a list of one of them);
    ``tensors`` maps GGUF tensor names to their place. Raises CheckpointError for a file that is foreign,
    truncated, big-endian, of another version, a part other than the first, or holds a tensor of a type that
    `octavo.quant` does not know.
    """

    def __init__(self, path: Path, *, read_parts: bool = True) -> None:
        """Open ``path`` and, where it is the first part of a split file, the parts beside it (``read_parts``)."""
        self.path = path
        mapped = memory_map(path)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        cursor = _Cursor(path, mapped)
        tensor_count, pair_count = _read_preamble(cursor)
        self.metadata: Mapping[str, Any] = _read_metadata(cursor, pair_count)
        self.tensors: Mapping[str, GGUFTensor] = self._read_tensors(cursor, tensor_count)
        self._parts: Mapping[str, GGUFFile] = self._read_parts() if read_parts else {}
        self.tensors = {**self.tensors, **{name: part.tensors[name] for name, part in self._parts.items()}}

    def tensor(self, name: str) -> WeightTensor:
        """A tensor as a view of the memory map: no byte is read before it is used."""
        if name in self._parts:
            return self._parts[name].tensor(name)
        entry = self.tensors[name]
        row_bytes = entry.format.row_bytes(entry.shape[-1])
        data = self._bytes[entry.begin : entry.end].reshape(*entry.shape[:-1], row_bytes)
        return WeightTensor(entry.format, entry.shape, data)

    def _read_parts(self) -> dict[str, GGUFFile]:
        """The file of each tensor that lies in another part. Source: llama.cpp's loader and gguf-split.

        The first part has all metadata; every part has its number (split.no, from 0) and their count (split.count),
        the first the count of all tensors (split.tensors.count).
        """
        count, number = self.metadata.get("split.count", 1), self.metadata.get("split.no", 0)
        if count <= 1:
            return {}
        if number != 0:
            raise CheckpointError(
                f"{self.path} is part {number + 1} of {count} of a split GGUF; give the path of the first part"
            )
        paths = split_files(self.path)
        if len(paths) != count:
            raise CheckpointError(
                f"{self.path} is the first of {count} parts of a split GGUF; its name must be "
                f"<name>-00001-of-{count:05d}.gguf for the others to be found"
            )
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise CheckpointError(f"{self.path} lacks {len(missing)} of its {count} parts: {', '.join(missing)}")
        where: dict[str, GGUFFile] = {}
        for index, path in enumerate(paths[1:], 1):
            part = GGUFFile(path, read_parts=False)
            if part.metadata.get("split.no") != index or part.metadata.get("split.count") != count:
                raise CheckpointError(
                    f"{path} has split.no {part.metadata.get('split.no')} and split.count "
                    f"{part.metadata.get('split.count')}; expected {index} and {count}"
                )
            for name in part.tensors:
                if name in self.tensors or name in where:
                    raise CheckpointError(f"{path}: tensor {name} is in another part too")
                where[name] = part
        total = self.metadata.get("split.tensors.count")
        if total is not None and total != len(self.tensors) + len(where):
            raise CheckpointError(
                f"{self.path}: its {count} parts have {len(self.tensors) + len(where)} tensors; "
                f"split.tensors.count is {total}"
            )
        return where

    def _read_tensors(self, cursor: _Cursor, count: int) -> dict[str, GGUFTensor]:
        raw = []
        for _ in range(count):
            name, dimensions = cursor.string(), cursor.scalar("I")
            if not 1 <= dimensions <= _MAX_DIMENSIONS:
                raise CheckpointError(f"{self.path}: tensor {name} has {dimensions} dimensions; GGUF allows 1 to 4")
            # GGUF lists the innermost dimension first.
            shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
            raw.append((name, shape, cursor.scalar("I"), cursor.scalar("Q")))
        alignment = self.metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise CheckpointError(f"{self.path}: general.alignment is {alignment!r}; it must be a positive number")
        start = -(-cursor.at // alignment) * alignment
        return {name: self._place(name, shape, kind, start + offset) for name, shape, kind, offset in raw}

    def _place(self, name: str, shape: tuple[int, ...], kind: int, begin: int) -> GGUFTensor:
        form = FORMATS.get(type_name(kind).lower())
        if form is None:
            known = ", ".join(f.upper() for f in FORMATS if f.upper() in gguf.GGMLQuantizationType.__members__)
            raise CheckpointError(
                f"{self.path}: tensor {name} has type {type_name(kind)}, which is not supported; supported: {known}"
            )
        end = begin + math.prod(shape[:-1]) * form.row_bytes(shape[-1])
        if end > len(self._bytes):
            raise CheckpointError(
                f"{self.path} is truncated: tensor {name} ends at byte {end}, the file at {len(self._bytes)}; "
                "download it again"
            )
        return GGUFTensor(form, shape, begin, end)


def split_files(path: _Path) -> tuple[_Path, ...]:
    """All parts of a split GGUF whose first part is ``path``, by their names; ``path`` alone for any other name."""
    match = _SPLIT.fullmatch(path.name)
    if match is None or int(match[2]) != 1:
        return (path,)
    count = int(match[3])
    return tuple(path.with_name(f"{match[1]}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1))


def first_part(path: _Path) -> _Path:
    """The first part of the split GGUF that ``path`` is a part of, by its name; ``path`` itself for any other name."""
    match = _SPLIT.fullmatch(path.name)
    return path if match is None else path.with_name(f"{match[1]}-00001-of-{match[3]}.gguf")


def type_name(kind: int) -> str:
    """GGML's name of a tensor type, or its number where it has none."""
    try:
        return str(gguf.GGMLQuantizationType(kind).name)
    except ValueError:
        return f"number {kind}"


class _Cursor:
    """Reads a GGUF header from front to back; running over the end is a truncated file."""

    def __init__(self, path: Path, buffer: mmap.mmap | bytes) -> None:
        self.path, self.buffer, self.at, self.end = path, buffer, 0, len(buffer)

    def need(self, count: int) -> None:
        """CheckpointError unless ``count`` more bytes are there."""
        if count > self.end - self.at:
            raise CheckpointError(
                f"{self.path} is truncated: its header goes on at byte {self.end}, where the file ends; "
                "download it again"
            )

    def take(self, count: int) -> bytes:
        self.need(count)
        self.at += count
        return self.buffer[self.at - count : self.at]

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        # Hot: vocabularies have hundreds of thousands of strings. Locals, one slice for each length
        # and text; a short slice at the file's end makes `stop` pass the end, which is checked.
        self.need(8 * count)
        buffer, at, end, texts = self.buffer, self.at, self.end, []
        try:
            for _ in range(count):
                start = at + 8
                stop = start + int.from_bytes(buffer[at:start], "little")
                if stop > end:
                    self.need(stop - self.at)
                texts.append(str(buffer[start:stop], "utf-8"))
                at = stop
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.path}: a string at byte {at} is not UTF-8: {error}") from error
        self.at = at
        return texts

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        raise CheckpointError(f"{self.path} is damaged: metadata of unknown type {kind} before byte {self.at}")

    def array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind == _STRING:
            return self.strings(count)
        if kind == _ARRAY:
            self.need(12 * count)
            return [self.array() for _ in range(count)]
        if kind not in _SCALARS:
            raise CheckpointError(f"{self.path} is damaged: an array of unknown type {kind} before byte {self.at}")
        item = np.dtype("<" + _SCALARS[kind])  # struct and numpy share the letters
        values: list[Any] = np.frombuffer(self.take(item.itemsize * count), item).tolist()
        return values


def _read_preamble(cursor: _Cursor) -> tuple[int, int]:
    """Number of tensors and of metadata pairs, after the magic and the version have been checked."""
    magic = cursor.buffer[:4]
    if magic != MAGIC:
        raise CheckpointError(f"{cursor.path} is no GGUF file: it starts with {magic!r}, not {MAGIC!r}")
    cursor.take(4)
    version = cursor.scalar("I")
    if version & 0xFFFF == 0 and version:  # a small number seen through the other byte order
        raise CheckpointError(f"{cursor.path} is a big-endian GGUF; only little-endian files are supported")
    if version not in VERSIONS:
        raise CheckpointError(f"{cursor.path} is GGUF version {version}; supported: {', '.join(map(str, VERSIONS))}")
    return cursor.scalar("Q"), cursor.scalar("Q")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.string()
        try:
            metadata[key] = cursor.value(cursor.scalar("I"))
        except RecursionError as error:
            raise CheckpointError(f"{cursor.path} is damaged: arrays in arrays without end under {key}") from error
    return metadata
