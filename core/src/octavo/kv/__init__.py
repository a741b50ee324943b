"""The paged KV cache: block pool, prefix index, KV manager. No device and no arrays: only block ids."""

from octavo.kv.blocks import NULL_BLOCK, BlockPool
from octavo.kv.manager import KVManager, KVStats
from octavo.kv.prefix import PrefixIndex
from octavo.kv.sequence import KVGroup, KVSequence

__all__ = ["NULL_BLOCK", "BlockPool", "KVGroup", "KVManager", "KVSequence", "KVStats", "PrefixIndex"]
