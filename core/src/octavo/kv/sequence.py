"""What the KV manager knows of one sequence and of one group of layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import ConfigError


@dataclass(frozen=True)
class KVGroup:
    """Layers that share a block table because they see the same tokens.

    ``window`` W: the query at position p sees positions p-W+1 … p. ``None``: all up to p.
    """

    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ConfigError(f"a sliding window of {self.window} tokens sees nothing; it must be at least 1")

    def first_visible(self, position: int) -> int:
        """The first position that queries at ``position`` and later can still see."""
        return 0 if self.window is None else max(0, position - self.window + 1)


@dataclass(slots=True, eq=False)
class KVSequence:
    """The blocks of one sequence. Made and changed by the KV manager only; others read.

    It outlives a preemption, which empties the tables; the digests stay valid as the tokens do.
    """

    id: str
    root: bytes
    """Digest that the chain of block digests begins with."""
    tables: list[list[int]]
    """Per group the block ids, all equally long; 0 where the window has left a block."""
    passed: list[int]
    """Per group how many leading entries the window has left."""
    boundary: int
    """Number of computed tokens at which `KVManager.commit` next has something to do."""
    digests: list[bytes] = field(default_factory=list)
    """Of the leading full blocks, as far as they were needed."""
    indexed: int = 0
    """Leading blocks that were offered to the prefix index."""
    length: int = 0
    """Tokens that have a slot."""
    capacity: int = 0
    """Tokens that the tables have room for."""
    tail_shared: bool = False
    """The last block is partial and a fork may hold it too: copy it before writing."""
    tracked: bool = False
    """The runner holds a copy of the tables, so that changes must be told as updates. Set by the scheduler."""
    queried: int = 0
    """Tokens that `KVManager.match` last looked up."""
    counted: bool = False
    """It is in the prefix statistics."""
