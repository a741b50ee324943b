"""The weight formats that Octavo's graphs can name.

Every format stores a row of weights (the last axis) as a run of equal blocks. A plain dtype is a
block of one element. ``q…`` are GGML's, exactly as its files hold them (source: the `gguf` specification and
`ggml-common.h`'s block structures). ``int…`` and ``uint…`` are what Hugging Face folders hold in several layouts,
brought into one (`octavo.quant.integers`). The group structure is given here so that a platform can choose a
kernel without knowing the file format.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import CheckpointError


@dataclass(frozen=True)
class WeightFormat:
    """How one row of a weight is stored.

    ``block_elements`` weights take ``block_bytes`` bytes. Within a block every ``group_elements``
    weights share one scale, and one minimum where ``has_minimum``:
    ``weight = scale * code - minimum`` (or ``+ minimum``, by the format's definition); or one zero point where
    ``has_zero_point``: ``weight = scale * (code - zero)``. A ``group_elements`` of 0 is the whole row, whose scale
    is in the ``head_bytes`` before its blocks. ``bits`` is the width of one code. Plain formats are blocks and groups
    of one weight, and share nothing.
    """

    name: str
    bits: int
    block_elements: int = 1
    block_bytes: int = 0
    group_elements: int = 1
    has_minimum: bool = False
    has_zero_point: bool = False
    head_bytes: int = 0

    @property
    def quantized(self) -> bool:
        """Whether a code needs a scale to become a number."""
        return self.block_elements > 1

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of ``columns`` weights; CheckpointError if the row is no whole number of blocks."""
        if columns % self.block_elements:
            raise CheckpointError(
                f"a row of {columns} weights is no whole number of {self.name} blocks of {self.block_elements}"
            )
        return self.head_bytes + columns // self.block_elements * self.block_bytes


F32 = WeightFormat("f32", 32, block_bytes=4)
F16 = WeightFormat("f16", 16, block_bytes=2)
BF16 = WeightFormat("bf16", 16, block_bytes=2)

INT4_GROUPS = (128, 64, 32)
"""Weights to a scale in the 4-bit formats of `octavo.quant.integers`, widest first."""

FORMATS: dict[str, WeightFormat] = {
    f.name: f
    for f in (
        F32,
        F16,
        BF16,
        WeightFormat("q4_0", 4, 32, 18, 32),
        WeightFormat("q4_1", 4, 32, 20, 32, True),
        WeightFormat("q5_0", 5, 32, 22, 32),
        WeightFormat("q5_1", 5, 32, 24, 32, True),
        WeightFormat("q8_0", 8, 32, 34, 32),
        WeightFormat("q4_k", 4, 256, 144, 32, True),
        WeightFormat("q5_k", 5, 256, 176, 32, True),
        WeightFormat("q6_k", 6, 256, 210, 16),
        WeightFormat("int8", 8, 32, 32, 0, head_bytes=4),
        *(WeightFormat(f"int4_g{n}", 4, n, 4 + n // 2, n) for n in INT4_GROUPS),
        *(WeightFormat(f"uint4_g{n}", 4, n, 5 + n // 2, n, has_zero_point=True) for n in INT4_GROUPS),
    )
}


def format_named(name: str) -> WeightFormat:
    """The format called ``name``; CheckpointError lists the known ones otherwise."""
    try:
        return FORMATS[name]
    except KeyError:
        raise CheckpointError(f"weight format {name!r} is not known; known: {', '.join(FORMATS)}") from None
