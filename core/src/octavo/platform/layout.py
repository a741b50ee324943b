"""The shape of the block pool, which core plans, a device allocates, and compiled programs are made for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KVLayout:
    """The shape of the block pool.

    A block holds the keys and values of ``block_size`` tokens in the layers of one KV group; the pool has ``slots``
    layer tensors, so that any block can serve any group: layer i of the graph lives in tensor ``graph.kv[i].slot``,
    under the block ids of table ``graph.kv[i].group``. Block 0 is the null block: padding reads it, nobody owns it,
    nothing is written to it.

    ``dtype`` is of `octavo.platform.info.KV_DTYPES`. How a device arranges a block inside is its own affair.
    """

    block_size: int
    slots: int
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def block_bytes(self) -> int:
        """Bytes of the numbers in one block, keys and values over all slots; see `Device.kv_block_bytes`."""
        element = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1}[self.dtype]
        return 2 * self.slots * self.block_size * self.kv_heads * self.head_dim * element
