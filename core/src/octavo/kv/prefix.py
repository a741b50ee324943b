"""The prefix index: finds the block that already holds a given run of tokens."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16


class PrefixIndex:
    """Full blocks by what they hold: per group, digest -> block and back.

    A block's digest is a keyed hash (BLAKE2b, 128 bits) of its parent's digest and its own tokens,
    so equal digests mean equal tokens from the sequence's start. The chain begins with a digest of
    the cache namespace (tenant, salt) and of whatever else changes what a model makes of the same
    tokens (an adapter, an image's id): sequences of different namespaces never share a digest. The
    key is random for each process: nobody outside can search for colliding prompts. Give a ``key`` of up to 64
    bytes where several processes, or runs, must agree on digests.
    """

    def __init__(self, groups: int, key: bytes | None = None) -> None:
        key = secrets.token_bytes(32) if key is None else key
        self._root = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"octavo-root")
        self._block = blake2b(key=key, digest_size=DIGEST_BYTES, person=b"octavo-block")
        self._blocks: list[dict[bytes, int]] = [{} for _ in range(groups)]
        self._keys: dict[int, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def root(self, namespace: str, extra: Sequence[str] = ()) -> bytes:
        """The parent of a sequence's first block. Parts are length-prefixed: ("ab", "c") is not ("a", "bc")."""
        state = self._root.copy()
        for part in (namespace, *extra):
            data = part.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "little"))
            state.update(data)
        return state.digest()

    def digest(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        """The digest of one full block, from its parent's and its tokens."""
        state = self._block.copy()
        state.update(parent)
        state.update(array("q", tokens).tobytes())
        return state.digest()

    def get(self, group: int, digest: bytes) -> int | None:
        """The block of ``group`` that holds this content, if there is one."""
        return self._blocks[group].get(digest)

    def put(self, group: int, digest: bytes, block: int) -> None:
        """Index a block whose content no other block of the group is indexed for."""
        assert digest not in self._blocks[group] and block not in self._keys
        self._blocks[group][digest] = block
        self._keys[block] = (group, digest)

    def drop(self, block: int) -> None:
        """Forget an indexed block, because its slots are about to be written."""
        group, digest = self._keys.pop(block)
        del self._blocks[group][digest]
