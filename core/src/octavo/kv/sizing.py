"""How many blocks a sequence needs at most, before there is a pool."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.sequence import KVGroup


def peak_blocks(groups: Sequence[KVGroup], block_size: int, length: int, chunk: int) -> int:
    """Most blocks that a sequence of ``length`` tokens can hold at a time, if a step adds up to ``chunk``."""
    whole = -(-length // block_size)
    peak = 0
    for group in groups:
        if group.window is None:
            peak += whole
        else:
            span = group.window - 1 + min(chunk, length)
            # A span of s tokens that starts anywhere touches at most (s - 2) // size + 2 blocks.
            peak += min(whole, max(0, span - 2) // block_size + 2)
    return peak


def longest_sequence(groups: Sequence[KVGroup], block_size: int, blocks: int, chunk: int, limit: int) -> int:
    """The longest sequence, up to ``limit`` tokens, that ``blocks`` blocks can hold; 0 if not even one token."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if peak_blocks(groups, block_size, middle, chunk) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
