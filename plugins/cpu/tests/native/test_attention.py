"""Attention of a few query heads over one sequence's blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native import budget
from native.kernels import Attention, KernelSet
from native.numbers16 import F32
from native.sequences import Sequence, bound, exact, only, random_int8_unit, random_sequence, unit, yardstick

EDGES = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 300]
"""Context lengths around the edges of half-blocks, blocks and spans of 128."""
HEAD_DIMS = [16, 32, 48, 64, 80, 96, 112, 128, 192, 256, 320, 512]
VECTORS = 12
"""The most query vectors of a unit; sixteen heads of one group take two."""

some = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def queries(rng: np.random.Generator, vectors: int, head_dim: int) -> F32:
    return rng.standard_normal((vectors, head_dim)).astype(np.float32)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("length", [128, 700])
@pytest.mark.parametrize("kind", ["plain", "window", "softcap", "sinks"])
def test_attention_keeps_the_error_budget(kernels: KernelSet, head_dim: int, length: int, kind: str) -> None:
    rng = np.random.default_rng(1)
    sequence = random_sequence(rng, length, head_dim)
    options = {
        "plain": {},
        "window": {"window": 100},
        "softcap": {"softcap": 1.5},
        "sinks": {"sinks": np.linspace(-2, 3, VECTORS).astype(np.float32)},
    }[kind]
    made, true, measured = [], [], []
    for start in (length - VECTORS, length // 2):
        case = unit(rng, sequence, queries(rng, VECTORS, head_dim) * 2, list(range(start, start + VECTORS)), **options)
        made.append(kernels.attention(case))
        true.append(exact(case, sequence))
        measured.append(yardstick(case, sequence))
    budget.check(np.concatenate(made), np.concatenate(true), np.concatenate(measured))


@given(
    vectors=st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]), head_dim=st.sampled_from(HEAD_DIMS),
    block_size=st.sampled_from([16, 32, 64, 128]), length=st.sampled_from(EDGES),
    window=st.sampled_from([0, 0, 1, 2, 16, 17, 127, 128, 129]), softcap=st.sampled_from([0.0, 0.0, 2.0, 50.0]),
    sinks=st.booleans(), in_place=st.booleans(), loud=st.sampled_from([0.1, 1.0, 20.0]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(some, max_examples=150)
def test_any_unit_stays_within_the_bound_of_its_weights_rounding(
    kernels: KernelSet, vectors: int, head_dim: int, block_size: int, length: int, window: int, softcap: float,
    sinks: bool, in_place: bool, loud: float, seed: int,
) -> None:  # fmt: skip
    """Each vector at a position of its own, the last at the end; whatever is not the sequence's is NaN."""
    rng = np.random.default_rng(seed)
    sequence = random_sequence(rng, length, head_dim)
    positions = sorted(rng.integers(max(0, length - 20), length, vectors).tolist())
    positions[-1] = length - 1
    case = unit(
        rng, sequence, queries(rng, vectors, head_dim) * np.float32(loud), positions,
        block_size=block_size, window=window, softcap=softcap,
        sinks=rng.standard_normal(vectors).astype(np.float32) * 3 if sinks else None,
    )  # fmt: skip
    budget.within(kernels.attention(case, in_place=in_place), exact(case, sequence), bound(case, sequence))


# -- what is seen, exactly ------------------------------------------------------------------------


def seen_by(
    kernels: KernelSet, rng: np.random.Generator, length: int, positions: list[int], **options: object
) -> list[np.ndarray]:
    """Which positions each vector sees: queries of zero weigh all alike, and each value marks its position."""
    head_dim = 256
    values = np.zeros((length, head_dim), np.float32)
    values[np.arange(length), np.arange(length) % head_dim] = 1
    sequence = Sequence(random_sequence(rng, length, head_dim).keys, values)
    case = unit(rng, sequence, np.zeros((len(positions), head_dim), np.float32), positions, **options)  # type: ignore[arg-type]
    visible = case.positions - case.first + 1
    return list(np.rint(kernels.attention(case) * visible[:, None]).astype(int))


