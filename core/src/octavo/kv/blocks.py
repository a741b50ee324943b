"""The block pool: which blocks of the KV cache are held, and which may be taken next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from octavo.errors import ConfigError

NULL_BLOCK = 0
"""Stands in tables where there is no block: never allocated, never read, may be written by padding."""


class BlockPool:
    """Blocks 1 … N-1 of one cache, with reference counts. Every operation is O(1).

    ========  =====================================================================
    state     meaning
    ========  =====================================================================
    held      ``refs[block] > 0``: that many tables name it
    kept      no table names it, but its content is indexed: `share` brings it back
    empty     no table names it, its content means nothing
    ========  =====================================================================

    ``free`` counts kept and empty blocks, so ``free + used == num_blocks - 1`` always. `take` uses
    empty blocks first; then it evicts the kept block that was released longest ago, and tells
    ``on_evict`` so that the index forgets it.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        if num_blocks < 2:
            raise ConfigError(
                f"the KV cache has {num_blocks} blocks and needs at least 2 (block 0 is the null block); "
                "give it more memory (--memory-utilization) or use a smaller --block-size"
            )
        self.num_blocks = num_blocks
        self.refs = [0] * num_blocks
        self._on_evict = on_evict
        self._empty = list(range(num_blocks - 1, NULL_BLOCK, -1))  # taken from the end: low ids first
        self._kept: OrderedDict[int, None] = OrderedDict()  # released longest ago first

    @property
    def free(self) -> int:
        """Blocks that `take` can still hand out."""
        return len(self._empty) + len(self._kept)

    @property
    def used(self) -> int:
        """Blocks that a table names."""
        return self.num_blocks - 1 - self.free

    def take(self) -> int:
        """A block with one reference. The caller has checked ``free``."""
        if self._empty:
            block = self._empty.pop()
        else:
            block, _ = self._kept.popitem(last=False)
            self._on_evict(block)
        self.refs[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more reference to a held or kept block."""
        if self.refs[block] == 0:
            del self._kept[block]
        self.refs[block] += 1

    def release(self, block: int, *, keep: bool) -> None:
        """One reference less; ``keep``: the content is indexed, and stays until evicted."""
        refs = self.refs[block] - 1
        assert refs >= 0 and block != NULL_BLOCK, f"block {block} is released more often than it was taken"
        self.refs[block] = refs
        if refs == 0:
            if keep:
                self._kept[block] = None
            else:
                self._empty.append(block)
