"""L1 · OPS: fused norms, elementwise ops over all their numbers, biases, tables, vocabularies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.platform import SamplingBatch
from octavo_conformance.harness.probe import Probe
from octavo_conformance.harness.steps import Row, Seq, Step, every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, lowp, measure, oracle64
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


@check(
    "norm.add_rms_fused", level="L1", module="OPS", since="1.0", requires=("op:rms_norm", "op:add"),
    grade="mandatory", rules=("R", "B0"), kills=("M19.eps", "M19.residual"), cost=0.5,
    spec="""A norm of a sum MUST norm the sum as it is stored, and the sum that comes out beside it MUST be the one that
    a separate add gives, to the bit.""",
)  # fmt: skip
def add_rms(t: Target) -> Iterator[Verdict]:
    rng = t.rng("wide")
    a, b, weight = t.stored(rng.outliers(40, 320)), t.stored(rng.normal(40, 320) / 8), t.stored(rng.normal(320))
    p = Probe(t, "fused")
    p.weight("norm.weight", weight)
    total = p.build.add(p.rows("a", a), p.rows("b", b))
    (normed,) = t.play(p.read(p.build.rms_norm(total, "norm", eps=1e-2)), [every_row(40)]).results
    exact, _ = oracle64.rms_norm(a, weight, 1e-2, 0.0, b)
    own, _ = lowp.rms_norm(a, weight, 1e-2, 0.0, b, dtype=t.dtype)
    wrong = {"the sum left out": oracle64.rms_norm(a, weight, 1e-2)[0]}
    yield measure.budget("normed", normed, exact, own, t.dtype, plants=wrong)
    p = Probe(t, "sum")
    p.weight("norm.weight", np.zeros(320))
    x, y = p.rows("a", a), p.rows("b", b)
    total = p.build.add(x, y)
    kept = p.build.add(p.build.rms_norm(total, "norm", eps=1e-2), total)  # 0 + the sum
    (beside,) = t.play(p.read(kept), [every_row(40)]).results
    yield measure.bitwise("the sum beside it", beside + np.float32(0), t.stored(a + b) + np.float32(0))


@check(
    "norm.gemma_plus1", level="L1", module="OPS", since="1.0", requires=("op:rms_norm",), rules=("R",),
    kills=("M19.offset",), cost=0.3,
    spec="""With an offset, rms_norm MUST multiply by offset + weight, added in float32.""",
)  # fmt: skip
def gemma(t: Target) -> Iterator[Verdict]:
    rng = t.rng("wide")
    x, weight = t.stored(rng.outliers(32, 320)), t.stored(rng.normal(320) / 100)
    p = Probe(t, "norm")
    p.weight("norm.weight", weight)
    (out,) = t.play(p.read(p.build.rms_norm(p.rows("x", x), "norm", eps=1e-6, offset=1.0)), [every_row(32)]).results
    (exact,), (own,) = oracle64.rms_norm(x, weight, 1e-6, 1.0), lowp.rms_norm(x, weight, 1e-6, 1.0, dtype=t.dtype)
    wrong = {"one alone": oracle64.rms_norm(x, weight * 0, 1e-6, 1.0)[0]}
    yield measure.budget("small weights", out, exact, own, t.dtype, plants=wrong)


@check(
    "norm.layernorm", level="L1", module="OPS", since="1.0", requires=("op:layer_norm",), rules=("R",), cost=0.5,
    spec="""layer_norm MUST subtract the mean before it takes the variance, which is over all elements, with eps inside
    the root; its bias is optional.""",
)  # fmt: skip
def layernorm(t: Target) -> Iterator[Verdict]:
    for name, bias, mean in (("with a bias", True, 0.0), ("without", False, 0.0), ("far from zero", True, 40.0)):
        rng = t.rng(name)
        x, weight, shift = t.stored(rng.normal(40, 320) + mean), t.stored(rng.normal(320)), t.stored(rng.normal(320))
        p = Probe(t, "norm")
        p.weight("norm.weight", weight)
        if bias:
            p.weight("norm.bias", shift)
        y = p.build.layer_norm(p.rows("x", x), "norm", eps=1e-5, bias=bias)
        (out,) = t.play(p.read(y), [every_row(40)]).results
        added = shift if bias else None
        exact = oracle64.layer_norm(x, weight, 1e-5, added)
        own = lowp.layer_norm(x, weight, 1e-5, added, dtype=t.dtype)
        wrong = {} if mean else {"mean kept": oracle64.rms_norm(x, weight, 1e-5)[0]}
        yield measure.budget(name, out, exact, own, t.dtype, plants=wrong)


def patterns(largest: float = np.inf) -> np.ndarray:
    """Every finite number of bf16 up to ``largest``, in order of its bits."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    every = floats.bf16_values(bits)
    normal = (np.abs(every) >= 2.0**-126) | (every == 0)
    kept: np.ndarray = every[np.isfinite(every) & normal & (np.abs(every) <= largest)]
    return kept


