"""L1 · ATT: who sees whom, through chunks, blocks and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octavo_conformance.harness import attention
from octavo_conformance.harness.attention import Case, Run
from octavo_conformance.harness.probe import Probe
from octavo_conformance.harness.refusal import asking_for, refused
from octavo_conformance.harness.steps import Row, WriteBlock, blocks_for
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

ATTENTION = ("op:attention",)


def head_dim(t: Target, wanted: int = 64) -> int:
    """``wanted``, or the declared size next to it."""
    sizes = t.capabilities.head_dims
    return wanted if sizes is None or wanted in sizes else min(sizes, key=lambda size: abs(size - wanted))


def grouped(t: Target, heads: int = 4, kv_heads: int = 2, **options: Any) -> Attention:
    """Four query heads over two KV heads, unless told otherwise."""
    size = head_dim(t)
    return Attention(heads, kv_heads, size, **{"scale": size**-0.5, **options})


def lattice(t: Target) -> tuple[int, ...]:
    """Lengths at which blocks and tiles begin and end."""
    size = t.block_size
    return tuple(sorted({n for n in (1, size - 1, size, size + 1, 31, 32, 33, 2 * size + 7, 133) if n > 0}))


def last_rows(case: Case, count: int = 1) -> np.ndarray:
    """The last ``count`` tokens of each sequence, as rows of the whole."""
    return np.concatenate([np.arange(max(b - count, a), b) for a, b in zip(case.starts, case.starts[1:], strict=False)])


@check(
    "att.prefill_causal", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R"), kills=("M02", "M03", "M16", "M46.zeros", "M46.previous", "M46.mean"), cost=3.0,
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
    "att.decode_single", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R"), kills=("M01", "M03"), cost=1.0,
    spec="""One new token of one sequence MUST attend to itself and to all that is cached of its sequence, at every
    length on and beside the ends of blocks and tiles.""",
)  # fmt: skip
def decode_single(t: Target) -> Iterator[Verdict]:
    yield from _decoded(t, [[Row(i, n - 1, 1)] for i, n in enumerate(lattice(t))])


@check(
    "att.decode_batch", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R"), kills=("M01", "M03"), cost=1.0,
    spec="""Rows of one new token each, of sequences of many lengths, MUST each attend to its own sequence.""",
)  # fmt: skip
def decode_batch(t: Target) -> Iterator[Verdict]:
    yield from _decoded(t, [[Row(i, n - 1, 1) for i, n in enumerate(lattice(t))]])


def _decoded(t: Target, rounds: Sequence[Sequence[Row]]) -> Iterator[Verdict]:
    """The last token of each length, over a cache that was filled, by counts and by numbers."""
    lengths, size = lattice(t), t.block_size
    tables = blocks_for(lengths, size, t.rng("blocks").permutation(sum(-(-n // size) for n in lengths)))
    until = [n - 1 for n in lengths]
    probe = attention.count(t, grouped(t), lengths)
    (ran,) = attention.play(t, probe, [Run(rounds, tables, attention.filled(probe, tables, until, size))])
    yield attention.counted("count", probe, ran.out, rows=last_rows(probe))
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    (ran,) = attention.play(t, case, [Run(rounds, tables, attention.filled(case, tables, until, size))])
    yield attention.judged("randn", t, case, ran.out, rows=last_rows(case))


@check(
    "att.mixed_batch", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R"), kills=("M01", "M02"), cost=1.5,
    spec="""Whole prompts, chunks of prompts and single new tokens in one step, in any order, MUST each be as if they
    ran alone.""",
)  # fmt: skip
def mixed_batch(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (size + 9, 1, 3 * size, size, 50, 2 * size + 1)
    cached = (size + 8, 0, size - 3, 0, 49, 2 * size)
    tables = blocks_for(lengths, size)
    rows = [Row(i, start, n - start) for i, (n, start) in enumerate(zip(lengths, cached, strict=True))]
    orders = {"as they come": rows, "shuffled": [rows[i] for i in t.rng("order").permutation(len(rows)).tolist()]}
    for family in (attention.count(t, grouped(t), lengths), attention.randn(t, t.rng("randn"), grouped(t), lengths)):
        before = attention.filled(family, tables, cached, size)
        at = np.concatenate([np.arange(a + c, a + n) for a, c, n in zip(family.starts, cached, lengths, strict=False)])
        runs = attention.play(t, family, [Run([order], tables, before) for order in orders.values()])
        for name, ran in zip(orders, runs, strict=True):
            if family.q.any():
                yield attention.judged(f"randn, {name}", t, family, ran.out, rows=at)
            else:
                yield attention.counted(f"count, {name}", family, ran.out, rows=at)


@check(
    "att.chunked_prefill", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "R", "M"), kills=("M05",), cost=2.0,
    spec="""A prompt that runs in chunks of any size MUST give what it gives in one: chunks see all that came before,
    and nothing after each token.""",
)  # fmt: skip
def chunked_prefill(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (3 * size + 5, 101)
    sizes = tuple(dict.fromkeys((7, size, size + 1, 64)))
    probe = attention.count(t, grouped(t), lengths)
    runs = [Run(attention.chunks(probe, n)) for n in sizes]
    for name, ran in zip(sizes, attention.play(t, probe, runs), strict=True):
        yield attention.counted(f"count, chunks of {name}", probe, ran.out)
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    rounds = [attention.whole(case), *(attention.chunks(case, n) for n in sizes)]
    first, *others = attention.play(t, case, [Run(r) for r in rounds])
    yield attention.judged(f"randn, chunks of {sizes[0]}", t, case, others[0].out)
    exact, own = attention.exact(case), attention.reference(case, t.dtype, t.kv_dtype)
    for name, ran in zip(sizes, others, strict=True):
        yield measure.metamorphic(f"one chunk, chunks of {name}", ran.out, first.out, exact, own, t.dtype)


@check(
    "att.prefix_hit", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("X0", "M"), kills=("M10",), cost=1.5,
    spec="""A sequence whose first blocks are cached already MUST give, for its other tokens, what it gives without the
    cache, each time it hits.""",
)  # fmt: skip
def prefix_hit(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    length, cached = 4 * size + 9, 3 * size
    prefix = blocks_for((cached,), size)[0]
    spare = [tuple(range(4 + 2 * i, 6 + 2 * i)) for i in range(4)]
    rows = np.arange(cached, length)
    hit = [[Row(0, cached, length - cached)]]
    spec = grouped(t)
    for family in (attention.count(t, spec, (length,)), attention.randn(t, t.rng("randn"), spec, (length,))):
        runs = [Run(attention.whole(family), [(*prefix, *spare[0])])]
        runs += [Run(hit, [(*prefix, *spare[i])]) for i in (1, 2, 3)]
        miss, *hits = attention.play(t, family, runs)
        exact = attention.exact(family, None, rows)
        own = attention.reference(family, t.dtype, t.kv_dtype, rows)
        for number, ran in enumerate(hits, 1):
            if family.q.any():
                yield measure.metamorphic(f"randn, hit {number}", ran.out[rows], miss.out[rows], exact, own, t.dtype)
            else:
                yield attention.counted(f"count, hit {number}", family, ran.out, rows=rows)


@check(
    "att.batch_order", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("M",),
    kills=("M33",), cost=1.0,
    spec="""The order of a step's rows MUST not matter: each row's result goes with it.""",
)  # fmt: skip
def batch_order(t: Target) -> Iterator[Verdict]:
    case, tables, before, rows = _many(t, 12)
    orders = [rows, rows[::-1], [rows[i] for i in t.rng("order").permutation(len(rows)).tolist()]]
    first, *others = attention.play(t, case, [Run([order], tables, before) for order in orders])
    yield from _agreeing(t, case, first.out, dict(zip(("reversed", "shuffled"), (r.out for r in others), strict=True)))


@check(
    "att.batch_size_invariance", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory",
    rules=("M",), kills=("M33",), cost=1.5,
    spec="""A row MUST give what it gives alone, whatever number of others share its step.""",
)  # fmt: skip
def batch_size_invariance(t: Target) -> Iterator[Verdict]:
    case, tables, before, rows = _many(t, 17)
    sizes = (1, 2, 3, 17)
    runs = [Run([rows[at : at + n] for at in range(0, len(rows), n)], tables, before) for n in sizes]
    alone, *others = attention.play(t, case, runs)
    found = {f"{n} rows": ran.out for n, ran in zip(sizes[1:], others, strict=True)}
    yield from _agreeing(t, case, alone.out, found)


def _many(t: Target, count: int) -> tuple[Case, list[tuple[int, ...]], list[WriteBlock], list[Row]]:
    """``count`` sequences that lack their last token."""
    lengths = tuple(t.rng("lengths").integers(2, 3 * t.block_size, count).tolist())
    case = attention.randn(t, t.rng("randn"), grouped(t), lengths)
    tables = blocks_for(lengths, t.block_size)
    before = attention.filled(case, tables, [n - 1 for n in lengths], t.block_size)
    return case, tables, before, [Row(i, n - 1, 1) for i, n in enumerate(lengths)]


def _agreeing(t: Target, case: Case, first: np.ndarray, others: dict[str, np.ndarray]) -> Iterator[Verdict]:
    rows = last_rows(case)
    exact, own = attention.exact(case, None, rows), attention.reference(case, t.dtype, t.kv_dtype, rows)
    for name, out in others.items():
        yield measure.metamorphic(name, out[rows], first[rows], exact, own, t.dtype)


@check(
    "att.run_to_run", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("B0",),
    kills=("M32",), cost=1.0,
    spec="""The same step over the same cache MUST give the same bits, every one of 20 times.""",
)  # fmt: skip
def run_to_run(t: Target) -> Iterator[Verdict]:
    case, tables, before, rows = _many(t, 9)
    runs = [Run([rows], tables, before), *(Run([rows], tables) for _ in range(19))]
    first, *others = (ran.out[last_rows(case)] for ran in attention.play(t, case, runs))
    yield measure.bitwise("19 more times", np.stack(others), np.stack([first] * len(others)))


@check(
    "att.strided_inputs", level="L1", module="ATT", since="1.0", requires=(*ATTENTION, "op:linear"), grade="mandatory",
    rules=("B0",), cost=1.0,
    spec="""Queries, keys and values that come out of one fused linear map MUST be attended to like the same numbers
    from anywhere else.""",
)  # fmt: skip
def strided_inputs(t: Target) -> Iterator[Verdict]:
    case = attention.randn(t, t.rng("randn"), grouped(t), (2 * t.block_size + 3, 20))
    spec = case.spec
    widths = [case.q.shape[1], case.k.shape[1], case.v.shape[1]]
    p = Probe(t, "fused")
    x = p.rows("qkv", np.concatenate([case.q, case.k, case.v], axis=1))
    for name, width, start in zip("qkv", widths, np.cumsum([0, *widths]), strict=False):
        p.weight(f"{name}.weight", np.eye(width, sum(widths), start, dtype=np.float32))
    q, k, v = p.build.linear_split(x, list("qkv"), widths)
    joined = p.read(p.build.attention(
        q, k, v, layer=0, heads=spec.heads, kv_heads=spec.kv_heads, head_dim=spec.head_dim, scale=spec.scale,
    ))  # fmt: skip
    rounds = attention.decodes(case, 2)
    (apart,) = attention.play(t, case, [Run(rounds)])
    (fused,) = attention.play(t, case, [Run(rounds)], made=joined)
    yield measure.bitwise("fused", fused.out, apart.out)


@check(
    "att.gqa_map", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("X0",),
    kills=("M13",), cost=1.5,
    spec="""Query head h MUST read KV head h // (heads / kv_heads), its keys and its values, from one KV head for each
    query head to one for all.""",
)  # fmt: skip
def gqa_map(t: Target) -> Iterator[Verdict]:
    for heads, kv_heads in ((4, 4), (4, 2), (8, 2), (8, 1), (9, 3), (16, 2)):
        case, expected = needles(t, heads, kv_heads)
        (ran,) = attention.play(t, case, [Run(attention.decodes(case, 1))])
        yield measure.integers(f"{heads} heads over {kv_heads}", ran.out[-1:], expected[None])


def needles(t: Target, heads: int, kv_heads: int) -> tuple[Case, np.ndarray]:
    """One sequence whose last query finds, in KV head g, the key at position 3g + 2 and nothing else. The left half of
    a value is its KV head, the right half its position: what must come out for the last token.
    """
    size, length = head_dim(t), 3 * kv_heads + 5
    q = np.full((length, heads, size), 8.0)
    k = np.zeros((length, kv_heads, size))
    v = np.zeros((length, kv_heads, size))
    v[..., : size // 2], v[..., size // 2 :] = np.arange(kv_heads)[:, None] + 1, np.arange(length)[:, None, None]
    found = 3 * np.arange(kv_heads) + 2
    k[found, np.arange(kv_heads)] = 8.0
    spec = Attention(heads, kv_heads, size, scale=1.0)
    expected = v[found, np.arange(kv_heads)].repeat(heads // kv_heads, axis=0)
    case = Case(spec, (length,), *(t.stored(x.reshape(length, -1)) for x in (q, k, v)))
    return case, expected.reshape(-1)


@check(
    "att.head_dims", level="L1", module="ATT", since="1.0", requires=ATTENTION, grade="mandatory", rules=("R", "E"),
    kills=("M06.inverse",), cost=2.0,
    spec="""Every declared head size MUST work, the smallest and the largest among them; a size that is not declared
    MUST be refused.""",
)  # fmt: skip
def head_dims(t: Target) -> Iterator[Verdict]:
    declared = t.capabilities.head_dims
    usual = (64, 80, 96, 128, 256)
    sizes: tuple[int, ...] = (8, 40, *usual)
    if declared is not None:
        sizes = (min(declared), *(n for n in usual if n in declared), max(declared))
    for size in dict.fromkeys(sizes):
        spec = Attention(2, 1, size, scale=size**-0.5)
        case = attention.randn(t, t.rng("randn", size), spec, (t.block_size + 5, 2))
        (ran,) = attention.play(t, case, [Run(attention.decodes(case, 2))])
        yield attention.judged(f"head_dim={size}", t, case, ran.out)
    if declared is not None:
        outside = {min(declared) - 1, max(declared) + 1, *(n + 1 for n in declared)} - {*declared, 0}
        for size in (min(outside), max(outside)):
            yield refused(f"head_dim={size}", t.negotiate(asking_for(t, f"head_dim:{size}")), str(size))


@check(
    "att.sliding_window_edge", level="L1", module="ATT", since="1.0", requires=("op:attention", "attention:window"),
    rules=("X0", "R"), kills=("M04.wider", "M04.narrower"), cost=2.0,
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
    yield from _window_left(t)


def _window_left(t: Target) -> Iterator[Verdict]:
    """Blocks that the window has left are gone: their entries are 0, and the cache holds none of them."""
    size = t.block_size
    length, window = 5 * size + 3, size + 2
    probe = attention.count(t, grouped(t, window=window), (length,))
    gone = (length - window) // size
    tables = blocks_for((length,), size)
    kept = attention.filled(probe, tables, [length - 1], size)[gone:]
    left = [(*([0] * gone), *tables[0][gone:])]
    (ran,) = attention.play(t, probe, [Run([[Row(0, length - 1, 1)]], left, kept)])
    yield attention.counted("count, blocks left behind", probe, ran.out, rows=last_rows(probe))


@check(
    "att.bidirectional", level="L1", module="ATT", since="1.0", requires=("op:attention", "attention:bidirectional"),
    rules=("X0", "R"), cost=1.0,
    spec="""Without causality a query MUST attend to all that its row has so far, the positions after its own too.""",
)  # fmt: skip
def bidirectional(t: Target) -> Iterator[Verdict]:
    spec = grouped(t, causal=False)
    lengths = (t.block_size + 3, 9, 1)
    probe = attention.count(t, spec, lengths)
    (ran,) = attention.play(t, probe, [Run(attention.whole(probe))])
    yield attention.counted("count", probe, ran.out)
    case = attention.randn(t, t.rng("randn"), spec, lengths)
    (ran,) = attention.play(t, case, [Run(attention.whole(case))])
    yield attention.judged("randn", t, case, ran.out)
