"""L1 · OPS: rotary position embedding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from octavo.graph import RopeSpec
from octavo.graph.rope import FrequencyFactors, LinearScaling, Llama3Scaling, Scaling
from octavo_conformance.harness.probe import Probe
from octavo_conformance.harness.steps import every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, lowp, measure, oracle64
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


@check(
    "rope.neox", level="L1", module="OPS", since="1.0", requires=("op:rope",), grade="mandatory", rules=("R", "B0"),
    kills=("M18.pairs", "M18.positions"), cost=1.0,
    spec="""rope MUST turn pair i (elements i and i + rotary_dim / 2 of a head) by position times its frequency, with
    angles good to float32 up to position 2^20, and MUST leave position 0 as it is.""",
)  # fmt: skip
def rope_neox(t: Target) -> Iterator[Verdict]:
    rng = t.rng("positions")
    positions = np.concatenate([[0, 1, 2, 4095, 65536, 2**20 - 1], rng.integers(0, 2**17, 58)])
    q, k = t.stored(rng.normal(64, 256)), t.stored(rng.normal(64, 128))
    for which, (name, x) in enumerate((("q", q), ("k", k))):
        p = Probe(t, "rope")
        turned = p.build.rope(p.rows("q", q), p.rows("k", k), RopeSpec(64, theta=500000.0))
        (out,) = t.play(p.read(turned[which]), [every_row(64, positions)]).results
        exact = oracle64.rope(x, positions, 64, 500000.0)
        own = lowp.rope(x, positions, 64, 500000.0, dtype=t.dtype)
        wrong = {
            "interleaved": oracle64.rope(x, positions, 64, 500000.0, interleaved=True),
            "one position on": oracle64.rope(x, positions + 1, 64, 500000.0),
        }
        yield measure.budget(name, out, exact, own, t.dtype, plants=wrong)
        yield measure.bitwise(f"{name} at position 0", out[0], x[0])


def turned(t: Target, name: str, positions: np.ndarray, spec: RopeSpec, **options: Any) -> Verdict:
    """Two heads of q turned as ``spec`` says, against the oracle's ``options`` and the wrong ones of ``plants``."""
    rng = t.rng(name, "values")
    count, width = len(positions), 2 * spec.head_dim
    plants = options.pop("plants")
    q, k = t.stored(rng.normal(count, width)), t.stored(rng.normal(count, spec.head_dim))
    p = Probe(t, "rope")
    (out, _) = p.build.rope(p.rows("q", q), p.rows("k", k), spec)
    (found,) = t.play(p.read(out), [every_row(count, positions)]).results
    exact = oracle64.rope(q, positions, spec.head_dim, spec.theta, **options)
    own = lowp.rope(q, positions, spec.head_dim, spec.theta, dtype=t.dtype, **options)
    wrong = {plant: oracle64.rope(q, positions, spec.head_dim, spec.theta, **other) for plant, other in plants.items()}
    return measure.budget(name, found, exact, own, t.dtype, plants=wrong)


def _positions(t: Target, name: str) -> np.ndarray:
    return np.concatenate([[0, 1, 8191, 2**20 - 1], t.rng(name).integers(0, 2**17, 44)])


@check(
    "rope.gptj_interleaved", level="L1", module="OPS", since="1.0", requires=("op:rope",), rules=("R",),
    kills=("M18.pairs", "M18.positions"), cost=0.5,
    spec="""Interleaved rope MUST turn pair i as the elements 2i and 2i + 1 of a head.""",
)  # fmt: skip
def interleaved(t: Target) -> Iterator[Verdict]:
    spec = RopeSpec(64, theta=10000.0, interleaved=True)
    yield turned(t, "all of 64", _positions(t, "all"), spec, interleaved=True, plants={"halves": {}})
    part = RopeSpec(64, theta=10000.0, interleaved=True, rotary_dim=32)
    options = {"interleaved": True, "rotary_dim": 32}
    yield turned(t, "32 of 64", _positions(t, "part"), part, **options, plants={"halves": {"rotary_dim": 32}})


