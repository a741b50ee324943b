"""G · GPH: programs for fixed shapes, or for all: padding, replays, and what must be refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from octavo.graph import Graph, Value, from_json, to_json
from octavo.platform import Bucket, KVLayout, Plan
from octavo_conformance.checks.l5_engine import BLOCKS, DECODER, FULL_DECODER, prompt
from octavo_conformance.harness import attention, constructed, engines, numeric, refusal
from octavo_conformance.harness.engines import Request, copied, copy_model
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Action, Row, Seq, Step, WriteBlock, blocks_for, bucket_of, schedule
from octavo_conformance.harness.target import Target
from octavo_conformance.harness.trajectory import Truth, alike, centred
from octavo_conformance.judge import lowp, measure, oracle64
from octavo_conformance.judge.floats import F32, F64
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker import values
from octavo_conformance.worker.host import CandidateRaised

DISTANCE = 5


def best(logits: object) -> list[int]:
    """The token of each row of logits."""
    return [int(token) for token in np.asarray(logits).argmax(-1)]


def back(tokens: Sequence[int], rows: Sequence[int], distance: int = DISTANCE) -> list[int]:
    """What a `copy_model` makes after the tokens at ``rows``."""
    return [tokens[row - distance] for row in rows]


def edges(plan: Plan, field: str, most: int) -> list[int]:
    """Sizes around those that the plan's buckets list for ``field``; around powers of two where they list none."""
    listed = {getattr(bucket, field) for bucket in plan.limits.buckets.buckets()} - {None}
    sizes = {n + off for n in listed or {1, 2, 4, 8, 16, 32} for off in (-1, 0, 1)}
    largest = min(most, max(listed)) if listed else most
    return sorted(n for n in sizes if 1 <= n <= largest)