@check(
    "act.elementwise_exhaustive", level="L1", module="OPS", since="1.0", requires=("op:gated_activation",),
    grade="mandatory", rules=("U(8)", "U(1)", "R", "C"), kills=("M46.zeros",), cost=2.0,
    spec="""Of every number that bf16 has, each activation MUST be right: silu and relu to 8 units in the last place of
    float32 (of 16 bits to one), both forms of gelu so where nothing cancels, and within the budget elsewhere; far on
    the left they MUST be 0.""",
)  # fmt: skip
def exhaustive(t: Target) -> Iterator[Verdict]:
    x = t.stored(patterns(1e30 if t.dtype != "f16" else 6e4))
    for kind in oracle64.ACTIVATIONS:
        with np.errstate(over="ignore"):
            exact = oracle64.gated_activation(x, np.ones_like(x), kind)
        out = _gated(t, x, kind)
        # Where e^x leaves float32 nothing is left to be right about but that it is small.
        plain = (x >= (-80 if kind == "silu" else -0.5)) if kind != "relu" else x == x
        plain &= np.abs(exact) >= floats.SMALLEST[t.dtype] * 4
        plain |= x == 0
        yield measure.units(kind, out[plain], exact[plain], t.dtype, 8 if t.dtype == "f32" else 1)
        left = x < -40 if kind != "silu" else x < -80
        yield measure.within(f"{kind}, far left", float(np.abs(out[left]).max()), 0.0, 1e-30)
        if kind.startswith("gelu"):
            near = (x < -0.5) & (x > -8)
            own = lowp.gated_activation(x[near], np.ones(near.sum(), np.float32), kind, dtype=t.dtype)
            yield measure.budget(f"{kind}, left", out[near], exact[near], own, t.dtype)


def _gated(t: Target, x: np.ndarray, kind: str) -> np.ndarray:
    """The activation of each number, times 1."""
    width = 256
    rows = np.pad(x, (0, -len(x) % width)).reshape(-1, width)
    p = Probe(t, "gated")
    model = p.read(p.build.gated_activation(p.rows("gate", rows), p.rows("up", np.ones_like(rows)), kind))
    (out,) = t.play(model, [every_row(len(rows))]).results
    found: np.ndarray = out.reshape(-1)[: len(x)]
    return found


@check(
    "act.activation", level="L1", module="OPS", since="1.0", requires=("op:activation",), rules=("R",), cost=0.5,
    spec="""activation MUST be the function of its kind, for every kind.""",
)  # fmt: skip
def activation(t: Target) -> Iterator[Verdict]:
    for kind in oracle64.ACTIVATIONS:
        x = t.stored(t.rng(kind).normal(32, 128) * 3)
        p = Probe(t, "activation")
        (out,) = t.play(p.read(p.build.activation(p.rows("x", x), kind)), [every_row(32)]).results
        exact, own = oracle64.activation(x, kind), lowp.activation(x, kind, dtype=t.dtype)
        yield measure.budget(kind, out, exact, own, t.dtype)


