"""The block pool in the host's memory, in the layout that native attention reads."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import DeviceOutOfMemory, KVLayout
from octavo_cpu.binding import pointer

KV_FORMATS = ("bf16", "int8")
"""In the order of the library's KVFormat."""


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
            raise DeviceOutOfMemory(f"no address space for a KV pool of {blocks * layout.block_bytes} bytes")

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
