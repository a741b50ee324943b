"""L0 · KV: the block pool, by its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octavo_conformance.checks.l0_pools import (
    F32,
    Layer,
    Layers,
    ahead,
    float_caches,
    heads_of,
    layers,
    one_row,
    sizes,
)
from octavo_conformance.harness import attention
from octavo_conformance.harness.steps import Action, MoveBlock, ReadBlock, Row, Seq, Step, WriteBlock, blocks_for
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, measure
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

POOL = 6


def filled(made: Layers, rng: Rng, blocks: int, size: int, slots: int = 2) -> list[F32]:
    """Random blocks, each another."""
    return [made.block(rng.fork(b), size, slots) for b in range(blocks)]


def poured(data: Sequence[F32]) -> list[Action]:
    """Set every block of a pool."""
    return [WriteBlock(b, block) for b, block in enumerate(data)]


def read(blocks: int) -> list[Action]:
    """Read every block of a pool."""
    return [ReadBlock(b) for b in range(blocks)]


def pool_of(results: Sequence[Any], blocks: int) -> F32:
    """The pool that the last actions of a script read."""
    return np.stack(results[len(results) - blocks :])


# -- block by block -----------------------------------------------------------------------------------------


@check(
    "kv.layout_roundtrip", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M49.late",), cost=1.0,
    spec="""For every declared block size and cache type, read_block MUST return what write_block set, rounded to the
    type, and writing one block MUST leave the others as they were. Of a float type every number MUST come back, the
    infinities and NaN too.""",
)  # fmt: skip
def layout_roundtrip(t: Target) -> Iterator[Verdict]:
    for dtype in float_caches(t):
        for size in t.capabilities.block_sizes:
            rng = t.rng(dtype, size)
            made = layers(t, rng, 2, kv_dtype=dtype)
            data = filled(made, rng, POOL, size)
            order = rng.permutation(POOL).tolist()
            script: list[Action] = [WriteBlock(b, data[b]) for b in order]
            script += [WriteBlock(2, data[3]), *read(POOL)]
            played = t.play(made.model(), script, block_size=size, kv_dtype=dtype, blocks=POOL)
            data[2] = data[3]
            yield measure.bitwise(f"{dtype}, block_size={size}", pool_of(played.results, POOL), np.stack(data))
        made = layers(t, t.rng(dtype, "all"), 2, kv_dtype=dtype)
        data = _all_numbers(t, dtype, (2, 2, t.block_size, *made.layers[0].k.shape[1:]))
        played = t.play(made.model(), [*poured(data), *read(len(data))], kv_dtype=dtype, blocks=len(data))
        found = pool_of(played.results, len(data))
        found = np.where(np.isnan(found), np.float32(np.nan), found)
        yield measure.bitwise(f"{dtype}, all numbers", found, np.stack(data))


def _all_numbers(t: Target, dtype: str, shape: tuple[int, ...]) -> list[F32]:
    """Blocks of every 16-bit number, or of random ones of f32: those below the smallest normal one, which may be
    flushed, as 1, and all NaNs as one.
    """
    if dtype == "f32":
        x = t.rng("bits").words(1 << 16).view(np.float32)
    else:
        bits = np.arange(1 << 16, dtype=np.uint16)
        x = floats.bf16_values(bits) if dtype == "bf16" else bits.view(np.float16).astype(np.float32)
    small = (x != 0) & (np.abs(x) < floats.SMALLEST[dtype])
    x = np.where(np.isnan(x), np.float32(np.nan), np.where(small, np.float32(1), x))
    blocks = -(-x.size // int(np.prod(shape)))
    return list(np.resize(x, (blocks, *shape)).astype(np.float32))


@check(
    "kv.int8_write", level="L0", module="KV", since="1.0", requires=("kv:int8",), rules=("C",),
    cost=0.5,
    spec="""An int8 cache MUST return every number within one part in 127 of the largest of its head's vector, on
    average within half of that, zeros and signs exactly; and so what it returned, when that is written again.""",
)  # fmt: skip
def int8_write(t: Target) -> Iterator[Verdict]:
    dim = heads_of(t).head_dim
    for size in sizes(t):
        rng = t.rng(size)
        made = layers(t, rng, 2, kv_dtype="int8")
        shape = (2, 2, size, 2, dim)
        count = int(np.prod(shape))
        plain = t.stored(rng.normal(count).reshape(shape))
        spread = plain * np.exp2(t.rng(size, "scale").integers(-12, 12, *shape[:-1])).astype(np.float32)[..., None]
        gaps = np.where(t.rng(size, "zeros").uniform(*shape[:-1])[..., None] < 0.3, np.float32(0), plain)
        data = [t.stored(x) for x in (plain, spread, gaps)]
        once = t.play(made.model(), [*poured(data), *read(3)], block_size=size, kv_dtype="int8", blocks=3)
        held = pool_of(once.results, 3)
        twice = t.play(made.model(), [*poured(list(held)), *read(3)], block_size=size, kv_dtype="int8", blocks=3)
        names = ("plain", "spread", "zeros", "plain again", "spread again", "zeros again")
        again = pool_of(twice.results, 3)
        for name, x, y in zip(names, (*data, *held), (*held, *again), strict=True):
            unit = np.abs(x).max(-1, keepdims=True) / 127
            off = np.abs(y.astype(np.float64) - x) / np.where(unit > 0, unit, 1)
            yield measure.within(f"{name}, block_size={size}, largest", float(off.max()), 0, 1)
            yield measure.within(f"{name}, block_size={size}, mean", float(off.mean()), 0, 0.5)
            wrong = int(((x == 0) & (y != 0)).sum() + (x * y < 0).sum())
            yield measure.within(f"{name}, block_size={size}, zeros and signs", wrong, 0, 0)


# -- what a step writes -------------------------------------------------------------------------------------


@check(
    "kv.write_locality", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M45.past",), cost=1.0,
    spec="""A step MUST write keys and values to exactly the slots it names, in every layer, before its attention reads,
    and to nothing else.""",
)  # fmt: skip
def write_locality(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (size + 3, 1, 2)
    made = layers(t, t.rng("tokens"), sum(lengths))
    model, data = made.model(), filled(made, t.rng("blocks"), POOL, size)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    sequences = tuple(
        Seq(tuple(range(a, a + n)), (table,))
        for a, n, table in zip(starts.tolist(), lengths, ((4, 1), (3,), (5,)), strict=False)
    )
    rows = tuple(Row(i, 0, n) for i, n in enumerate(lengths))
    played = t.play(model, [*poured(data), Step(sequences, rows), *read(POOL)], blocks=POOL)
    for sequence, length in zip(sequences, lengths, strict=True):
        made.write(data, model, sequence, range(length), size)
    yield measure.bitwise("pool", pool_of(played.results, POOL), np.stack(data))


@check(
    "kv.slot_pad_ignored", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M20",), cost=0.5,
    spec="""Padding tokens, whose slot is -1, MUST write nothing, and MUST not change what the live rows give; neither
    must padding rows.""",
)  # fmt: skip
def slot_pad_ignored(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    made = layers(t, t.rng("tokens"), 40)
    model, data = made.model(), filled(made, t.rng("blocks"), POOL, size)
    sequence = Seq(tuple(range(3)), ((2,),))
    outs = []
    for padding in (0, 5, 29):
        step = one_row(sequence, 0, 3, padding=padding)
        after = one_row(sequence, 2, 1, padding=padding)
        results = t.play(model, [*poured(data), step, after, *read(POOL)], blocks=POOL).results
        outs.append(np.concatenate(results[POOL : POOL + 2]))
        expected = [block.copy() for block in data]
        made.write(expected, model, sequence, range(3), size)
        yield measure.bitwise(f"pool, padding={padding}", pool_of(results, POOL), np.stack(expected))
    for padding, out in zip((5, 29), outs[1:], strict=True):
        yield measure.bitwise(f"results, padding={padding}", out, outs[0])


@check(
    "kv.partial_tail", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M45.past",), cost=1.5,
    spec="""Sequences of one token, of a block less one, a block, a block and one, and several MUST fill their blocks to
    their last token and no further, whether they come in one chunk or end token by token.""",
)  # fmt: skip
def partial_tail(t: Target) -> Iterator[Verdict]:
    for size in sizes(t):
        lengths = tuple(sorted({1, max(size - 1, 1), size, size + 1, 2 * size + 3}))
        made = layers(t, t.rng("tokens", size), sum(lengths))
        model, tables = made.model(), blocks_for(lengths, size)
        pool = sum(map(len, tables)) + 2
        starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        sequences = tuple(
            Seq(tuple(range(a, a + n)), (table,)) for a, n, table in zip(starts, lengths, tables, strict=False)
        )
        data = filled(made, t.rng("blocks", size), pool, size)
        expected = [block.copy() for block in data]
        for sequence, length in zip(sequences, lengths, strict=True):
            made.write(expected, model, sequence, range(length), size)
        whole: list[Action] = [Step(sequences, tuple(Row(i, 0, n) for i, n in enumerate(lengths)), last=True)]
        ends: list[Action] = (
            [Step(sequences, tuple(Row(i, 0, n - 2) for i, n in enumerate(lengths) if n > 2), last=True)]
            if max(lengths) > 2
            else []
        )
        for back in (2, 1):
            rows = tuple(Row(i, n - back, 1) for i, n in enumerate(lengths) if n >= back)
            ends.append(Step(sequences, rows))
        for name, steps in (("whole", whole), ("token by token", ends)):
            script = [*poured(data), *steps, *read(pool)]
            found = pool_of(t.play(model, script, block_size=size, blocks=pool).results, pool)
            yield measure.bitwise(f"block_size={size}, {name}", found, np.stack(expected))


@check(
    "kv.layer_isolation", level="L0", module="KV", since="1.0", rules=("B0", "X0"), kills=("L0.layers",), cost=0.5,
    spec="""Every layer MUST write its own tensor and read its own tensor; what another layer holds MUST not show.""",
)  # fmt: skip
def layer_isolation(t: Target) -> Iterator[Verdict]:
    size, dim = t.block_size, heads_of(t).head_dim
    rng = t.rng("digits")
    digits = [rng.integers(0, 4, 8, 1, dim).astype(np.float32) for _ in range(3)]
    keys = t.kv_stored(t.stored(rng.normal(8, 1, dim)))
    made = Layers(
        t, tuple(Layer(keys, d * 4**i) for i, d in enumerate(digits)), t.stored(rng.normal(8, dim)), t.kv_dtype
    )
    if t.kv_dtype == "int8":
        made = Layers(t, tuple(Layer(keys, np.full_like(d, 4.0**i)) for i, d in enumerate(digits)), made.q, "int8")
    model = made.model()
    data = filled(made, t.rng("blocks"), 10, size, 3) if t.kv_dtype in floats.UNIT else []
    sequences = tuple(Seq((token,), ((token + 1,),)) for token in range(8))
    # A sequence of one token attends to itself alone: each layer gives its value, the sum all digits.
    rows = tuple(Row(i, 0, 1) for i in range(8))
    script = [*poured(data), Step(sequences, rows), *read(len(data))]
    played = t.play(model, script, blocks=10)
    found = played.results[len(data)]
    expected = sum(layer.v.reshape(8, dim) for layer in made.layers)
    one = {"layer 0 everywhere": 3 * made.layers[0].v.reshape(8, dim)}
    yield measure.integers("sum of layers", found, expected, plants=one)
    if data:
        for sequence in sequences:
            made.write(data, model, sequence, range(1), size)
        yield measure.bitwise("pool", pool_of(played.results, 10), np.stack(data))


@check(
    "kv.group_mixed", level="L0", module="KV", since="1.0", requires=("op:attention", "attention:window"),
    rules=("B0", "C"), kills=("L0.group",), cost=1.0,
    spec="""Layers of different groups MUST use their own tables over one pool: each writes the blocks of its own group,
    and where a window has left a block behind (table entry 0), nothing reads it.""",
)  # fmt: skip
def group_mixed(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    length, window = 3 * size + 2, size
    made = layers(t, t.rng("tokens"), length, windows=(None, window, None))
    model = made.model()
    windows = model.graph.kv_windows
    tables = [tuple(range(1 + 4 * group, 5 + 4 * group)) for group in range(len(windows))]
    left = [table if wide is None else (0, 0, *table[2:]) for table, wide in zip(tables, windows, strict=True)]
    pool = 4 * len(windows) + 2
    data = filled(made, t.rng("blocks"), pool, size, model.graph.kv_slots)
    whole, behind = (Seq(tuple(range(length)), tuple(each)) for each in (tables, left))
    prompt, last = one_row(whole, 0, length - 2, last=True), one_row(whole, length - 2, 2)
    plain = t.play(model, [*poured(data), prompt, last, *read(pool)], blocks=pool).results
    moved = t.play(model, [*poured(data), prompt, one_row(behind, length - 2, 2)], blocks=pool).results
    made.write(data, model, whole, range(length), size)
    yield measure.within("groups", len(windows), 2, 3)
    yield measure.bitwise("pool", pool_of(plain, pool), np.stack(data))
    yield measure.bitwise("blocks left behind", moved[pool + 1], plain[pool + 1])


# -- copies, moves, reuse -----------------------------------------------------------------------------------

COPIES = {
    "none": (),
    "fan-out": ((1, 2), (1, 3), (1, 4)),
    "chain": ((1, 2), (2, 3), (3, 4)),
    "backwards": ((3, 4), (2, 3), (1, 2)),
    "onto itself": ((2, 2), (2, 1)),
    "swap through a third": ((1, 4), (2, 1), (4, 2)),
    "twice over": ((1, 3), (2, 3)),
}


@check(
    "kv.copy_blocks", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M21", "M22.copies"), cost=1.0,
    spec="""The copies of a step MUST be made one after the other, whole blocks in every layer, before anything is
    written: none, fan-out, chains and a block onto itself mean what they mean in order.""",
)  # fmt: skip
def copy_blocks(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    made = layers(t, t.rng("tokens"), 4)
    model, sequence = made.model(), Seq((0,), ((5,),))
    script: list[Action] = []
    expected, read_at = [], []
    for name, copies in COPIES.items():
        data = filled(made, t.rng(name), POOL, size)
        script += [*poured(data), one_row(sequence, 0, 1, copies=copies)]
        read_at.append(len(script))
        script += read(POOL)
        for source, destination in copies:
            data[destination] = data[source].copy()
        made.write(data, model, sequence, range(1), size)
        expected.append(np.stack(data))
    results = t.play(model, script, blocks=POOL).results
    for name, at, right in zip(COPIES, read_at, expected, strict=True):
        yield measure.bitwise(name, np.stack(results[at : at + POOL]), right)


@check(
    "kv.swap_out_in", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M22",), cost=0.5,
    spec="""Blocks that are read to the host and written to other blocks MUST serve there as they did: the next tokens
    are the same bits, whatever becomes of the blocks that they came from.""",
)  # fmt: skip
def swap_out_in(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    length = 2 * size + 5
    made = layers(t, t.rng("tokens"), length)
    model = made.model()
    here, there = (1, 2, 3), (6, 4, 5)
    prompt = one_row(Seq(tuple(range(length)), (here,)), 0, length - 2, last=True)
    stayed, moved = (one_row(Seq(tuple(range(length)), (table,)), length - 2, 2) for table in (here, there))
    moves: list[Action] = [MoveBlock(a, b) for a, b in zip(here, there, strict=True)]
    nothing = [WriteBlock(b, np.full((2, 2, size, 2, heads_of(t).head_dim), 7.0, np.float32)) for b in here]
    plain = t.play(model, [prompt, stayed], blocks=8).results
    swapped = t.play(model, [prompt, *moves, *nothing, moved], blocks=8).results
    yield measure.bitwise("swapped", swapped[-1], plain[-1])


@check(
    "kv.swap_async_order", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M43.read",), cost=0.5,
    spec="""read_block MUST wait for the steps in flight, and a block that is written while steps are in flight MUST be
    seen by the steps after it and by none before it.""",
)  # fmt: skip
def swap_async_order(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    length = size + 6
    made = layers(t, t.rng("tokens"), length)
    model, sequence = made.model(), Seq(tuple(range(length)), ((1, 2),))
    moved = Seq(sequence.tokens, ((3, 2),))
    script: list[Action] = [one_row(sequence, 0, length - 4, last=True)]
    script += [one_row(sequence, length - 4, 1), ReadBlock(1), ReadBlock(2), one_row(sequence, length - 3, 1)]
    script += [MoveBlock(1, 3), one_row(moved, length - 2, 1), MoveBlock(2, 1), one_row(moved, length - 1, 1)]
    script += [ReadBlock(1), ReadBlock(3)]
    serial = t.play(model, script, blocks=5).results
    flying = ahead(t, model, script, 4, blocks=5)
    reads = [i for i, action in enumerate(script) if isinstance(action, ReadBlock)]
    steps = [i for i, action in enumerate(script) if isinstance(action, Step)]
    yield measure.bitwise("blocks", np.stack([flying[i] for i in reads]), np.stack([serial[i] for i in reads]))
    yield measure.bitwise(
        "results", np.concatenate([flying[i] for i in steps]), np.concatenate([serial[i] for i in steps])
    )


@check(
    "kv.free_reuse", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M11", "L0.stale"), cost=1.0,
    spec="""A block that another sequence had before MUST serve as a new one: nothing of what it held shows, and the
    last steps of the sequence before, still in flight, MUST not see what is written to it next.""",
)  # fmt: skip
def free_reuse(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    case = attention.randn(t, t.rng("tokens"), heads_of(t), (2 * size + 1, size + 2))
    model = attention.model(t, case)
    first = Seq(tuple(range(case.lengths[0])), ((1, 2, 3),))
    second = Seq(tuple(range(case.starts[1], case.starts[2])), ((3, 1),))
    others = Seq(second.tokens, ((5, 4),))
    end = case.lengths[0]
    before: list[Action] = [one_row(first, 0, end - 1, last=True), one_row(first, end - 1, 1)]

    def later(sequence: Seq) -> list[Action]:
        count = case.lengths[1]
        return [one_row(sequence, 0, count - 2), one_row(sequence, count - 2, 1), one_row(sequence, count - 1, 1)]

    fresh = t.play(model, [*before, *later(others)]).results
    reused = t.play(model, [*before, *later(second)]).results
    flying = ahead(t, model, [*before, *later(second)], 3)
    yield measure.bitwise("reused", np.concatenate(reused), np.concatenate(fresh))
    yield measure.bitwise("reused at once", np.concatenate(flying), np.concatenate(fresh))


@check(
    "kv.export_import", level="L0", module="KV", since="1.0", rules=("B0",), kills=("M22",), cost=2.0,
    spec="""Blocks that one process read MUST serve in another: written there, they give the same next tokens, and read
    there, the same bytes.""",
)  # fmt: skip
def export_import(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    length = size + 9
    made = layers(t, t.rng("tokens"), length)
    model, sequence = made.model(), Seq(tuple(range(length)), ((2, 3),))
    end = one_row(sequence, length - 1, 1)
    here = t.play(model, [one_row(sequence, 0, length - 1, last=True), ReadBlock(2), ReadBlock(3), end], blocks=6)
    moved = one_row(Seq(sequence.tokens, ((4, 1),)), length - 1, 1)
    # What was never written is NaN here, and means nothing there either.
    blocks = [np.nan_to_num(block, nan=1.0) for block in here.results[1:3]]
    script: list[Action] = [WriteBlock(4, blocks[0]), WriteBlock(1, blocks[1]), ReadBlock(4), ReadBlock(1), moved]
    with t.fresh() as other:
        there = other.play(model, script, blocks=6).results
    yield measure.bitwise("tokens", there[4], here.results[3])
    yield measure.bitwise("bytes", np.stack(there[2:4]), np.stack(blocks))


# -- size ---------------------------------------------------------------------------------------------------


@check(
    "kv.index_int64", level="L0", module="KV", since="1.0", rules=("B0", "C"), kills=("M12",), cost=1.0,
    spec="""Blocks MUST be addressed beyond 2^31 bytes and beyond 2^31 elements of a pool, by read_block, write_block,
    steps and copies; where core would never make a pool as large on this device, up to the largest it would.""",
)  # fmt: skip
def index_int64(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    wide = 32
    made = layers(t, t.rng("tokens"), size + 4, heads=wide)
    model = made.model()
    probe = t.play(model, [ReadBlock(0)], blocks=2)
    heads, dim = made.layers[0].k.shape[1:]
    elements = size * heads * dim  # of one block's keys in one layer: the least stride there is
    wanted = 2**31 // elements + 8
    blocks = min(wanted, int(0.95 * probe.memory[1][1]) // probe.block_bytes)
    edges = {2**k // unit for k in (31, 32) for unit in (elements, 2 * elements, 4 * elements, probe.block_bytes)}
    named = sorted({b for edge in edges for b in (edge - 1, edge, edge + 1) if 0 < b < blocks - 4} | {1, 2})
    data = {b: made.block(t.rng("block", b), size, 2) for b in (*named, 0)}
    script: list[Action] = [WriteBlock(b, block) for b, block in data.items()]
    target = blocks - 1
    sequence = Seq(tuple(range(size + 4)), ((target, blocks - 2),))
    low = Seq(sequence.tokens, ((1, 2),))
    copy = (named[-1], blocks - 3)
    script += [Step((sequence,), (Row(0, 0, size + 3),), last=True), one_row(sequence, size + 3, 1, copies=(copy,))]
    script += [ReadBlock(b) for b in data]
    script += [ReadBlock(target), ReadBlock(blocks - 3)]
    results = t.play(model, script, blocks=blocks, poison=False).results
    plain = t.play(model, [Step((low,), (Row(0, 0, size + 3),), last=True), one_row(low, size + 3, 1)]).results
    count = len(data)
    yield measure.within("blocks", blocks, 8, wanted, note=f"{blocks * elements} elements to a tensor")
    yield measure.bitwise("results", np.concatenate(results[count : count + 2]), np.concatenate(plain))
    yield measure.bitwise("blocks written", np.stack(results[count + 2 : -2]), np.stack(list(data.values())))
    written = [np.zeros_like(data[0]), np.zeros_like(data[0])]
    made.write(written, model, Seq(sequence.tokens, ((0, 1),)), range(size), size)
    yield measure.bitwise("block of the step", results[-2], written[0])
    yield measure.bitwise("block copied", results[-1], data[named[-1]])