@check(
    "act.arithmetic", level="L1", module="OPS", since="1.0", requires=("op:add", "op:mul", "op:scale"),
    rules=("U(0.51)",), kills=("M46.zeros",), cost=0.5,
    spec="""add, mul and scale MUST be rounded once.""",
)  # fmt: skip
def arithmetic(t: Target) -> Iterator[Verdict]:
    rng = t.rng("pairs")
    a, b = t.stored(rng.outliers(48, 96) * 4), t.stored(rng.normal(48, 96))
    factor = float(np.float32(0.3))
    for name, exact in (
        ("add", oracle64.add(a, b)), ("mul", oracle64.mul(a, b)), ("scale", oracle64.scale(a, factor)),
    ):  # fmt: skip
        p = Probe(t, name)
        x, y = p.rows("a", a), p.rows("b", b)
        made = p.build.scale(x, factor) if name == "scale" else getattr(p.build, name)(x, y)
        (out,) = t.play(p.read(made), [every_row(48)]).results
        yield measure.units(name, out, exact, t.dtype, 0.51)


@check(
    "act.softcap", level="L1", module="OPS", since="1.0", requires=("op:softcap",), rules=("R",), cost=0.5,
    spec="""softcap MUST be cap * tanh(x / cap), within the graph and of the logits, at saturation too.""",
)  # fmt: skip
def softcap(t: Target) -> Iterator[Verdict]:
    x = t.stored(t.rng("x").outliers(40, 96) * 10)
    for cap in (30.0, 5.0):
        exact = oracle64.softcap(x, cap)
        own = floats.rounded(np.float32(cap) * np.tanh(x / np.float32(cap)), t.dtype)
        wrong = {"not capped": x.astype(np.float64), "clipped": np.clip(x.astype(np.float64), -cap, cap)}
        p = Probe(t, "inside")
        (inside,) = t.play(p.read(p.build.softcap(p.rows("x", x), cap)), [every_row(40)]).results
        yield measure.budget(f"within, cap={cap:g}", inside, exact, own, t.dtype, plants=wrong)
        p = Probe(t, "logits")
        p.weight("head.weight", np.eye(96))
        logits = p.build.linear(p.build.take_rows(p.rows("x", x)), "head", 96)
        p.build.output("logits", p.build.softcap(logits, cap))
        (outside,) = t.play(p.model(), [every_row(40)]).results
        yield measure.budget(f"logits, cap={cap:g}", outside, exact, own, t.dtype, plants=wrong)


@check(
    "act.pool", level="L1", module="OPS", since="1.0", requires=("op:pool",), rules=("R",), cost=0.3,
    spec="""pool MUST make one vector of each row's tokens: their mean, the first or the last.""",
)  # fmt: skip
def pool(t: Target) -> Iterator[Verdict]:
    counts = (3, 1, 12, 5)
    starts = np.concatenate([[0], np.cumsum(counts)])
    x = t.stored(t.rng("x").normal(sum(counts), 64))
    sequences = tuple(Seq(tuple(range(a, b))) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True))
    rows = tuple(Row(i, 0, n) for i, n in enumerate(counts))
    for kind in ("mean", "first", "last"):
        p = Probe(t, kind)
        model = p.logits(p.build.pool(p.rows("x", x), kind), np.eye(64))
        (out,) = t.play(model, [Step(sequences, rows, last=True)]).results
        exact = oracle64.pool(x, starts, kind)
        yield measure.budget(kind, out, exact, floats.rounded(exact, t.dtype), t.dtype)


