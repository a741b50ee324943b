"""Buckets: the static shapes of a step, and the proof that they cover every batch.

A step has four sizes: T tokens, R rows, S tokens to sample, B blocks per row. A platform that
compiles for static shapes lists the values that each may take; a platform with dynamic shapes has
the one unbounded bucket and walks the same path.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
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
        """A measure of padding cost: tokens times blocks, plus rows and samples; free sizes count as 1."""
        return (self.tokens or 1) * (self.blocks or 1) + (self.rows or 1) + (self.samples or 1)


def powers_up_to(limit: int, start: int = 1) -> tuple[int, ...]:
    """``start``, doubled until it reaches ``limit``; the last value is ``limit`` itself."""
    values = []
    while start < limit:
        values.append(start)
        start *= 2
    return (*values, limit)


def _round_up(value: int, sizes: Sequence[int]) -> int:
    """The first of the ascending ``sizes`` that is at least ``value``; one more than the last if none is."""
    at = bisect_left(sizes, value)
    return sizes[at] if at < len(sizes) else (sizes[-1] + 1 if sizes else 0)


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
        """All buckets, cheapest first.

        Combinations that no step needs are left out: a step has at least as many tokens as rows, and
        as samples, so of the listed sizes only the first that reaches the bucket's tokens is of use.
        """
        if self.explicit:
            found = list(self.explicit)
        else:
            sizes = [s if s is not None else (None,) for s in (self.tokens, self.rows, self.samples, self.blocks)]
            found = [
                bucket
                for bucket in (Bucket(*combination) for combination in product(*sizes))
                if _useful(bucket.rows, self.rows, bucket.tokens)
                and _useful(bucket.samples, self.samples, bucket.tokens)
            ]
        return tuple(sorted(found, key=lambda b: b.volume))


def _useful(size: int | None, listed: tuple[int, ...] | None, tokens: int | None) -> bool:
    """Whether no smaller one of the ``listed`` sizes already holds one for each token."""
    if size is None or listed is None or tokens is None:
        return True
    return not any(tokens <= smaller < size for smaller in listed)


class BucketSet:
    """The buckets of one engine; picks the cheapest that covers a step."""

    def __init__(self, policy: BucketPolicy) -> None:
        self.buckets = policy.buckets()
        self._only = self.buckets[0] if len(self.buckets) == 1 and not policy.static else None
        self._sizes = [
            sorted({size for size in sizes if size is not None}) for sizes in zip(*self.buckets, strict=True)
        ]
        self._found: dict[Bucket, Bucket | None] = {}

    def find(self, tokens: int, rows: int, samples: int, blocks: int) -> Bucket | None:
        """The cheapest bucket that covers a step of these sizes, or ``None``."""
        if self._only is not None:
            return self._only
        # Rounded up to sizes that some bucket has, every step is one of few, and the search is done once for each.
        size = Bucket(*map(_round_up, (tokens, rows, samples, blocks), self._sizes))
        if size not in self._found:
            self._found[size] = next((b for b in self.buckets if b.covers(size)), None)
        return self._found[size]

    def pick(self, tokens: int, rows: int, samples: int, blocks: int) -> Bucket:
        """As ``find``, for a step that `prove` has promised a bucket to."""
        bucket = self.find(tokens, rows, samples, blocks)
        assert bucket is not None, f"no bucket covers {(tokens, rows, samples, blocks)}; prove() should have failed"
        return bucket

    def covers(self, size: Bucket) -> bool:
        """Whether a step of ``size`` has a bucket."""
        return any(b.covers(size) for b in self.buckets)

    def prove(self, *largest: Bucket) -> None:
        """Check that each of the ``largest`` steps that may be scheduled has a bucket.

        Every schedulable step is no larger than one of them in any size, and covering is monotone,
        so every step then has a bucket. Raises ConfigError with the step that has none.
        """
        for size in largest:
            if not self.covers(size):
                raise ConfigError(
                    f"no compiled shape covers a step of {size.tokens} tokens, {size.rows} rows, {size.samples} "
                    f"samples and {size.blocks} blocks per row; lower --max-num-batched-tokens, --max-num-seqs or "
                    f"--max-model-len, or let the platform list larger buckets "
                    f"(its largest: {self.buckets[-1] if self.buckets else 'none'})"
                )