@check(
    "gph.bucket_edges", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory", rules=("X0", "C"),
    kills=("M34.edge",), cost=1.5,
    spec="""Steps of one token, row or block less than a compiled shape, of exactly its size, and of one more MUST each
    be right, in the cheapest shape that covers them; where shapes are free, around powers of two.""",
)  # fmt: skip
def bucket_edges(t: Target) -> Iterator[Verdict]:
    size, model = t.block_size, copy_model(t, DISTANCE, longest=1024)
    context = 5 * size + 2
    plan = t.plan(model, context=context, block_size=size, kv_dtype=t.kv_dtype)
    most = plan.max_num_batched_tokens
    cases: list[tuple[str, Step, list[int], int]] = []
    script: list[Action] = []

    def add(name: str, before: Step | None, step: Step, expected: list[int]) -> None:
        script.extend([before, step] if before is not None else [step])
        cases.append((name, step, expected, len(script) - 1))

    for n in edges(plan, "tokens", min(most, 66)):
        if n > DISTANCE:
            tokens = prompt(t, f"tokens {n}", n)
            seq = Seq(tokens, (blocks_for([n], size)[0],))
            add(f"tokens={n}", None, Step((seq,), (Row(0, 0, n),)), back(tokens, range(n)))
    for n in edges(plan, "rows", min(plan.max_num_seqs, 9)):
        length = DISTANCE + 4
        tables = blocks_for([length] * n, size)
        seqs = tuple(Seq(prompt(t, f"rows {n}/{i}", length), (tables[i],)) for i in range(n))
        fill = Step(seqs, tuple(Row(i, 0, length - 1) for i in range(n)))
        step = Step(seqs, tuple(Row(i, length - 1, 1) for i in range(n)))
        add(f"rows={n}", fill, step, [seq.tokens[length - 1 - DISTANCE] for seq in seqs])
    for n in edges(plan, "blocks", 5):
        for length in (n * size, n * size - 1) if n * size - 1 > DISTANCE else ():
            tokens = prompt(t, f"blocks {n}/{length}", length)
            seq = Seq(tokens, (blocks_for([length], size)[0],))
            fill, step = Step((seq,), (Row(0, 0, length - 1),)), Step((seq,), (Row(0, length - 1, 1),))
            add(f"blocks={n}, context={length}", fill, step, back(tokens, [length - 1]))
    results = t.play(model, script).results
    for name, step, expected, at in cases:
        known = [i for i, row in enumerate(_positions(step)) if row >= DISTANCE]
        yield measure.integers(name, np.array(best(results[at]))[known], np.array(expected)[known])
        for i, piece in enumerate(schedule(step, plan)):
            bucket = bucket_of(piece, plan)
            tokens_of = sum(row.count for row in piece.rows)
            blocks = -(-max(row.start + row.count for row in piece.rows) // size)
            needed = Bucket(tokens_of, len(piece.rows), len(piece.wanted), blocks)
            cheaper = [b for b in plan.limits.buckets.buckets() if b.covers(needed) and b.volume < bucket.volume]
            yield measure.holds(f"{name}, shape of piece {i}", bucket.covers(needed) and not cheaper, str(bucket))


def _positions(step: Step) -> list[int]:
    return [row.start + i for row in step.rows for i in range(row.count)]


@check(
    "gph.every_bucket", level="G", module="GPH", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("X0", "M", "R"), kills=("M35",), cost=1.5,
    spec="""The same rows MUST bring the same, and what is right, whichever of the shapes that cover them they run in,
    and however much of it is padding.""",
)  # fmt: skip
def every_bucket(t: Target) -> Iterator[Verdict]:
    length = t.block_size + 9
    tokens = tuple(1 + token % (engines.VOCAB - 1) for token in prompt(t, "tokens", length))
    decoder = numeric.decoder(t, t.rng("weights"))
    truth = Truth(t, decoder, tokens)
    seq = Seq(tokens, (blocks_for([length], t.block_size)[0],))
    rooms = range(0, 10, 3)
    script = [Step((seq,), rows, room=room) for room in rooms for rows in ((Row(0, 0, 9),), (Row(0, 9, length - 9),))]
    logits = t.play(decoder.model, script).results
    copies = t.play(copy_model(t, DISTANCE), script).results
    whole = [np.concatenate(logits[2 * i : 2 * i + 2]) for i in range(len(rooms))]
    for i, room in enumerate(rooms):
        found = best(np.concatenate(copies[2 * i : 2 * i + 2]))[DISTANCE:]
        yield measure.integers(f"room={room}: copies", found, back(tokens, range(DISTANCE, length)))
        yield measure.budget(f"room={room}: logits", centred(whole[i]), truth.exact, truth.own, t.dtype)
        if i:
            yield alike(f"room={room}: as without", t, truth, whole[i], whole[0])


@check(
    "gph.padding_inert", level="G", module="GPH", since="1.0", requires=(*DECODER, "op:rms_norm"), grade="mandatory",
    rules=("B0",), kills=("M35",), cost=1.0,
    spec="""Nothing of a step's padding MUST reach its rows: bit by bit they bring the same whether the embedding of
    token 0 and the null block, which padding names, hold NaN or numbers.""",
)  # fmt: skip
def padding_inert(t: Target) -> Iterator[Verdict]:
    length = t.block_size + 3
    tokens = tuple(1 + token % 31 for token in prompt(t, "tokens", length))
    seqs = tuple(Seq(tokens, (table,)) for table in blocks_for([length] * 3, t.block_size))
    chunk = tuple(Row(i, 0, length - 1) for i in range(3))
    last = tuple(Row(i, length - 1, 1) for i in range(3))
    steps = [Step(seqs, rows, room=room) for room in (0, 2, 5) for rows in (chunk, last)]
    x = t.stored(t.rng("x").normal(32, 64))
    weight = t.stored(1 + 0.1 * t.rng("weight").normal(64))
    for attends in (False, True):
        brought = []
        for nothing in (np.nan, 1.0):
            table = x.copy()
            table[0] = nothing
            p = Probe(t, "padding")
            y = p.rows("x", table)
            p.weight("norm.weight", weight)
            y = p.build.rms_norm(y, "norm", eps=1e-6)
            layers = 1
            if attends:
                y = p.build.attention(y, y, y, layer=0, heads=1, kv_heads=1, head_dim=64, scale=0.125)
                block = np.full((2, layers, t.block_size, 1, 64), nothing, np.float32)
                script: list[Action] = [WriteBlock(0, block), *steps]
            else:
                script = list(steps)
            results = t.play(p.read(y), script).results
            brought.append([r for r in results if r is not None])
        for i, (poisoned, plain) in enumerate(zip(*brought, strict=True)):
            name = f"{'attention' if attends else 'norm'}, {'decodes' if i % 2 else 'chunks'}, room={(0, 2, 5)[i // 2]}"
            yield measure.bitwise(name, poisoned, plain)


@check(
    "gph.replay_1000", level="G", module="GPH", since="1.0", requires=("op:embed", "op:linear", "op:take_rows"),
    grade="mandatory", rules=("X0", "C"), kills=("M43.early", "M44"), cost=1.5,
    spec="""A program that is run a thousand times MUST bring each time what belongs to the values it is given, which
    lie where those of the time before lay, and are overwritten once it was submitted.""",
)  # fmt: skip
def replay_1000(t: Target) -> Iterator[Verdict]:
    table = np.eye(engines.VOCAB, dtype=np.float32)
    p = Probe(t, "replay")
    model = p.read(p.rows("x", table))
    tokens = t.rng("tokens").integers(0, engines.VOCAB, 1000, 4)
    script = [Step((Seq(tuple(row)),), (Row(0, 0, 4),)) for row in tokens.tolist()]
    played = t.play(model, script)
    for part in range(0, 1000, 250):
        found = [best(logits) for logits in played.results[part : part + 250]]
        yield measure.integers(f"times {part} to {part + 249}", found, tokens[part : part + 250])
    yield measure.within("arrays written to", len(played.changed), 0, 0, note=", ".join(played.changed))


@check(
    "gph.no_capture_of_host_values", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0",), kills=("M34",), cost=0.5,
    spec="""Lengths, positions, slots and tables MUST be those of the step that is run, not of one for which the program
    was made or run before: contexts that grow and shrink, in the same shape, over tables that change.""",
)  # fmt: skip
def no_capture_of_host_values(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (2 * size, 2 * size)
    tables = blocks_for(lengths, size, t.rng("order").permutation(4))
    seqs = tuple(Seq(prompt(t, f"{i}", n), (table,)) for i, (n, table) in enumerate(zip(lengths, tables, strict=True)))
    fill = [Step(seqs, (Row(i, 0, lengths[i]),)) for i in range(2)]
    at = size + 1 + t.rng("at").integers(0, size - 1, 80)  # all of two blocks: one shape
    decodes = [Step(seqs, (Row(i % 2, int(p), 1),)) for i, p in enumerate(at)]
    results = t.play(copy_model(t, DISTANCE), [*fill, *decodes]).results[2:]
    expected = [seqs[i % 2].tokens[int(p) - DISTANCE] for i, p in enumerate(at)]
    yield measure.integers("one row", [best(logits)[0] for logits in results], expected)
    both = [Step(seqs, (Row(0, int(p), 1), Row(1, int(q), 1))) for p, q in zip(at, at[::-1], strict=True)]
    results = t.play(copy_model(t, DISTANCE), [*fill, *both]).results[2:]
    expected_pairs = [
        [seqs[0].tokens[int(p) - DISTANCE], seqs[1].tokens[int(q) - DISTANCE]]
        for p, q in zip(at, at[::-1], strict=True)
    ]
    yield measure.integers("two rows", [best(logits) for logits in results], expected_pairs)


@check(
    "gph.pointer_stability", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory", rules=("X0",),
    kills=("M34.pool",), cost=0.5,
    spec="""Blocks that are written between runs MUST be seen by the next run of a program that ran before.""",
)  # fmt: skip
def pointer_stability(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    rng = t.rng("bits")
    blocks = rng.integers(0, 2, 60, size)
    blocks[:, : size // 2] = blocks[:, size // 2 :] ^ 1  # balanced, but for what the next line moves
    blocks[:, 0] = rng.integers(0, 2, 60)
    script: list[Action] = []
    expected = []
    for bits in blocks:
        data = np.zeros((2, 1, size, 1, 64), np.float32)
        data[0, 0, :, 0, 0] = 1
        data[1, 0, :, 0, 0], data[1, 0, :, 0, 1] = 1 - 2 * bits, 1
        tokens = (*bits.tolist(), 1)
        script += [WriteBlock(1, data), Step((Seq(tokens, ((1, 2),)),), (Row(0, size, 1),))]
        expected += constructed.balanced(tokens, 1)
    results = t.play(constructed.balance_model(t), script).results[1::2]
    yield measure.integers("what is written", [best(logits)[0] for logits in results], expected)


@check(
    "gph.capture_memory", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory", rules=("C",),
    cost=2.0,
    spec="""What steps need MUST be allocated when the device has compiled: memory in use MUST not grow while it
    serves.""",
)  # fmt: skip
def capture_memory(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (size + 5, 3 * size, 40)
    seqs = tuple(
        Seq(prompt(t, str(n), n), (table,)) for n, table in zip(lengths, blocks_for(lengths, size), strict=True)
    )
    fill = [Step(seqs, (Row(i, 0, n),), last=True) for i, n in enumerate(lengths)]
    some = [Step(seqs, tuple(Row(i, lengths[i] - 1, 1) for i in rows)) for rows in ((0,), (0, 1), (0, 1, 2), (2,))]
    with t.fresh() as fresh:  # a process in which no other check has left room
        taken = fresh.play(copy_model(t, DISTANCE), (fill + some) * 60).taken
    half = len(taken) // 2
    growth = max(taken[half:]) - max(taken[:half])
    yield measure.within("growth", growth, -(1 << 40), 4 << 20, note=f"of {taken[half]} bytes, over {half} steps")


@check(
    "gph.bucket_interleave", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory", rules=("X0",),
    kills=("M34.switch",), cost=1.0,
    spec="""Steps of different shapes MUST bring the same one shape after another and in any mixed order.""",
)  # fmt: skip
def bucket_interleave(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (size + 6, 2 * size + 9, 3 * size, 17, 33)
    seqs = tuple(
        Seq(prompt(t, str(n), n), (table,)) for n, table in zip(lengths, blocks_for(lengths, size), strict=True)
    )
    fill = [Step(seqs, (Row(i, 0, n),)) for i, n in enumerate(lengths)]
    kinds = [Step(seqs, (Row(i, lengths[i] - n, n),)) for i in range(5) for n in (1, 3, 11)]
    kinds += [Step(seqs, tuple(Row(i, lengths[i] - 1, 1) for i in range(n))) for n in (2, 3, 5)]
    model = copy_model(t, DISTANCE)
    for name, order in (
        ("one shape after another", np.repeat(np.arange(len(kinds)), 4)),
        ("mixed", t.rng("order").permutation(4 * len(kinds)) % len(kinds)),
    ):
        results = t.play(model, [*fill, *(kinds[i] for i in order)]).results[len(fill) :]
        found = [token for logits in results for token in best(logits)]
        expected = [
            seqs[row.sequence].tokens[row.start + i - DISTANCE]
            for k in order
            for row in kinds[k].rows
            for i in range(row.count)
        ]
        yield measure.integers(name, found, expected)


@check(
    "gph.recompile_bound", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory", rules=("C", "X0"),
    kills=("M34.lazy",), cost=1.0,
    spec="""Nothing MUST be compiled or packed once an engine is ready, whatever requests come; and every shape of the
    plan MUST be compiled before.""",
)  # fmt: skip
def recompile_bound(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    lengths = (DISTANCE + 1, size - 1, size, size + 1, 2 * size + 5, 3 * size, 7, 64)
    requests = [Request(f"r{i}", prompt(t, str(n), n), 3 + 5 * i % 17, at=3 * i % 11) for i, n in enumerate(lengths)]
    model, context = copy_model(t, DISTANCE), 5 * size
    traced = engines.trace(t, model, requests, blocks=BLOCKS, context=context)
    yield measure.within("compiled or packed while serving", traced.late, 0, 0)
    found = [token for r in requests for token in traced.tokens[r.id]]
    yield measure.integers(
        "tokens", found, [token for r in requests for token in copied(r.prompt, DISTANCE, r.max_tokens)]
    )
    shapes = len(np.unique(traced.shapes, axis=0))
    yield measure.within("shapes of steps", shapes, 5, len(traced.shapes))


def _compiled(t: Target, graph: Graph, model: Model, bucket: Bucket) -> CandidateRaised | None:
    """What a device raises that is to load and compile a graph which `negotiate` was not asked about."""
    heads, dim = (graph.kv[0].kv_heads, graph.kv[0].head_dim) if graph.kv else (0, 0)
    layout = KVLayout(t.block_size, graph.kv_slots, heads, dim, t.kv_dtype)
    try:
        t.act(
            "compile", graph=to_json(graph), weights={n: values.weight_out(w) for n, w in model.weights.items()},
            bucket=list(bucket), layout=values.layout_out(layout),
        )  # fmt: skip
    except CandidateRaised as error:
        return error
    return None


@check(
    "gph.lower_unsupported_op", level="G", module="GPH", since="1.0",
    requires=("op:embed", "op:linear", "op:take_rows"), grade="mandatory", rules=("E", "R"), kills=("M49.lower",),
    cost=0.5,
    spec="""A graph with an op that there is not MUST be refused by load or compile with an UnsupportedFeature that
    names it. One with an op or a feature of attention that the platform does not declare, which core never gives it,
    MUST be refused likewise, or run right; never as something else.""",
)  # fmt: skip
def lower_unsupported_op(t: Target) -> Iterator[Verdict]:
    x = t.stored(t.rng("x").normal(32, 64))
    p = Probe(t, "unknown")
    model = p.read(p.build.activation(p.rows("x", x), "relu"))
    unknown = json.loads(to_json(model.graph).replace('"activation"', '"no_such_op"'))
    yield _refused("no_such_op", _ran(t, replace(model, graph=from_json(json.dumps(unknown))), 32))
    for op, (build, exact) in _ELEMENTWISE.items():
        if op not in t.capabilities.ops:
            own = Probe(t, op)
            ran = _ran(t, own.read(build(own, own.rows("x", x))), 32)
            if isinstance(ran, CandidateRaised):
                yield _refused(op, ran)
            else:
                yield measure.budget(op, ran, exact(x), lowp.elementwise(exact(x), t.dtype), t.dtype)
    for feature, options in _FEATURES.items():
        if feature not in t.capabilities.attention:
            case = attention.randn(t, t.rng(feature), Attention(2, 1, 64, 0.125, **options), (40,))
            ran = _ran(t, attention.model(t, case), 40)
            if isinstance(ran, CandidateRaised):
                yield replace(_refused(feature, ran), case=f"attention: {feature}")
            else:
                yield attention.judged(f"attention: {feature}", t, case, ran)


_ELEMENTWISE: Mapping[str, tuple[Callable[[Probe, Value], Value], Callable[[F32], F64]]] = {
    "activation": (lambda p, x: p.build.activation(x, "relu"), lambda x: oracle64.activation(x, "relu")),
    "softcap": (lambda p, x: p.build.softcap(x, 3.0), lambda x: oracle64.softcap(x, 3.0)),
    "mul": (lambda p, x: p.build.mul(x, x), lambda x: oracle64.mul(x, x)),
    "scale": (lambda p, x: p.build.scale(x, 3.0), lambda x: oracle64.scale(x, 3.0)),
}
_FEATURES: Mapping[str, dict[str, Any]] = {
    "bidirectional": {"causal": False}, "window": {"window": 5}, "softcap": {"softcap": 3.0},
}  # fmt: skip


def _ran(t: Target, model: Model, length: int) -> F32 | CandidateRaised:
    """What the platform makes of a model that it was not asked about, or what it raises."""
    plan = t.plan(copy_model(t, DISTANCE), context=length, block_size=t.block_size, kv_dtype=t.kv_dtype)
    tables = tuple(blocks_for([length], t.block_size)) if model.groups else ()
    step = Step((Seq(tuple(range(length)), tables),), (Row(0, 0, length),))
    try:
        return np.asarray(t.play(model, [step], plan=plan).results[0])
    except CandidateRaised as error:
        return error


def _refused(name: str, ran: F32 | CandidateRaised) -> Verdict:
    """Rule E: by load or compile, before anything runs."""
    early = isinstance(ran, CandidateRaised) and ran.stage in ("load", "compile")
    return refusal.typed(name, ran if isinstance(ran, CandidateRaised) and early else None, "UnsupportedFeature", name)


@check(
    "gph.dynamic_dim_refuse", level="G", module="GPH", since="1.0", requires=DECODER, grade="mandatory",
    rules=("E", "X0"), kills=("M49.open",), cost=0.5,
    spec="""A platform that lists shapes MUST refuse to compile one that leaves a size open, with an UnsupportedFeature;
    a platform that lists none MUST run every size.""",
)  # fmt: skip
def dynamic_dim_refuse(t: Target) -> Iterator[Verdict]:
    model = copy_model(t, DISTANCE)
    plan = t.plan(model, context=3 * t.block_size, block_size=t.block_size)
    buckets = plan.limits.buckets.buckets()
    for field in Bucket._fields:
        listed = {getattr(bucket, field) for bucket in buckets} - {None}
        if listed:
            bucket = replace_size(buckets[0], field)
            yield refusal.typed(field, _compiled(t, model.graph, model, bucket), "UnsupportedFeature")
    if not plan.limits.buckets.static:
        for length in (DISTANCE + 1, 7, 13, t.block_size + 1, 2 * t.block_size + 3):
            tokens = prompt(t, str(length), length)
            seq = Seq(tokens, (blocks_for([length], t.block_size)[0],))
            (logits,) = t.play(model, [Step((seq,), (Row(0, 0, length),))]).results
            yield measure.integers(f"{length} tokens", best(logits)[DISTANCE:], back(tokens, range(DISTANCE, length)))


def replace_size(bucket: Bucket, field: str) -> Bucket:
    """The bucket with one size left open."""
    return bucket._replace(**{field: None})