@check(
    "act.pooled_output", level="L1", module="OPS", since="1.0", requires=("op:pool",), rules=("R",), cost=0.3,
    spec="""The output `pooled` of a graph MUST come back as StepOutput.pooled, a vector for each row of the step, where
    rows are many and where one has more tokens than a step usually has.""",
)  # fmt: skip
def pooled_output(t: Target) -> Iterator[Verdict]:
    for name, counts in (("many", (9, 1, 30, 2, 2, 64, 5)), ("long", (3, 300, 7, 280, 1))):
        starts = np.concatenate([[0], np.cumsum(counts)])
        x = t.stored(t.rng(name).normal(sum(counts), 48))
        edges = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        step = Step(
            tuple(Seq(tuple(range(a, b))) for a, b in edges),
            tuple(Row(i, 0, n) for i, n in enumerate(counts)),
            last=True,
        )
        for kind in ("mean", "first", "last"):
            p = Probe(t, kind)
            p.build.output("pooled", p.build.pool(p.rows("x", x), kind))
            (out,) = t.play(p.model(), [step]).results
            exact = oracle64.pool(x, starts, kind)
            yield measure.budget(f"{kind} of {name}", out, exact, floats.rounded(exact, t.dtype), t.dtype)


@check(
    "lin.map_ids", level="L1", module="OPS", since="1.0", requires=("op:map_ids", "op:embed"), rules=("B0",), cost=0.3,
    spec="""Ids that are mapped, of tokens or of positions, MUST read the rows of the table that they are mapped to:
    divided and rounded down, the rest by a modulo, plus what is added.""",
)  # fmt: skip
def map_ids(t: Target) -> Iterator[Verdict]:
    table = t.stored(t.rng("table").normal(64, 48))
    tokens = tuple(t.rng("tokens").integers(0, 64, 40).tolist())
    for name, of_positions, how in (
        ("kinds of tokens", False, {"divide": 32}),
        ("tokens of two kinds", False, {"modulo": 32}),
        ("all of it", False, {"divide": 3, "modulo": 5, "add": 7}),
        ("positions", True, {"add": 2}),
    ):
        p = Probe(t, "mapped")
        p.weight("table.weight", table)
        ids = p.build.map_ids(p.build.positions if of_positions else p.build.tokens, **how)
        model = p.read(p.build.embed("table", vocab=64, width=48, ids=ids))
        (out,) = t.play(model, [Step((Seq(tokens),), (Row(0, 0, 40),))]).results
        mapped = oracle64.map_ids(range(40) if of_positions else tokens, **how).astype(int)
        yield measure.bitwise(name, out, table[mapped])


@check(
    "lin.bias_shapes", level="L1", module="OPS", since="1.0", requires=("op:linear",), grade="mandatory", rules=("R",),
    kills=("M46.zeros",), cost=0.5,
    spec="""Several linear maps of one input, of different sizes and with biases, MUST each be its own map plus its own
    bias.""",
)  # fmt: skip
def bias_shapes(t: Target) -> Iterator[Verdict]:
    sizes = (48, 16, 7)
    rng = t.rng("maps")
    x = t.stored(rng.outliers(9, 80))
    matrices = [t.stored(rng.normal(n, 80) / 9) for n in sizes]
    biases = [t.stored(rng.normal(n)) for n in sizes]
    exact = oracle64.linear(x, matrices, biases)
    own = lowp.linear(x, matrices, biases, dtype=t.dtype, stored_as=t.linear_input(t.plain_format))
    without = oracle64.linear(x, matrices)
    for which, size in enumerate(sizes):
        p = Probe(t, "biased")
        for name, matrix, bias in zip("abc", matrices, biases, strict=True):
            p.weight(f"{name}.weight", matrix)
            p.weight(f"{name}.bias", bias)
        made = p.build.linear_split(p.rows("x", x), list("abc"), sizes, bias=True)
        (out,) = t.play(p.read(made[which]), [every_row(9)]).results
        yield measure.budget(f"{size} outputs", out, exact[which], own[which], t.dtype,
                             plants={"no bias": without[which]})  # fmt: skip


