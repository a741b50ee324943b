"""What the chip is like: its name, its sizes, and the shapes it compiles."""

from __future__ import annotations

from octavo.platform import Bucket, BucketPolicy, Capabilities, Limits, powers_up_to
from octavo.quant import FORMATS

NAME = "fakechip"
VERSION = "0.1.0"
TARGET = "fakechip-1"
"""The kind of device there is, as programs are compiled for it where there is none."""

BLOCK = 64
"""Tokens of a KV block; it has no other."""
VOLUME = 4096
"""Rows times context of a program, padding included."""
LANES = 32
"""Every row of device memory is a whole number of these elements long."""
SCORED = 16
"""Rows of logits of the programs that score a prompt."""

OPS = frozenset({
    "embed", "linear", "rms_norm", "layer_norm", "rope", "attention", "gated_activation", "activation", "add", "mul",
    "scale", "softcap", "take_rows",
})  # fmt: skip

CAPABILITIES = Capabilities(
    ops=OPS,
    weight_formats=frozenset(FORMATS),
    block_sizes=(BLOCK,),
    attention=frozenset({"window", "softcap", "sinks"}),
    targets=(TARGET,),
)
LIMITS = Limits(
    max_rows=VOLUME // BLOCK, max_tokens=512, max_volume=VOLUME, prefill_xor_decode=True, max_prefill_rows=1
)


def padded(width: int) -> int:
    """Elements that a row of ``width`` takes in device memory."""
    return -(-width // LANES) * LANES


def shapes(rows: int, tokens: int, context: int) -> BucketPolicy:
    """The programs for steps of up to ``rows`` decodes, or one prompt chunk of up to ``tokens``.

    Padding must not take a program beyond `VOLUME`, so rounding both sizes up to powers of two will not do near it.
    For each number of rows there is the program with the most blocks it allows; the powers of two fill the rest.
    """
    most = -(-context // BLOCK)
    blocks = powers_up_to(most)
    frontier = {min(rows, VOLUME // BLOCK // b): b for b in range(1, most + 1)}  # of equal rows the most blocks
    grid = {(r, b) for r in powers_up_to(rows) for b in blocks if r * b * BLOCK <= VOLUME} | set(frontier.items())
    chunks = [(t, s, b) for t in powers_up_to(tokens, start=16) for s in {1, min(SCORED, t)} for b in blocks]
    explicit = [Bucket(r, r, r, b) for r, b in grid] + [Bucket(t, 1, s, b) for t, s, b in chunks]
    return BucketPolicy(explicit=tuple(sorted(set(explicit))))
