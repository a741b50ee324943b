"""The KV manager: gives sequences their blocks, shares them, takes them back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.errors import ConfigError
from octavo.kv.blocks import NULL_BLOCK, BlockPool
from octavo.kv.prefix import PrefixIndex
from octavo.kv.sequence import KVGroup, KVSequence
from octavo.step_plan import BlockUpdate

NEVER = sys.maxsize


@dataclass(frozen=True)
class KVStats:
    """A snapshot of the cache. Blocks but for ``wasted_slots`` (tokens) and the prefix counters (tokens)."""

    total: int
    used: int
    free: int
    cached: int
    """Blocks whose content is indexed, held or not."""
    wasted_slots: int
    """Slots in used blocks that hold no token: at most one partial block per sequence and group."""
    prefix_queries: int
    prefix_hits: int


class KVManager:
    """Block tables of all sequences, over one pool that every group draws from.

    A sequence goes ``sequence`` -> ``match`` -> ``admit`` -> (``grow`` -> step -> ``commit``)* -> ``free``; ``fork``
    after a commit. What changes in a tracked sequence's tables is collected, with the block copies
    that the next step needs, until ``take_changes``.

    Invariants
    ----------
    * ``pool.refs[b]`` is the number of table entries that name b.
    * A block is written by one sequence only: full blocks never again, a shared partial one is copied.
    * An indexed block is full, and the step that filled it has completed.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        groups: Sequence[KVGroup] = (KVGroup(),),
        enable_prefix_caching: bool = True,
        *,
        hash_key: bytes | None = None,
    ) -> None:
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1, not {block_size} (--block-size)")
        if not groups:
            raise ConfigError("a KV cache needs at least one group of layers")
        self.block_size = block_size
        self.groups = tuple(groups)
        self.enable_prefix_caching = enable_prefix_caching
        self.index = PrefixIndex(len(self.groups), hash_key)
        self.pool = BlockPool(num_blocks, self.index.drop)
        self._windows = tuple(group.window for group in self.groups)
        self._live: set[KVSequence] = set()
        self._updates: list[BlockUpdate] = []
        self._copies: list[tuple[int, int]] = []
        self._queries = 0
        self._hits = 0

    # -- one sequence ------------------------------------------------------------------------------

    def sequence(self, sequence_id: str, namespace: str = "", extra: Sequence[str] = ()) -> KVSequence:
        """A sequence without blocks. Only sequences of equal ``namespace`` and ``extra`` share blocks."""
        sequence = KVSequence(sequence_id, self.index.root(namespace, extra), [], [], NEVER)
        self._reset(sequence)
        return sequence

    def match(self, sequence: KVSequence, tokens: Sequence[int]) -> int:
        """How many leading tokens are in the cache already; claims nothing.

        A multiple of the block size, and less than ``len(tokens)``: the last token is always computed,
        because its logits are what the step is for. A full group needs every block of the prefix, a
        window group only those that the next query sees.
        """
        if not self.enable_prefix_caching:
            return 0
        sequence.queried = len(tokens)
        blocks = (len(tokens) - 1) // self.block_size
        self._extend_digests(sequence, tokens, blocks)
        digests, get = sequence.digests, self.index.get
        for g, window in enumerate(self._windows):
            if window is None:
                blocks = next((b for b in range(blocks) if get(g, digests[b]) is None), blocks)
        settled = False
        while not settled:
            settled = True
            for g, window in enumerate(self._windows):
                if window is None:
                    continue
                for b in range(blocks - 1, self._first_block(g, blocks * self.block_size) - 1, -1):
                    if get(g, digests[b]) is None:
                        # Every longer prefix up to here would need block b as well: the next candidate ends before it.
                        blocks, settled = b, False
                        break
        return blocks * self.block_size

    def admit(self, sequence: KVSequence, cached: int, count: int) -> bool:
        """Claim the ``cached`` tokens that `match` found and make slots for ``count`` more.

        False, and nothing has changed, when there are too few free blocks.
        """
        matched = cached // self.block_size
        blocks = -(-(cached + count) // self.block_size)
        claimed = [self._claim(sequence, g, matched) for g in range(len(self.groups))]
        revived = sum(not self.pool.refs[b] for table in claimed for b in table if b != NULL_BLOCK)
        if (blocks - matched) * len(self.groups) + revived > self.pool.free:
            return False
        for g, table in enumerate(claimed):
            for block in table:
                if block != NULL_BLOCK:
                    self.pool.share(block)
            sequence.tables[g] = table
            sequence.passed[g] = self._first_block(g, cached)
        for table in sequence.tables:  # after all claims: a take must not evict what another group claims
            table.extend([self.pool.take() for _ in range(blocks - matched)])
        sequence.indexed = matched
        sequence.length = cached + count
        sequence.capacity = blocks * self.block_size
        sequence.boundary = self._next_boundary(sequence, cached)
        self._live.add(sequence)
        if not sequence.counted:  # what a preempted sequence finds of its own is no hit
            sequence.counted = True
            self._queries += sequence.queried
            self._hits += cached
        return True

    def grow(self, sequence: KVSequence, start: int, count: int) -> bool:
        """Make slots for tokens ``start … start+count-1``, and make them safe to write.

        A partial block that a fork still holds is replaced by a copy, unless the fork has gone. False,
        and nothing has changed, when there are too few free blocks.
        """
        size, tables, pool = self.block_size, sequence.tables, self.pool
        end = start + count
        held = len(tables[0])
        missing = max(0, -(-end // size) - held)
        tail = start // size
        torn: list[int] = []
        if sequence.tail_shared and start % size:
            torn = [g for g, table in enumerate(tables) if pool.refs[table[tail]] > 1]
        if missing * len(tables) + len(torn) > pool.free:
            return False
        for g in torn:
            source, copy = tables[g][tail], pool.take()
            pool.release(source, keep=False)  # others hold it: this only counts one less
            self._copies.append((source, copy))
            tables[g][tail] = copy
            self._tell(sequence, g, tail, [copy])
        sequence.tail_shared = False
        if missing:
            for g, table in enumerate(tables):
                blocks = [pool.take() for _ in range(missing)]
                table.extend(blocks)
                self._tell(sequence, g, held, blocks)
            sequence.capacity += missing * size
        sequence.length = end
        return True

    def commit(self, sequence: KVSequence, tokens: Sequence[int], computed: int) -> None:
        """The step that computed the first ``computed`` of ``tokens`` has completed; needed at ``boundary`` only.

        Full blocks are indexed now rather than when their step was scheduled. Until it completes, a
        reader in the same step would depend on the platform writing every row's keys before any row's
        attention; and a row that fails in the step would leave a damaged block for others to find. The
        price is that two requests which start in the same step both compute their common prefix. They still
        hold it once afterwards: the first one's block is indexed, the other exchanges its own for it.

        Blocks that no later query can see go back to the pool, after being indexed.
        """
        if self.enable_prefix_caching:
            full = computed // self.block_size
            self._extend_digests(sequence, tokens, full)
            for b in range(sequence.indexed, full):
                self._index_block(sequence, b)
            sequence.indexed = full
        for g, window in enumerate(self._windows):
            if window is not None:
                self._pass_window(sequence, g, computed)
        sequence.boundary = self._next_boundary(sequence, computed)

    def fork(self, parent: KVSequence, fork_id: str) -> KVSequence:
        """A sequence that shares every block of ``parent``; the first to write to the partial one copies it."""
        tail_shared = parent.tail_shared = parent.length % self.block_size != 0
        child = KVSequence(
            fork_id,
            parent.root,
            tables=[list(table) for table in parent.tables],
            passed=list(parent.passed),
            boundary=parent.boundary,
            digests=list(parent.digests),
            indexed=parent.indexed,
            length=parent.length,
            capacity=parent.capacity,
            tail_shared=tail_shared,
            counted=True,
        )
        for table in child.tables:
            for block in table:
                if block != NULL_BLOCK:
                    self.pool.share(block)
        self._live.add(child)
        return child

    def free(self, sequence: KVSequence) -> None:
        """Give all blocks back, last tokens first, so that a prefix's head is evicted last. Idempotent."""
        if sequence.tracked and self._updates:
            self._updates = [update for update in self._updates if update.id != sequence.id]
        for entries in zip(*(reversed(table) for table in sequence.tables), strict=True):
            for block in entries:
                if block != NULL_BLOCK:
                    self.pool.release(block, keep=block in self.index)
        self._live.discard(sequence)
        self._reset(sequence)

    # -- all sequences -----------------------------------------------------------------------------

    def take_changes(self) -> tuple[list[BlockUpdate], list[tuple[int, int]]]:
        """Table updates since the last call, and the copies to make, both in order."""
        changes = self._updates, self._copies
        self._updates, self._copies = [], []
        return changes

    def stats(self) -> KVStats:
        """The cache now; O(live sequences)."""
        tails: dict[int, int] = {}  # last block -> slots in use; forks share one for a while
        for sequence in self._live:
            fill = sequence.length - sequence.capacity + self.block_size
            for table in sequence.tables:
                tails[table[-1]] = max(fill, tails.get(table[-1], 0))
        return KVStats(
            total=self.pool.num_blocks - 1,
            used=self.pool.used,
            free=self.pool.free,
            cached=len(self.index),
            wasted_slots=sum(self.block_size - fill for fill in tails.values()),
            prefix_queries=self._queries,
            prefix_hits=self._hits,
        )

    # -- inside ------------------------------------------------------------------------------------

    def _reset(self, sequence: KVSequence) -> None:
        sequence.tables = [[] for _ in self.groups]
        sequence.passed = [0] * len(self.groups)
        sequence.indexed = sequence.length = sequence.capacity = 0
        sequence.boundary = NEVER
        sequence.tail_shared = sequence.tracked = False

    def _first_block(self, group: int, position: int) -> int:
        """Blocks before this one hold nothing that queries from ``position`` on can see."""
        return self.groups[group].first_visible(position) // self.block_size

    def _claim(self, sequence: KVSequence, group: int, matched: int) -> list[int]:
        first = self._first_block(group, matched * self.block_size)
        found = [self.index.get(group, digest) for digest in sequence.digests[first:matched]]
        blocks = [block for block in found if block is not None]
        assert len(blocks) == len(found), "admit() takes what match() returned, with nothing in between"
        return [NULL_BLOCK] * first + blocks

    def _extend_digests(self, sequence: KVSequence, tokens: Sequence[int], blocks: int) -> None:
        digests, size = sequence.digests, self.block_size
        for b in range(len(digests), blocks):
            parent = digests[-1] if b else sequence.root
            digests.append(self.index.digest(parent, tokens[b * size : (b + 1) * size]))

    def _index_block(self, sequence: KVSequence, b: int) -> None:
        digest = sequence.digests[b]
        for g, table in enumerate(sequence.tables):
            block = table[b]
            if block == NULL_BLOCK:
                continue
            known = self.index.get(g, digest)
            if known is None:
                self.index.put(g, digest, block)
            elif known != block:  # another sequence computed the same tokens meanwhile
                self.pool.share(known)
                self.pool.release(block, keep=False)
                table[b] = known
                self._tell(sequence, g, b, [known])

    def _pass_window(self, sequence: KVSequence, g: int, computed: int) -> None:
        table, start = sequence.tables[g], sequence.passed[g]
        end = self._first_block(g, computed)
        if end <= start:
            return
        for block in table[start:end]:
            self.pool.release(block, keep=block in self.index)
        table[start:end] = [NULL_BLOCK] * (end - start)
        sequence.passed[g] = end
        self._tell(sequence, g, start, [NULL_BLOCK] * (end - start))

    def _next_boundary(self, sequence: KVSequence, computed: int) -> int:
        size = self.block_size
        boundary = (computed // size + 1) * size if self.enable_prefix_caching else NEVER
        for passed, window in zip(sequence.passed, self._windows, strict=True):
            if window is not None:  # the moment when one more block is out of sight
                boundary = min(boundary, (passed + 1) * size + window - 1)
        return boundary

    def _tell(self, sequence: KVSequence, group: int, start: int, blocks: list[int]) -> None:
        if sequence.tracked:
            self._updates.append(BlockUpdate(sequence.id, group, start, blocks))
