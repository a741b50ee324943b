"""Buckets: the static shapes of a step, and the proof that they cover every batch.

A step has four sizes: T tokens, R rows, S tokens to sample, B blocks per row. A platform that
compiles for static shapes lists the values that each may take; a platform with dynamic shapes has
the one unbounded bucket and walks the same path.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from octavo.errors import ConfigError


class Bucket(NamedTuple):
    """One static shape; ``None`` leaves a size free.

    A step in this bucket is padded to it. Padding tokens have id 0, position 0 and slot -1; padding
    rows have no new tokens and a context of 0; padding table entries name block 0, the null block.
    """

    tokens: int | None = None
    rows: int | None = None
    samples: int | None = None
    blocks: int | None = None

    def covers(self, size: Bucket) -> bool:
        """Whether a step of ``size`` fits."""
        return all(mine is None or (s is not None and s <= mine) for mine, s in zip(self, size, strict=True))

    @property
    def volume(self) -> int:
        """A measure of padding cost: tokens times blocks; free sizes count as 1."""
        return (self.tokens or 1) * (self.blocks or 1) + (self.rows or 1)


def powers_up_to(limit: int, start: int = 1) -> tuple[int, ...]:
    """``start``, doubled until it reaches ``limit``; the last value is ``limit`` itself."""
    values = []
    while start < limit:
        values.append(start)
        start *= 2
    return (*values, limit)


@dataclass(frozen=True)
class BucketPolicy:
    """Which buckets to compile: the product of the listed sizes, or exactly ``explicit``.

    A size that lists nothing (``None``) stays free.
    """

    tokens: tuple[int, ...] | None = None
    rows: tuple[int, ...] | None = None
    samples: tuple[int, ...] | None = None
    blocks: tuple[int, ...] | None = None
    explicit: tuple[Bucket, ...] = ()

    @property
    def static(self) -> bool:
        """Whether any size is fixed."""
        return bool(self.explicit) or any(s is not None for s in (self.tokens, self.rows, self.samples, self.blocks))

    def buckets(self) -> tuple[Bucket, ...]:
        """All buckets, cheapest first. Combinations no step can have (more rows than tokens) are left out."""
        if self.explicit:
            found = list(self.explicit)
        else:
            sizes = [s if s is not None else (None,) for s in (self.tokens, self.rows, self.samples, self.blocks)]
            found = [Bucket(*combination) for combination in product(*sizes)]
            smallest = min(self.tokens) if self.tokens else 0
            found = [
                b for b in found
                if b.tokens is None or b.rows is None or b.rows <= b.tokens or b.tokens == smallest
            ]
        return tuple(sorted(found, key=lambda b: b.volume))


class BucketSet:
    """The buckets of one engine; picks the cheapest that covers a step."""

    def __init__(self, policy: BucketPolicy) -> None:
        self.buckets = policy.buckets()
        self._only = self.buckets[0] if len(self.buckets) == 1 and not policy.static else None

    def find(self, tokens: int, rows: int, samples: int, blocks: int) -> Bucket | None:
        """The cheapest bucket that covers a step of these sizes, or ``None``."""
        if self._only is not None:
            return self._only
        size = Bucket(tokens, rows, samples, blocks)
        return next((b for b in self.buckets if b.covers(size)), None)

    def pick(self, tokens: int, rows: int, samples: int, blocks: int) -> Bucket:
        """As ``find``, for a step that `prove` has promised a bucket to."""
        bucket = self.find(tokens, rows, samples, blocks)
        assert bucket is not None, f"no bucket covers {(tokens, rows, samples, blocks)}; prove() should have failed"
        return bucket

    def prove(self, *largest: Bucket) -> None:
        """Check that each of the ``largest`` steps that may be scheduled has a bucket.

        Every schedulable step is no larger than one of them in any size, and covering is monotone,
        so every step then has a bucket. Raises ConfigError with the step that has none.
        """
        for size in largest:
            if not any(b.covers(size) for b in self.buckets):
                raise ConfigError(
                    f"no compiled shape covers a step of {size.tokens} tokens, {size.rows} rows, {size.samples} samples "
                    f"and {size.blocks} blocks per row; lower --max-num-batched-tokens, --max-num-seqs or "
                    f"--max-model-len, or let the platform list larger buckets "
                    f"(its largest: {self.buckets[-1] if self.buckets else 'none'})"
                )