@pytest.mark.parametrize("length", EDGES[:-1])
@pytest.mark.parametrize("block_size", [16, 32, 64, 128])
def test_a_query_sees_itself_and_all_before_and_nothing_after(kernels: KernelSet, length: int, block_size: int) -> None:
    rng = np.random.default_rng(length)
    positions = sorted({length - 1, max(0, length - 2), length // 2})
    for position, counts in zip(
        positions, seen_by(kernels, rng, length, positions, block_size=block_size), strict=True
    ):
        assert counts.tolist() == np.bincount(np.arange(position + 1) % 256, minlength=256).tolist()


@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 100, 127, 128, 129, 200])
@pytest.mark.parametrize("length", [127, 128, 129, 256])
def test_a_window_ends_where_it_should(kernels: KernelSet, window: int, length: int) -> None:
    """A query at p with window W sees max(0, p - W + 1) … p, also when the others of its unit see other ones."""
    rng = np.random.default_rng(window)
    positions = [length - 5, length - 4, length - 1]
    for position, counts in zip(positions, seen_by(kernels, rng, length, positions, window=window), strict=True):
        assert np.flatnonzero(counts).tolist() == list(range(max(0, position - window + 1), position + 1))


# -- what must not matter -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "window", "softcap", "sinks"])
@given(vectors=st.integers(2, VECTORS), head_dim=st.sampled_from([32, 64, 80, 128, 256]),
       length=st.sampled_from([130, 140, 256, 260, 400]), seed=st.integers(0, 2**32 - 1))  # fmt: skip
