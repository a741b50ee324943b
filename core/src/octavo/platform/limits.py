"""Limits: what a platform cannot do, as data that the scheduler obeys."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.platform.buckets import BucketPolicy


@dataclass(frozen=True)
class Limits:
    """Bounds on one step; ``None`` means that there is none.

    A row is a sequence in the step, and has one or more new tokens. A row whose new tokens reach
    back before its last known token is a prompt chunk; any other is a decode of one token.
    """

    max_rows: int | None = None
    """Rows in one step."""
    max_tokens: int | None = None
    """New tokens in one step, over all rows."""
    max_context: int | None = None
    """Tokens of one sequence, prompt and output."""
    max_volume: int | None = None
    """Rows times the longest context among them (rounded up to whole blocks), in one step."""
    prefill_xor_decode: bool = False
    """A step holds prompt chunks only, or decodes only."""
    max_prefill_rows: int | None = None
    """Rows with a prompt chunk in one step."""
    chunk_multiple: int = 1
    """Every prompt chunk is a multiple of this many tokens, but the last of its sequence."""
    buckets: BucketPolicy = field(default_factory=BucketPolicy)
    """The static shapes that the platform compiles; unbounded by default."""
