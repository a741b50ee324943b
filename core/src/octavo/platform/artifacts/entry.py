"""The file that holds one artifact: written once, front to back, then only mapped.

    header    magic, version, where the index lies, length of the file, checksums of the index and of the header
    data      each array on pages of its own
    index     JSON: the key, the notes, and for each array its name, dtype, shape, offset, bytes and checksum

The header is written last, so that a file whose writing ended early has none. All numbers are little endian. Nothing in
it is code that Python would run: a foreign file can at worst be refused. Same inputs give the same bytes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.platform.artifacts.key import ArtifactKey

Array = npt.NDArray[Any]

PAGE = 4096
"""Alignment of every array, in bytes: what can be advised or moved on its own, and more than any kernel's 64."""

_MAGIC = b"OCTAVOAR"
_VERSION = 1
_HEADER = struct.Struct("<8sIQQQI")  # magic, version, index offset, index bytes, file bytes, checksum of the index
_CHECKSUM = struct.Struct("<I")  # of the header, after it
_DTYPE = re.compile(r"[<>|][biufc][0-9]{1,2}")


class Damaged(Exception):
    """A file that is not what it should be. The message says how, to follow the words "the file"."""


class Incompatible(Exception):
    """A whole file that is not for us. The message says why, to follow the words "the file"."""


class ArtifactWriter(Protocol):
    """Takes what a builder makes."""

    def add(self, name: str, array: Array) -> None:
        """Take over a C-contiguous array of plain numbers, which the caller neither changes nor needs any more.

        Bytes go in as ``numpy.frombuffer(data, numpy.uint8)``. Names are the builder's own and differ.
        """

    def note(self, name: str, value: str) -> None:
        """Keep a small fact with the artifact: what it needs of the device, how long it took to make."""


Build = Callable[[ArtifactWriter], None]
"""Makes an artifact: adds its arrays. May be called twice: into a file, and into memory if the file came to nothing."""


class InMemory:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}
        self.notes: dict[str, str] = {}

    def add(self, name: str, array: Array) -> None:
        """See `ArtifactWriter.add`."""
        _refuse_odd(name, array, self.arrays)
        self.arrays[name] = array

    def note(self, name: str, value: str) -> None:
        """See `ArtifactWriter.note`."""
        self.notes[name] = value