@settings(some, max_examples=15)
def test_a_query_gives_the_same_bits_alone_as_in_a_chunk(
    kernels: KernelSet, kind: str, vectors: int, head_dim: int, length: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sequence = random_sequence(rng, length, head_dim)
    sinks = rng.standard_normal(vectors).astype(np.float32) if kind == "sinks" else None
    options = {"window": {"window": 70}, "softcap": {"softcap": 1.0}}.get(kind, {})
    case = unit(
        rng, sequence, queries(rng, vectors, head_dim), list(range(length - vectors, length)), sinks=sinks, **options,
    )  # fmt: skip
    together = kernels.attention(case)
    for v in range(vectors):
        position = int(case.positions[v])
        then = Sequence(
            sequence.keys[: position + 1], sequence.values[: position + 1]
        )  # when it ran alone, nothing was after it
        alone = unit(
            rng, then, case.queries[v : v + 1].copy(), [position],
            sinks=None if sinks is None else sinks[v : v + 1].copy(), block_size=32, **options,
        )  # fmt: skip
        assert kernels.attention(alone).tobytes() == together[v].tobytes()
        assert kernels.attention(only(case, v)).tobytes() == together[v].tobytes()


@pytest.mark.parametrize("length", EDGES)
@pytest.mark.parametrize("poisoned", ["keys", "values", "both", "neither"])
def test_what_the_sequence_does_not_own_does_not_matter(kernels: KernelSet, length: int, poisoned: str) -> None:
    """Unwritten positions of the last block, blocks of others, entries of the table beyond the sequence."""
    rng = np.random.default_rng(2)
    sequence = random_sequence(rng, length, 64)
    own = queries(rng, 3, 64)
    positions = [length - 1, length - 1, max(0, length - 3)]
    make = [
        unit(np.random.default_rng(seed), sequence, own, positions, block_size=size, poison_keys=k, poison_values=v)
        for seed, size, k, v in (
            (3, 16, False, False),
            (4, 64, poisoned in ("keys", "both"), poisoned in ("values", "both")),
        )
    ]
    plain, other = (kernels.attention(case) for case in make)
    assert np.isfinite(plain).all() and plain.tobytes() == other.tobytes()


def test_outputs_may_overwrite_the_queries(kernels: KernelSet) -> None:
    rng = np.random.default_rng(5)
    case = unit(rng, random_sequence(rng, 200, 96), queries(rng, 9, 96), [199] * 9)
    assert kernels.attention(case, in_place=True).tobytes() == kernels.attention(case).tobytes()


def test_scratch_needs_no_values(kernels: KernelSet) -> None:
    """It begins as NaN in every test; what an earlier call left in it must not matter either."""
    rng = np.random.default_rng(6)
    sequence = random_sequence(rng, 150, 64)
    case = unit(rng, sequence, queries(rng, 5, 64), [149] * 5)
    first = kernels.attention(case)
    kernels.attention(unit(rng, random_sequence(rng, 300, 256), queries(rng, 12, 256), [299] * 12))
    assert kernels.attention(case).tobytes() == first.tobytes()


# -- chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "window", "sinks"])
def test_chunks_join_to_what_one_call_gives(kernels: KernelSet, kind: str) -> None:
    """Each chunk leaves sums relative to its own largest score; together they are attention, within its bound."""
    rng = np.random.default_rng(12)
    sequence = random_sequence(rng, 700, 64)
    sinks = np.linspace(-2, 3, 5).astype(np.float32) if kind == "sinks" else None
    case = unit(
        rng, sequence, queries(rng, 5, 64) * 2, [380, 390, 500, 698, 699], sinks=sinks,
        window=200 if kind == "window" else 0,
    )  # fmt: skip
    chunks = [kernels.attention_chunk(case, begin, begin + 256).astype(np.float64) for begin in (0, 256, 512)]
    peaks = np.stack([chunk[:, 64] for chunk in chunks])
    weights = np.exp2(peaks - peaks.max(0))
    sums = sum(chunk[:, :64] * weight[:, None] for chunk, weight in zip(chunks, weights, strict=True))
    totals = sum(chunk[:, 65] * weight for chunk, weight in zip(chunks, weights, strict=True))
    budget.within((sums / totals[:, None]).astype(np.float32), exact(case, sequence), bound(case, sequence))


def test_a_chunk_that_a_query_does_not_see_leaves_nothing(kernels: KernelSet) -> None:
    rng = np.random.default_rng(13)
    sequence = random_sequence(rng, 600, 64)
    case = unit(rng, sequence, queries(rng, 2, 64), [200, 599], window=100, sinks=np.ones(2, np.float32))
    for v, begin in ((0, 256), (0, 512), (1, 0), (1, 256)):
        assert kernels.attention_chunk(case, begin, begin + 128)[v].tolist() == [0.0] * 64 + [-np.inf, 0.0]


# -- int8 -----------------------------------------------------------------------------------------


@given(vectors=st.sampled_from([1, 2, 3, 5, 6, 12]), head_dim=st.sampled_from(HEAD_DIMS),
       block_size=st.sampled_from([16, 32, 64]), length=st.sampled_from(EDGES),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
@settings(some, max_examples=60)
def test_int8_gives_the_bits_of_the_bf16_numbers_it_stands_for(
    kernels: KernelSet, vectors: int, head_dim: int, block_size: int, length: int, seed: int
) -> None:
    """Codes and scales anywhere; what is not written has a scale of NaN."""
    rng = np.random.default_rng(seed)
    positions = sorted(rng.integers(max(0, length - 20), length, vectors).tolist())
    small, wide = random_int8_unit(rng, length, queries(rng, vectors, head_dim), positions, block_size=block_size)
    assert kernels.attention(small).tobytes() == kernels.attention(wide).tobytes()


# -- caches of floats -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f32", "f16"])
@given(
    vectors=st.sampled_from([1, 2, 3, 7, 11, 12]), head_dim=st.sampled_from(HEAD_DIMS),
    block_size=st.sampled_from([16, 32, 128]), length=st.sampled_from([*EDGES, 1500]),
    window=st.sampled_from([0, 0, 1, 17, 128, 129, 1100]), softcap=st.sampled_from([0.0, 0.0, 2.0]),
    sinks=st.booleans(), in_place=st.booleans(), loud=st.sampled_from([0.1, 1.0, 20.0]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(some, max_examples=60)
def test_a_cache_of_floats_rounds_neither_queries_nor_weights(
    kernels: KernelSet, kind: str, vectors: int, head_dim: int, block_size: int, length: int, window: int,
    softcap: float, sinks: bool, in_place: bool, loud: float, seed: int,
) -> None:  # fmt: skip
    """Each vector at a position of its own, the last at the end; whatever is not the sequence's is NaN."""
    rng = np.random.default_rng(seed)
    sequence = random_sequence(rng, length, head_dim, kind)
    positions = sorted(rng.integers(max(0, length - 20), length, vectors).tolist())
    positions[-1] = length - 1
    case = unit(
        rng, sequence, queries(rng, vectors, head_dim) * np.float32(loud), positions,
        block_size=block_size, window=window, softcap=softcap, kind=kind,
        sinks=rng.standard_normal(vectors).astype(np.float32) * 3 if sinks else None,
    )  # fmt: skip
    out = kernels.attention(case, in_place=in_place)
    budget.within(out, exact(case, sequence), bound(case, sequence))
    for v in range(vectors):
        assert kernels.attention(only(case, v)).tobytes() == out[v].tobytes(), "a query depends on its neighbours"


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_chunks_over_a_cache_of_floats_join_to_what_one_call_gives(kernels: KernelSet, kind: str) -> None:
    rng = np.random.default_rng(14)
    sequence = random_sequence(rng, 700, 256, kind)
    case = unit(rng, sequence, queries(rng, 5, 256), [380, 390, 500, 698, 699], kind=kind)
    chunks = [kernels.attention_chunk(case, begin, begin + 256).astype(np.float64) for begin in (0, 256, 512)]
    peaks = np.stack([chunk[:, 256] for chunk in chunks])
    weights = np.exp2(peaks - peaks.max(0))
    sums = sum(chunk[:, :256] * weight[:, None] for chunk, weight in zip(chunks, weights, strict=True))
    totals = sum(chunk[:, 257] * weight for chunk, weight in zip(chunks, weights, strict=True))
    budget.within((sums / totals[:, None]).astype(np.float32), exact(case, sequence), bound(case, sequence))


# -- numbers at the limits ------------------------------------------------------------------------


def test_scores_far_apart_leave_the_largest_alone(kernels: KernelSet) -> None:
    """One key at a score of 400, the others at 0 or at -400: the softmax is one there and zero elsewhere."""
    rng = np.random.default_rng(7)
    keys = np.zeros((140, 64), np.float32)
    keys[5, 0], keys[9, 0] = 20, -20
    sequence = Sequence(keys, random_sequence(rng, 140, 64).values)
    own = np.zeros((2, 64), np.float32)
    own[:, 0] = [20, -20]
    case = unit(rng, sequence, own, [139, 139], scale=1.0)
    assert np.array_equal(kernels.attention(case), sequence.values[[5, 9]])


def test_equal_scores_give_the_mean(kernels: KernelSet) -> None:
    rng = np.random.default_rng(8)
    sequence = random_sequence(rng, 129, 64)
    case = unit(rng, sequence, np.zeros((4, 64), np.float32), [128] * 4)
    mean = sequence.values.astype(np.float64).mean(0)
    assert np.abs(kernels.attention(case) - mean).max() < 2e-6


@pytest.mark.parametrize("sink", [-np.inf, -200.0, 0.0, 200.0])
def test_a_sink_takes_its_share_and_gives_nothing(kernels: KernelSet, sink: float) -> None:
    rng = np.random.default_rng(9)
    sequence = random_sequence(rng, 129, 64)
    own = np.zeros((2, 64), np.float32)
    share = 129 / (129 + np.exp(sink))
    case = unit(rng, sequence, own, [128, 128], sinks=np.array([sink, -np.inf], np.float32))
    out = kernels.attention(case)
    mean = sequence.values.astype(np.float64).mean(0)
    assert np.abs(out[0] - share * mean).max() < 2e-6
    assert np.abs(out[1] - mean).max() < 2e-6


@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_reaches_those_who_see_it_and_no_others(kernels: KernelSet, where: str, bad: float) -> None:
    """One query's own; or a key or value at a position that the second query alone can see. (A bad value may reach the
    others of its unit, all of one sequence: they weigh it by zero.)"""
    rng = np.random.default_rng(10)
    sequence = random_sequence(rng, 260, 64)
    keys, values, own = sequence.keys.copy(), sequence.values.copy(), np.abs(queries(rng, 2, 64))
    if where == "query":
        own[1, 3] = bad
    else:
        (keys if where == "key" else values)[259, 7] = bad
    case = unit(rng, Sequence(keys, values), own, [100, 259])
    out = kernels.attention(case)
    assert not np.isfinite(out[1]).all()
    if where != "value":
        assert np.isfinite(out[0]).all()
    assert (
        kernels.attention(only(case, 0)).tobytes()
        == kernels.attention(only(unit(rng, sequence, case.queries, [100, 259]), 0)).tobytes()
    )


def test_blocks_may_lie_far_apart(kernels: KernelSet) -> None:
    """A block's offset is a product of 64 bits: two heads' worth of stride stands for a large pool."""
    rng = np.random.default_rng(11)
    sequence = random_sequence(rng, 70, 32)
    case = unit(rng, sequence, queries(rng, 3, 32), [69] * 3, spare=500)
    near = unit(rng, sequence, case.queries, [69] * 3, spare=0)
    assert int(case.table[:5].max()) > 100
    assert kernels.attention(case).tobytes() == kernels.attention(near).tobytes()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 8, 12, 16])
def test_a_group_of_heads_gives_each_head_its_own(kernels: KernelSet, heads: int) -> None:
    """However many share the keys; past twelve they take a second unit."""
    rng = np.random.default_rng(12)
    sequence = random_sequence(rng, 150, 64)
    own = queries(rng, heads, 64)
    parts: list[Attention] = [
        unit(
            np.random.default_rng(1),
            sequence,
            own[start : start + VECTORS].copy(),
            [149] * len(own[start : start + VECTORS]),
        )
        for start in range(0, heads, VECTORS)
    ]
    out = np.concatenate([kernels.attention(part) for part in parts])
    for head in range(heads):
        alone = replace(
            parts[0], queries=own[head : head + 1].copy(), positions=parts[0].positions[:1], first=parts[0].first[:1]
        )
        budget.within(out[head : head + 1], exact(alone, sequence), bound(alone, sequence))
        assert kernels.attention(alone).tobytes() == out[head].tobytes()
