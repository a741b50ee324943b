"""The wire carries numbers, text and arrays, and nothing that could run."""

from __future__ import annotations

import io
import pickle
import struct

import numpy as np
import pytest

from octavo_conformance.worker import wire


def through(value: object) -> object:
    stream = io.BytesIO()
    wire.send(stream, value)
    stream.seek(0)
    return wire.receive(stream)


def test_values_arrive_as_they_were_sent() -> None:
    value = {"a": [1, 2.5, None, True, "text"], "nan": float("inf"), "nested": {"b": []}}
    assert through(value) == value


@pytest.mark.parametrize("dtype", sorted(wire.DTYPES))
def test_arrays_keep_type_shape_and_bytes(dtype: str) -> None:
    array = np.frombuffer(bytes(range(48)), np.uint8)[: 6 * np.dtype(dtype).itemsize]
    array = (array & 1).astype(bool).reshape(2, 3) if dtype == "|b1" else array.view(dtype).reshape(2, 3)
    found = through({"one": array, "two": [array[:0], array.T]})
    assert isinstance(found, dict)
    for sent, got in ((array, found["one"]), (array[:0], found["two"][0]), (array.T, found["two"][1])):
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert got.tobytes() == np.ascontiguousarray(sent).tobytes()


def test_nan_payloads_survive() -> None:
    bits = np.array([0x7FC00001, 0xFFFFFFFF, 0x7F800001], np.uint32)
    found = through([bits.view(np.float32)])
    assert isinstance(found, list)
    assert found[0].view(np.uint32).tolist() == bits.tolist()


@pytest.mark.parametrize("value", [object(), {1: 2}, {"$array": 1}, np.array(["text"]), np.array([None]), {"f": len}])
def test_what_a_frame_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a frame cannot hold"):
        wire.send(io.BytesIO(), value)


def test_a_pickle_is_no_frame() -> None:
    body = pickle.dumps({"ok": 1})
    with pytest.raises(ValueError, match=r"Expecting value|decode"):
        wire.receive(io.BytesIO(struct.pack("<QQ", len(body), 0) + body))


@pytest.mark.parametrize(
    "head", [b'{"$array": ["<f4", [4], 0]}', b'{"$array": ["<f4", [1], 99]}', b'{"$array": ["|O", [1], 0]}',
             b'{"$array": ["<f4", [-1], 0]}']
)  # fmt: skip
def test_arrays_that_lie_about_themselves_are_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        wire.receive(io.BytesIO(struct.pack("<QQ", len(head), 4) + head + b"1234"))


def test_a_closed_wire_is_told_apart() -> None:
    with pytest.raises(EOFError, match="the other end closed the wire"):
        wire.receive(io.BytesIO(b"short"))
    with pytest.raises(ValueError, match="too large"):
        wire.receive(io.BytesIO(struct.pack("<QQ", 1 << 60, 0)))
