"""L0 · KV: the block pool, by its bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance import attention
from octavo_conformance.attention import Case
from octavo_conformance.check import check
from octavo_conformance.judge import floats, measure
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng
from octavo_conformance.steps import Action, ReadBlock, Row, Seq, Step, WriteBlock
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict

POOL = 6


def small(t: Target) -> Attention:
    """One head of the smallest declared size over 16."""
    sizes = [size for size in t.capabilities.head_dims or (16, 64) if size >= 16]
    return Attention(heads=1, kv_heads=1, head_dim=min(sizes), scale=1.0)


def block(t: Target, rng: Rng, spec: Attention, dtype: str, size: int) -> np.ndarray:
    """A block of numbers that the cache's type holds."""
    shape = (2, 1, size, spec.kv_heads, spec.head_dim)
    return floats.rounded(rng.normal(int(np.prod(shape))).reshape(shape), dtype)


@check(
    "kv.layout_roundtrip", level="L0", module="KV", since="1.0", rules=("B0",), cost=1.0,
    spec="""For every declared block size and cache type, read_block MUST return what write_block set, rounded to the
    type, and writing one block MUST leave the others as they were.""",
)  # fmt: skip
def layout_roundtrip(t: Target) -> Iterator[Verdict]:
    spec = small(t)
    for dtype in (d for d in t.capabilities.kv_dtypes if d in floats.UNIT):
        for size in t.capabilities.block_sizes:
            rng = t.rng(dtype, size)
            case = attention.randn(t, rng, spec, (1,), kv_dtype=dtype)
            data = [block(t, rng, spec, dtype, size) for _ in range(POOL)]
            order = rng.permutation(POOL).tolist()
            script: list[Action] = [WriteBlock(b, data[b]) for b in order]
            script += [WriteBlock(2, data[3])]
            script += [ReadBlock(b) for b in range(POOL)]
            played = t.play(attention.model(t, case), script, block_size=size, kv_dtype=dtype, blocks=POOL)
            found = np.stack(played.results[-POOL:])
            data[2] = data[3]
            yield measure.bitwise(f"{dtype}, block_size={size}", found, np.stack(data))


@check(
    "kv.write_locality", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M20",), cost=1.0,
    spec="""A step MUST write keys and values to exactly the slots it names, before its attention reads, and to nothing
    else: padding tokens (slot -1) write nothing.""",
)  # fmt: skip
def write_locality(t: Target) -> Iterator[Verdict]:
    spec, size = small(t), t.block_size
    rng = t.rng("blocks")
    lengths = (size + 3, 1, 2)
    case = attention.randn(t, t.rng("tokens"), spec, lengths)
    tables = ((4, 1), (3,), (5,))
    data = [block(t, rng, spec, t.kv_dtype, size) for _ in range(POOL)]
    sequences = tuple(
        Seq(tuple(range(a, a + n)), (table,)) for a, n, table in zip(case.starts, lengths, tables, strict=False)
    )
    rows = tuple(Row(i, 0, n) for i, n in enumerate(lengths))
    script: list[Action] = [WriteBlock(b, data[b]) for b in range(POOL)]
    script += [Step(sequences, rows)]
    script += [ReadBlock(b) for b in range(POOL)]
    played = t.play(attention.model(t, case), script, blocks=POOL)
    for sequence, table in enumerate(tables):
        _written(case, sequence, table, size, data)
    yield measure.bitwise("pool", np.stack(played.results[-POOL:]), np.stack(data))


def _written(case: Case, sequence: int, table: tuple[int, ...], size: int, data: list[np.ndarray]) -> None:
    """Put a whole sequence's keys and values where its table says."""
    shape = (case.spec.kv_heads, case.spec.head_dim)
    for part, source in enumerate((case.k, case.v)):
        rows = case.each(source)[sequence]
        for position, row in enumerate(rows):
            data[table[position // size]][part, 0, position % size] = row.reshape(shape)


@check(
    "kv.copy_blocks", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M21",), cost=1.0,
    spec="""The copies of a step MUST be made one after the other, whole blocks, before anything is written: fan-out,
    chains and a block onto itself mean what they mean in order.""",
)  # fmt: skip
def copy_blocks(t: Target) -> Iterator[Verdict]:
    spec, size = small(t), t.block_size
    case = attention.randn(t, t.rng("tokens"), spec, (1,))
    for name, copies in (
        ("fan-out", ((1, 2), (1, 3), (1, 4))),
        ("chain", ((1, 2), (2, 3), (3, 4))),
        ("backwards", ((3, 4), (2, 3), (1, 2))),
        ("onto itself", ((2, 2), (2, 1))),
    ):
        data = [block(t, t.rng(name, b), spec, t.kv_dtype, size) for b in range(POOL)]
        script: list[Action] = [WriteBlock(b, data[b]) for b in range(POOL)]
        script += [Step((Seq((0,), ((5,),)),), (Row(0, 0, 1),), copies)]
        script += [ReadBlock(b) for b in range(POOL)]
        played = t.play(attention.model(t, case), script, blocks=POOL)
        for source, destination in copies:
            data[destination] = data[source].copy()
        _written(case, 0, (5,), size, data)
        yield measure.bitwise(name, np.stack(played.results[-POOL:]), np.stack(data))
