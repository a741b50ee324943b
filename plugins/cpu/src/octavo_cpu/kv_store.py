"""The block pool in the host's memory, in the layout that native attention reads."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import DeviceOutOfMemory, KVLayout
from octavo_cpu.binding import pointer

ELEMENT_BYTES = {"bf16": 2.0, "int8": 1 + (2 / 8 + 2 / 16) / 2, "f32": 4.0, "f16": 2.0}
"""Of an element on average: with int8 each 8 of a key and each 16 of a value share a bf16 scale."""
KV_FORMATS = tuple(ELEMENT_BYTES)
"""In the order of the library's KVFormat."""


def block_bytes(layout: KVLayout) -> int:
    """What a block takes, scales included."""
    elements = 2 * layout.slots * layout.block_size * layout.kv_heads * layout.head_dim
    return int(elements * ELEMENT_BYTES[layout.dtype])


class NativeKVStore:
    """Meets `octavo.platform.KVStore`. Its pages take memory only once they are written."""

    def __init__(self, library: ctypes.CDLL, layout: KVLayout, blocks: int) -> None:
        self._library = library
        self.layout = layout
        self.blocks = blocks
        self.handle: Any = library.octavo_kv_new(
            KV_FORMATS.index(layout.dtype), layout.slots, blocks, layout.block_size, layout.kv_heads, layout.head_dim
        )
        if not self.handle:
            raise DeviceOutOfMemory(f"no address space for a KV pool of {blocks * block_bytes(layout)} bytes")

    def read_block(self, block: int) -> npt.NDArray[np.float32]:
        """See `KVStore.read_block`."""
        data = np.empty(self._shape(), np.float32)
        self._library.octavo_kv_block(self.handle, block, pointer(data), 0)
        return data

    def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
        """See `KVStore.write_block`."""
        rows = np.ascontiguousarray(data, np.float32)
        assert rows.shape == self._shape(), f"a block is {self._shape()}, not {rows.shape}"
        self._library.octavo_kv_block(self.handle, block, pointer(rows), 1)

    def _shape(self) -> tuple[int, ...]:
        layout = self.layout
        return (2, layout.slots, layout.block_size, layout.kv_heads, layout.head_dim)

    def close(self) -> None:
        """See `KVStore.close`. Idempotent."""
        handle, self.handle = self.handle, None
        if handle:
            self._library.octavo_kv_free(handle)
