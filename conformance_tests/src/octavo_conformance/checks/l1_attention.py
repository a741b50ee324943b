"""L1 · ATT: attention through the paged cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance import attention
from octavo_conformance.attention import Run
from octavo_conformance.check import check
from octavo_conformance.judge import measure
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.steps import blocks_for
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict


def head_dim(t: Target) -> int:
    """64, or the declared size next to it."""
    sizes = t.capabilities.head_dims
    return 64 if sizes is None or 64 in sizes else min(sizes, key=lambda size: abs(size - 64))


def grouped(t: Target, **options: object) -> Attention:
    """Four query heads over two KV heads."""
    size = head_dim(t)
    return Attention(heads=4, kv_heads=2, head_dim=size, scale=size**-0.5, **options)  # type: ignore[arg-type]


@check(
    "att.prefill_causal", level="L1", module="ATT", since="1.0", requires=("op:attention",), grade="mandatory",
    rules=("X0", "R"), kills=("M02", "M46.zeros"), cost=3.0,
    spec="""A query at position p of a prompt MUST attend to exactly the positions 0 … p of its own sequence, with
    softmax weights of the scaled products of query and keys.""",
)  # fmt: skip
def prefill_causal(t: Target) -> Iterator[Verdict]:
    spec = grouped(t)
    size = t.block_size
    lengths = tuple(n for n in (1, size - 1, size, size + 1, 2 * size + 7, 133) if n > 0)
    probe = attention.count(t, spec, lengths)
    (ran,) = attention.play(t, probe, [Run(attention.whole(probe))])
    yield attention.counted("count", probe, ran.out)
    case = attention.randn(t, t.rng("randn"), spec, lengths)
    (ran,) = attention.play(t, case, [Run(attention.whole(case))])
    yield attention.judged("randn", t, case, ran.out)


@check(
    "att.block_boundary", level="L1", module="ATT", since="1.0", requires=("op:attention",), grade="mandatory",
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
        (ran,) = attention.play(t, probe, [Run(attention.decodes(probe, 2), tables)], block_size=size)
        yield attention.counted(f"block_size={size}", probe, ran.out)


@check(
    "att.table_permutation", level="L1", module="ATT", since="1.0", requires=("op:attention",), grade="mandatory",
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
    "att.poison_unused_blocks", level="L1", module="ATT", since="1.0", requires=("op:attention",), grade="mandatory",
    rules=("B0", "C"), kills=("M07",), cost=2.0,
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
    "att.sliding_window_edge", level="L1", module="ATT", since="1.0", requires=("op:attention", "attention:window"),
    rules=("X0", "R"), kills=("M04",), cost=2.0,
    spec="""A query at position p with window W MUST attend to exactly the positions max(0, p - W + 1) … p.""",
)  # fmt: skip
def sliding_window_edge(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    for window in (1, size - 1 or 2, size, size + 3, 100):
        spec = grouped(t, window=window)
        lengths = (window, 3 * size + 5, 140)
        probe = attention.count(t, spec, lengths)
        (ran,) = attention.play(t, probe, [Run(attention.decodes(probe, 3))])
        yield attention.counted(f"count, window={window}", probe, ran.out)
    case = attention.randn(t, t.rng("randn"), grouped(t, window=70), (150,))
    (ran,) = attention.play(t, case, [Run(attention.chunks(case, 64))])
    yield attention.judged("randn", t, case, ran.out)