@check(
    "lin.bias_on_logits", level="L1", module="OPS", since="1.0", requires=("op:linear",), rules=("R",), cost=0.3,
    spec="""The output matrix MUST take a bias as any other.""",
)  # fmt: skip
def bias_on_logits(t: Target) -> Iterator[Verdict]:
    rng = t.rng("head")
    x, head, bias = t.stored(rng.normal(9, 64)), t.stored(rng.normal(50, 64) / 8), t.stored(rng.normal(50))
    p = Probe(t, "biased")
    p.weight("head.weight", head)
    p.weight("head.bias", bias)
    p.build.output("logits", p.build.linear(p.build.take_rows(p.rows("x", x)), "head", 50, bias=True))
    (out,) = t.play(p.model(), [every_row(9)]).results
    (exact,) = oracle64.linear(x, [head], [bias])
    (own,) = lowp.linear(x, [head], [bias], dtype=t.dtype, stored_as=t.linear_input(t.plain_format))
    yield measure.budget("biased", out, exact, own, t.dtype, plants={"no bias": oracle64.linear(x, [head])[0]})


@check(
    "lin.tied_embedding", level="L1", module="OPS", since="1.0", requires=("op:linear", "op:embed"), grade="mandatory",
    rules=("R", "B0"), kills=("M46.zeros",), cost=0.3,
    spec="""A table MUST serve as embedding and as output matrix at once; embedding MUST bring its rows to the bit, in
    any order and as often as asked.""",
)  # fmt: skip
def tied(t: Target) -> Iterator[Verdict]:
    rng = t.rng("table")
    table = t.stored(rng.normal(57, 48))
    tokens = tuple(rng.integers(0, 57, 70).tolist())
    p = Probe(t, "tied")
    x = p.rows("tied", table)
    p.build.output("logits", p.build.linear(p.build.take_rows(x), "tied", 57))
    step = Step((Seq(tokens),), (Row(0, 0, 70),))
    (out,) = t.play(p.model(), [step]).results
    rows = oracle64.embed(tokens, table)
    stored_as = t.linear_input(t.plain_format)
    (exact,), (own,) = oracle64.linear(rows, [table]), lowp.linear(rows, [table], dtype=t.dtype, stored_as=stored_as)
    yield measure.budget("products", out, exact, own, t.dtype)
    p = Probe(t, "table")
    (found,) = t.play(p.read(p.rows("x", table)), [step]).results
    yield measure.bitwise("rows", found, table[list(tokens)])


@check(
    "lin.vocab_pad", level="L1", module="OPS", since="1.0", requires=("op:linear",), grade="mandatory", rules=("X0",),
    kills=("M31",), cost=0.5,
    spec="""Logits MUST be those of the vocabulary and no more: where a device pads its output matrix, no token beyond
    may ever win, though all logits are below zero.""",
)  # fmt: skip
def vocab_pad(t: Target) -> Iterator[Verdict]:
    for vocab in (37, 65, 1000, 1025):
        rng = t.rng(str(vocab))
        best = rng.integers(0, vocab, 8)
        best[0] = vocab - 1
        logits = t.stored(-10 - np.abs(rng.normal(8, vocab)))
        logits[np.arange(8), best] = -5
        p = Probe(t, "vocabulary")
        model = p.logits(p.build.take_rows(p.rows("x", np.eye(8))), logits.T)
        steps = [_greedy(range(at, at + 4)) for at in (0, 4)]
        whole = t.play(model, [every_row(8), *steps]).results
        yield measure.integers(f"{vocab}: width", [whole[0].shape[1]], [vocab])
        yield measure.integers(f"{vocab}: tokens", np.concatenate([s.tokens for s in whole[1:]]), best)


def _greedy(tokens: range) -> Step:
    sequences = tuple(Seq((token,)) for token in tokens)
    rows = tuple(Row(i, 0, 1) for i in range(len(tokens)))
    return Step(sequences, rows, sampling=SamplingBatch.plain(len(tokens), greedy=True))