@dataclass(frozen=True)
class ArrayEntry:
    """Where an array lies in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    checksum: int


@dataclass(frozen=True)
class Index:
    """What a file says of itself."""

    key: ArtifactKey
    notes: Mapping[str, str]
    arrays: tuple[ArrayEntry, ...]


class EntryWriter:
    """Writes a file through a descriptor that stands at the start of an empty file. Errors are the system's OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0
        self._entries: dict[str, ArrayEntry] = {}
        self._notes: dict[str, str] = {}
        self._append(bytes(PAGE))

    def add(self, name: str, array: Array) -> None:
        """See `ArtifactWriter.add`."""
        _refuse_odd(name, array, self._entries)
        data = array.reshape(-1).view(np.uint8).data
        entry = ArrayEntry(name, array.dtype.str, array.shape, self._at, data.nbytes, zlib.crc32(data))
        self._entries[name] = entry
        self._append(data)
        self._append(bytes(-self._at % PAGE))

    def note(self, name: str, value: str) -> None:
        """See `ArtifactWriter.note`."""
        self._notes[name] = value

    def finish(self, key: ArtifactKey) -> int:
        """Write index and header, and wait until everything is on the disk. Returns the length of the file."""
        start = self._at
        content = {"key": key.to_dict(), "notes": self._notes, "arrays": [asdict(e) for e in self._entries.values()]}
        index = json.dumps(content, sort_keys=True).encode()
        self._append(index)
        os.ftruncate(self._descriptor, self._at)  # room that was reserved and not needed
        header = _HEADER.pack(_MAGIC, _VERSION, start, len(index), self._at, zlib.crc32(index))
        length = self._at
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._append(header + _CHECKSUM.pack(zlib.crc32(header)))
        os.fsync(self._descriptor)
        return length

    def _append(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        self._at += rest.nbytes
        while rest.nbytes:
            rest = rest[os.write(self._descriptor, rest) :]


def _refuse_odd(name: str, array: Array, others: Mapping[str, object]) -> None:
    """A builder's mistakes are bugs of the platform."""
    if not array.flags.c_contiguous:
        raise ValueError(f"array {name} of an artifact has strides {array.strides}; it must be C-contiguous")
    if not _DTYPE.fullmatch(array.dtype.str):
        raise ValueError(f"array {name} of an artifact is of {array.dtype}; it must be of plain numbers")
    if name in others:
        raise ValueError(f"an artifact has two arrays called {name}")


def read_index(descriptor: int) -> Index:
    """What the file says of itself; its arrays are not looked at. Raises Damaged or Incompatible."""
    return _index(_map(descriptor))


def map_entry(descriptor: int, threads: int) -> tuple[Index, dict[str, Array]]:
    """The file's index and arrays, read-only and mapped, so that they take memory once for all processes.

    The map has a descriptor of its own and lives as long as any of the arrays. Every byte is read once, by ``threads``
    threads, to be compared with its checksum: at one to seven GB/s a thread, as the system's zlib goes (measured: 7.5
    on Zen 5). From a cold disk it is as fast as the disk, and the first step, which needs every byte too, then finds
    them in memory. Raises Damaged or Incompatible.
    """
    mapped = _map(descriptor)
    index = check_content(mapped, threads)
    whole = np.frombuffer(mapped, np.uint8)
    return index, {entry.name: _bytes_of(whole, entry).view(entry.dtype).reshape(entry.shape) for entry in index.arrays}


def check_content(content: memoryview, threads: int) -> Index:
    """The index of a file's whole content, every byte of which was compared. Raises Damaged or Incompatible."""
    index = _index(content)
    whole = np.frombuffer(content, np.uint8)
    with ThreadPoolExecutor(threads) as workers:
        checksums = workers.map(lambda entry: zlib.crc32(_bytes_of(whole, entry).data), index.arrays)
        for entry, checksum in zip(index.arrays, checksums, strict=True):
            if checksum != entry.checksum:
                raise Damaged(f"does not hold what was written for {entry.name}")
    return index


def _bytes_of(whole: npt.NDArray[np.uint8], entry: ArrayEntry) -> npt.NDArray[np.uint8]:
    return whole[entry.offset : entry.offset + entry.bytes]


def _map(descriptor: int) -> memoryview:
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        raise Damaged("is no regular file")
    if facts.st_mode & stat.S_IWOTH:
        raise Damaged("may be written by anybody, so it cannot be trusted (chmod o-w)")
    if facts.st_size == 0:  # which cannot be mapped
        return memoryview(b"")
    return memoryview(mmap.mmap(descriptor, facts.st_size, access=mmap.ACCESS_READ))


def _index(content: memoryview) -> Index:
    if len(content) < PAGE:
        raise Damaged(f"has {len(content)} bytes and no header")
    header = content[: _HEADER.size]
    magic, version, start, length, size, checksum = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise Damaged("is no artifact, or its writing was cut short")
    if (zlib.crc32(header),) != _CHECKSUM.unpack_from(content, _HEADER.size):
        raise Damaged("has a damaged header")
    if version != _VERSION:
        raise Incompatible(f"is of version {version} of the file format, not {_VERSION}")
    if size != len(content):
        raise Damaged(f"has {len(content)} bytes of {size}")
    index = bytes(content[start : start + length])
    if zlib.crc32(index) != checksum:
        raise Damaged("has a damaged index")
    try:
        told = json.loads(index)
        arrays = tuple(ArrayEntry(**{**raw, "shape": tuple(raw["shape"])}) for raw in told["arrays"])
        notes = {str(name): str(value) for name, value in told["notes"].items()}
        key = ArtifactKey.from_dict(told["key"])
        whole = all(_fits(entry, start) for entry in arrays) and len({entry.name for entry in arrays}) == len(arrays)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"has an index that makes no sense: {error}") from error
    if not whole:
        raise Damaged("has an index that makes no sense: an array lies outside the file, or has no such shape")
    return Index(key, notes, arrays)


def _fits(entry: ArrayEntry, end: int) -> bool:
    """Whether an array can be where its entry says, before ``end``: checksums say nothing of who wrote them."""
    sizes: tuple[object, ...] = (*entry.shape, entry.offset, entry.bytes)
    return (
        _DTYPE.fullmatch(entry.dtype) is not None
        and all(isinstance(size, int) and size >= 0 for size in sizes)
        and math.prod(entry.shape) * np.dtype(entry.dtype).itemsize == entry.bytes
        and entry.offset % PAGE == 0
        and PAGE <= entry.offset <= entry.offset + entry.bytes <= end
    )
