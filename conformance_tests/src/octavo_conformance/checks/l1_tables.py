"""L1 · ATT: the pool and the tables: which blocks are read, and that nothing comes of the others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance.checks.l1_attention import ATTENTION, grouped, last_rows
from octavo_conformance.harness import attention
from octavo_conformance.harness.attention import Case, Run
from octavo_conformance.harness.steps import Row, WriteBlock, blocks_for
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


@check(
    "att.block_boundary", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0",), kills=("M01",), cost=2.0,
    spec="""For every declared block size, attention over k * block_size - 1, k * block_size and k * block_size + 1
    tokens MUST read each token from the block and the slot that the table says.""",
)  # fmt: skip
def block_boundary(t: Target) -> Iterator[Verdict]:
    spec = grouped(t)
    for size in t.capabilities.block_sizes:
        lengths = tuple(n for n in (size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1) if n > 0)
        probe = attention.count(t, spec, lengths)
        tables = blocks_for(lengths, size, t.rng("blocks", size).permutation(sum(-(-n // size) for n in lengths)))
        before = attention.filled(probe, tables, [max(n - 2, 0) for n in lengths], size)
        rounds = [[Row(i, n - back, 1) for i, n in enumerate(lengths) if n >= back] for back in (2, 1)]
        (ran,) = attention.play(t, probe, [Run(rounds, tables, before)], block_size=size)
        yield attention.counted(f"block_size={size}", probe, ran.out, rows=last_rows(probe, 2))


@check(
    "att.table_permutation", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("B0", "R"), kills=("M01",), cost=2.0,
    spec="""Which blocks hold a sequence MUST not matter: the same tokens in other blocks, in any order, give the same
    bits.""",
)  # fmt: skip
def table_permutation(t: Target) -> Iterator[Verdict]:
    lengths = (5 * t.block_size + 3, 2 * t.block_size)
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    plain = blocks_for(lengths, t.block_size)
    mixed = blocks_for(lengths, t.block_size, t.rng("order").permutation(sum(map(len, plain))))
    rounds = attention.decodes(case, 3)
    first, second = attention.play(t, case, [Run(rounds, plain), Run(rounds, mixed)])
    yield measure.bitwise("other blocks", second.out, first.out)
    yield attention.judged("right", t, case, second.out)


@check(
    "att.table_shared_blocks", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0",), kills=("M01",), cost=1.0,
    spec="""Sequences MUST be able to share the blocks of a common beginning, in one step too, and a table to name a
    block twice.""",
)  # fmt: skip
def table_shared_blocks(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (2 * size + 5, 2 * size + 3, 2 * size, 3 * size + 1)
    probe = attention.count(t, grouped(t), lengths)
    v = probe.v.copy()
    starts = probe.starts
    twice = slice(starts[3] + size, starts[3] + 2 * size)  # the last sequence's second block is its first
    v[twice] = v[starts[3] : starts[3] + size]
    case = Case(probe.spec, lengths, probe.q, probe.k, v)
    first = blocks_for((lengths[0],), size)[0]
    tables = [first, (*first[:2], 4), first[:2], (5, 5, 6, 7)]
    before = [
        *attention.filled(case, [first], [2 * size + 4], size),
        *attention.filled(case, [first, (0, 0, 4)], [0, 2 * size + 2], size)[2:],
        *attention.filled(case, tables, [0, 0, 0, 3 * size], size),
    ]
    rows = [Row(i, n - 1, 1) for i, n in enumerate(lengths)]
    (ran,) = attention.play(t, case, [Run([rows], tables, before)])
    yield attention.counted("shared", case, ran.out, rows=last_rows(case))


@check(
    "att.table_tail_garbage", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("B0",), kills=("M08",), cost=1.0,
    spec="""Nothing MUST come of table entries beyond a row's context, whatever the blocks that they name hold.""",
)  # fmt: skip
def table_tail_garbage(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (1, size, size + 1, 4 * size, 2)
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    plain = blocks_for(lengths, size)
    bad = sum(map(len, plain)) + 1
    rounds = attention.decodes(case, 1)
    kinds = {"numbers": 30.0, "NaN": np.nan, "infinite": np.inf}
    zeros = attention.poison(case, t, 0, keys=False, values=False)
    runs = [Run(rounds, plain, [zeros])]
    runs += [Run(rounds, plain, [attention.poison(case, t, bad, value=value)], tail=bad) for value in kinds.values()]
    clean, *others = attention.play(t, case, runs, blocks=bad + 1)
    for name, ran in zip(kinds, others, strict=True):
        yield measure.bitwise(name, ran.out, clean.out)


@check(
    "att.poison_unused_blocks", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("B0", "C"), kills=("M07", "M08"), cost=2.0,
    spec="""Nothing MUST come of what a block holds beyond a row's context, of other blocks, or of the null block: not
    even where it is NaN or infinite, in the keys, in the values, or in both.""",
)  # fmt: skip
def poison_unused_blocks(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (size, size + 1, 3 * size - 2)
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    rounds = attention.decodes(case, 2)
    pool = sum(-(-n // size) for n in lengths) + 2
    kinds = {"keys": (True, False, np.nan), "values": (False, True, np.nan), "both": (True, True, np.nan),
             "infinite": (True, True, np.inf)}  # fmt: skip
    runs = [Run(rounds, before=[attention.poison(case, t, b, keys=False, values=False) for b in range(pool)])]
    for keys, values, value in kinds.values():
        before = [attention.poison(case, t, b, keys=keys, values=values, value=value) for b in range(pool)]
        runs.append(Run(rounds, before=before))
    clean, *poisoned = attention.play(t, case, runs, blocks=pool)
    yield measure.holds("clean", bool(np.isfinite(clean.out).all()), "the clean run is finite")
    for name, ran in zip(kinds, poisoned, strict=True):
        yield measure.bitwise(name, ran.out, clean.out)


@check(
    "att.tile_straddle_poison", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("B0",), kills=("M07",), cost=1.5,
    spec="""Nothing MUST come of the slots of a last block beyond a row's context, where a kernel's tile ends with the
    context and where it straddles it, for keys and for values alone.""",
)  # fmt: skip
def tile_straddle_poison(t: Target) -> Iterator[Verdict]:
    size = max(t.capabilities.block_sizes)
    lengths = tuple(n for tile in (8, 16, 32, 64, 128) for n in (tile - 1, tile, tile + 1))
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    tables = blocks_for(lengths, size)
    rows = [[Row(i, n - 1, 1) for i, n in enumerate(lengths)]]
    clean = attention.filled(case, tables, [n - 1 for n in lengths], size, tail=0.0)
    runs = [Run(rows, tables, clean)]
    kinds = {"keys": (0,), "values": (1,), "both": (0, 1)}
    runs += [Run(rows, tables, [_poisoned(block, parts) for block in clean]) for parts in kinds.values()]
    first, *others = attention.play(t, case, runs, block_size=size)
    at = last_rows(case)
    for name, ran in zip(kinds, others, strict=True):
        yield measure.bitwise(name, ran.out[at], first.out[at])


def _poisoned(block: WriteBlock, parts: tuple[int, ...]) -> WriteBlock:
    """NaN for the empty slots of keys (0) or values (1), found by their values' being zero."""
    data = block.data.copy()
    empty = ~data.any(axis=(0, 1, 3, 4))
    for part in parts:
        data[part][:, empty] = np.nan
    return WriteBlock(block.block, data)