@check(
    "rope.partial_dim", level="L1", module="OPS", since="1.0", requires=("op:rope",), rules=("R",),
    kills=("M18.pairs", "M18.positions"), cost=0.5,
    spec="""Where rotary_dim is less than head_dim, the first rotary_dim elements of a head MUST turn, with the
    frequencies of a head of that size, and the others MUST stay as they are.""",
)  # fmt: skip
def partial(t: Target) -> Iterator[Verdict]:
    for head, part in ((64, 16), (64, 48), (128, 32)):
        spec = RopeSpec(head, theta=10000.0, rotary_dim=part)
        name = f"{part} of {head}"
        plants: dict[str, dict[str, Any]] = {"all of it": {}, "interleaved": {"rotary_dim": part, "interleaved": True}}
        yield turned(t, name, _positions(t, name), spec, rotary_dim=part, plants=plants)


@check(
    "rope.scaled", level="L1", module="OPS", since="1.0", requires=("op:rope",), rules=("R",),
    kills=("M18.scaling", "M18.positions"), cost=0.5,
    spec="""Scaled rope MUST divide every frequency as its kind says: linear by the factor, llama3 low ones by the
    factor and those between by a mixture, and by stored factors each by its own.""",
)  # fmt: skip
def scaled(t: Target) -> Iterator[Verdict]:
    factors = tuple(np.linspace(1.0, 40.0, 32).tolist())
    kinds: dict[str, tuple[Scaling, dict[str, Any]]] = {
        "linear": (LinearScaling(8.0), {"factor": 8.0}),
        "llama3": (
            Llama3Scaling(32.0, 1.0, 4.0, 8192),
            {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 8192},
        ),
        "factors": (FrequencyFactors(factors), {"factors": factors}),
    }
    for kind, (scaling, fields) in kinds.items():
        options: dict[str, Any] = {"scaling": {"kind": kind, **fields}}
        plants: dict[str, dict[str, Any]] = {"not scaled": {}}
        if kind == "llama3":
            plants["all divided"] = {"scaling": {"kind": "linear", "factor": 32.0}}
        spec = RopeSpec(64, theta=500000.0, scaling=scaling)
        yield turned(t, kind, _positions(t, kind), spec, **options, plants=plants)


@check(
    "rope.offset_gather", level="L1", module="OPS", since="1.0", requires=("op:rope",), grade="mandatory",
    rules=("R", "B0", "C"), kills=("M18.positions",), cost=0.5,
    spec="""Every token MUST be turned by its own position, whatever the order of the positions and however often one
    comes; equal tokens at equal positions MUST give equal bits, and a turn MUST keep a vector's length.""",
)  # fmt: skip
def offset_gather(t: Target) -> Iterator[Verdict]:
    rng = t.rng("positions")
    chosen = rng.integers(0, 50000, 16)
    positions = chosen[rng.integers(0, 16, 64)]
    rows = t.stored(np.repeat(rng.normal(1, 128), 64, axis=0))
    p = Probe(t, "rope")
    (q, _) = p.build.rope(p.rows("q", rows), p.rows("k", rows[:, :64]), RopeSpec(64, theta=10000.0))
    (out,) = t.play(p.read(q), [every_row(64, positions)]).results
    exact = oracle64.rope(rows, positions, 64)
    own = lowp.rope(rows, positions, 64, dtype=t.dtype)
    wrong = {"in order": oracle64.rope(rows, np.sort(positions), 64)}
    yield measure.budget("own position", out, exact, own, t.dtype, plants=wrong)
    first = {int(position): row for row, position in reversed(list(enumerate(positions)))}
    again = np.array([first[int(position)] for position in positions])
    yield measure.bitwise("repeated positions", out, out[again])
    lengths = (x.astype(np.float64).reshape(64, 2, 64) for x in (rows, out))
    before, after = (np.sqrt((x**2).sum(-1)) for x in lengths)
    unit = floats.UNIT[t.dtype]
    yield measure.within("lengths", float(np.abs(after / before - 1).max()), 0.0, 8 * unit)
