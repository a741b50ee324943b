"""Frames: a JSON value in which arrays are references, then the arrays' bytes.

The worker runs a vendor's code, so the judge decodes nothing from it but numbers, text and arrays: no pickle.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

_LENGTHS = struct.Struct("<QQ")
_MOST = 1 << 34
DTYPES = frozenset({"<f4", "<f8", "<i4", "<i8", "<u8", "|u1", "|b1", "<u2", "|i1", "<u4", "<f2"})


def send(stream: IO[bytes], value: Any) -> None:
    """Write one frame. Raises TypeError for what a frame cannot hold."""
    parts: list[bytes] = []
    head = json.dumps(_strip(value, parts, [0]), allow_nan=True).encode()
    body = b"".join(parts)
    stream.write(_LENGTHS.pack(len(head), len(body)))
    stream.write(head)
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next frame. Raises EOFError if the other end is gone, ValueError for what is no frame."""
    head_size, body_size = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    if head_size + body_size > _MOST:
        raise ValueError(f"a frame of {head_size + body_size} bytes is too large")
    value = json.loads(_exactly(stream, head_size))
    return _restore(value, memoryview(_exactly(stream, body_size)))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError("the other end closed the wire")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _strip(value: Any, parts: list[bytes], end: list[int]) -> Any:
    """The value with references for its arrays, whose bytes go to ``parts``; ``end`` is how many there are so far."""
    if isinstance(value, np.ndarray):
        if value.dtype.str not in DTYPES:
            raise TypeError(f"a frame cannot hold an array of {value.dtype}")
        parts.append(value.tobytes())
        end[0] += value.nbytes
        return {"$array": [value.dtype.str, list(value.shape), end[0] - value.nbytes]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and not key.startswith("$") for key in value):
            raise TypeError(f"a frame cannot hold the keys {list(value)}")
        return {key: _strip(item, parts, end) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strip(item, parts, end) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a frame cannot hold a {type(value).__name__}")


def _restore(value: Any, body: memoryview) -> Any:
    if isinstance(value, list):
        return [_restore(item, body) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" not in value:
        return {key: _restore(item, body) for key, item in value.items()}
    text, shape, offset = value["$array"]
    if text not in DTYPES:
        raise ValueError(f"a frame holds an array of {text!r}")
    dtype = np.dtype(text)
    count = int(np.prod(shape, dtype=np.int64))
    if count < 0 or offset < 0 or offset + count * dtype.itemsize > len(body):
        raise ValueError("an array of a frame lies outside of it")
    part = body[offset : offset + count * dtype.itemsize]
    return np.frombuffer(part, dtype).reshape(shape).copy()
