"""The file that holds a model's packed weights: written once, front to back, then only mapped.

    header    magic, version, where the index lies, length of the file, checksums of the index and of the header
    data      each array on pages of its own
    index     JSON: the key, and for each array its name, dtype, shape, offset, bytes and checksum

The header is written last, so that a file whose writing ended early has none. All numbers are little endian.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PAGE = 4096
"""Alignment of every array, in bytes: what can be advised or moved on its own, and more than the kernels' 64."""

_MAGIC = b"OCTAVOPK"
_VERSION = 1
_HEADER = struct.Struct("<8sIQQQI")  # magic, version, index offset, index bytes, file bytes, checksum of the index
_CHECKSUM = struct.Struct("<I")  # of the header, after it


class Damaged(Exception):
    """A file that is not what it should be. The message says how, to follow the words "the file"."""


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    checksum: int


class PackedFileWriter:
    """Writes a file through a descriptor that stands at the start of an empty file. Errors are the system's OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0
        self._entries: list[_Entry] = []
        self._append(bytes(PAGE))

    def add(self, name: str, array: Array) -> None:
        """Append an array, C-contiguous, under a name of its own."""
        assert array.flags.c_contiguous, f"{name} has strides {array.strides}"
        assert all(entry.name != name for entry in self._entries), f"{name} is there already"
        data = array.reshape(-1).view(np.uint8).data
        self._entries.append(_Entry(name, array.dtype.str, array.shape, self._at, data.nbytes, zlib.crc32(data)))
        self._append(data)
        self._append(bytes(-self._at % PAGE))

    def finish(self, key: str) -> None:
        """Write index and header, and wait until everything is on the disk."""
        start = self._at
        index = json.dumps({"key": key, "arrays": [asdict(entry) for entry in self._entries]}).encode()
        self._append(index)
        os.ftruncate(self._descriptor, self._at)  # room that was reserved and not needed
        header = _HEADER.pack(_MAGIC, _VERSION, start, len(index), self._at, zlib.crc32(index))
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._append(header + _CHECKSUM.pack(zlib.crc32(header)))
        os.fsync(self._descriptor)

    def _append(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        self._at += rest.nbytes
        while rest.nbytes:
            rest = rest[os.write(self._descriptor, rest) :]


def file_bytes(array_bytes: int, arrays: int) -> int:
    """At least the length of a file with so many arrays of so many bytes in all."""
    return array_bytes + (arrays + 2) * PAGE + arrays * 512  # 512: an entry of the index


def map_packed_file(descriptor: int, key: str, threads: int) -> dict[str, Array]:
    """The arrays of the file, read-only and mapped, so that they take memory once for all processes.

    The map has a descriptor of its own and lives as long as any of the arrays. Every byte is read once, by ``threads``
    threads, to be compared with its checksum: at one to seven GB/s a thread, as the system's zlib goes (measured: 7.5
    on Zen 5). From a cold disk it is as fast as the disk, and the first step, which needs every byte too, then finds
    them in memory. Raises Damaged.
    """
    size = os.fstat(descriptor).st_size
    if size < PAGE:
        raise Damaged(f"has {size} bytes and no header")
    mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    entries = _read_index(mapped, key)
    whole = np.frombuffer(mapped, np.uint8)

    def bytes_of(entry: _Entry) -> npt.NDArray[np.uint8]:
        return whole[entry.offset : entry.offset + entry.bytes]

    with ThreadPoolExecutor(threads) as workers:
        for entry, checksum in zip(entries, workers.map(lambda e: zlib.crc32(bytes_of(e).data), entries), strict=True):
            if checksum != entry.checksum:
                raise Damaged(f"does not hold what was written for {entry.name}")
    return {entry.name: bytes_of(entry).view(entry.dtype).reshape(entry.shape) for entry in entries}


def _read_index(mapped: mmap.mmap, key: str) -> list[_Entry]:
    header = mapped[: _HEADER.size]
    magic, version, start, length, size, checksum = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise Damaged("is no file of packed weights, or its writing was cut short")
    if (zlib.crc32(header),) != _CHECKSUM.unpack_from(mapped, _HEADER.size):
        raise Damaged("has a damaged header")
    if version != _VERSION:
        raise Damaged(f"is of version {version}, not {_VERSION}")
    if size != len(mapped):
        raise Damaged(f"has {len(mapped)} bytes of {size}")
    index = mapped[start : start + length]
    if zlib.crc32(index) != checksum:
        raise Damaged("has a damaged index")
    content = json.loads(index)
    if content["key"] != key:
        raise Damaged("holds the weights of another checkpoint")
    return [_Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in content["arrays"]]
