"""L1 · OPS: norms, activations, linear maps, rope, embedding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance.harness.probe import Probe
from octavo_conformance.harness.steps import every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import lowp, measure, oracle64
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


@check(
    "norm.rms", level="L1", module="OPS", since="1.0", requires=("op:rms_norm",), grade="mandatory", rules=("R",),
    kills=("M19.eps", "M46.zeros"), cost=1.0,
    spec="""rms_norm MUST divide each run of elements by the root of its mean square plus eps, eps inside the root, and
    multiply by offset + weight; sums MUST be of float32 precision or better.""",
)  # fmt: skip
def rms(t: Target) -> Iterator[Verdict]:
    for name, width, run, size, eps, offset in (
        ("wide", 512, 512, 1.0, 1e-6, 0.0),
        ("heads", 256, 64, 1.0, 1e-6, 0.0),
        ("tiny inputs", 512, 512, 1e-3, 1e-5, 0.0),
        ("offset", 512, 512, 1.0, 1e-5, 1.0),
        ("16384 wide", 16384, 16384, 1.0, 1e-6, 0.0),
    ):
        rng, rows = t.rng(name), 64 if width <= 512 else 4
        x, weight = t.stored(rng.outliers(rows, width) * size), t.stored(rng.normal(run))
        p = Probe(t, "norm")
        p.weight("norm.weight", weight)
        y = p.build.rms_norm(p.rows("x", x), "norm", eps=eps, offset=offset, width=run if run < width else None)
        picked = np.arange(0, width, max(1, width // 512))  # an output matrix for all would be a gigabyte
        (out,) = t.play(p.read(y, picked), [every_row(rows)]).results
        (exact,), (own,) = (
            oracle64.rms_norm(x, weight, eps, offset), lowp.rms_norm(x, weight, eps, offset, dtype=t.dtype)
        )  # fmt: skip
        wrong = {"no eps": oracle64.rms_norm(x, weight, 0.0, offset)[0][:, picked]} if size < 1 else {}
        yield measure.budget(name, out, exact[:, picked], own[:, picked], t.dtype, plants=wrong)


@check(
    "act.gated", level="L1", module="OPS", since="1.0", requires=("op:gated_activation",), grade="mandatory",
    rules=("R",), kills=("M46.zeros",), cost=1.0,
    spec="""gated_activation MUST be the activation of its first input times its second, for every kind: silu, gelu
    (exact), gelu_tanh, relu.""",
)  # fmt: skip
def gated(t: Target) -> Iterator[Verdict]:
    for kind in oracle64.ACTIVATIONS:
        yield _gated(t, kind, kind, t.rng(kind).normal(64, 256) * 3)
    # The two forms of gelu part on the left, where 16 bits can tell them apart.
    for kind in ("gelu", "gelu_tanh"):
        yield _gated(t, f"{kind} on the left", kind, t.rng(kind, "left").uniform(64, 256, low=-4.0, high=-2.5))


def _gated(t: Target, name: str, kind: str, gates: np.ndarray) -> Verdict:
    gate, up = t.stored(gates), t.stored(t.rng(name, "up").normal(64, 256))
    p = Probe(t, "gated")
    model = p.read(p.build.gated_activation(p.rows("gate", gate), p.rows("up", up), kind))
    (out,) = t.play(model, [every_row(64)]).results
    everywhere = name == kind
    wrong = {
        f"{other} instead": oracle64.gated_activation(gate, up, other)
        for other in oracle64.ACTIVATIONS
        if other != kind and not (everywhere and {kind, other} == {"gelu", "gelu_tanh"})
    }
    wrong["swapped"] = oracle64.gated_activation(up, gate, kind)
    exact = oracle64.gated_activation(gate, up, kind)
    return measure.budget(name, out, exact, lowp.gated_activation(gate, up, kind, dtype=t.dtype), t.dtype, plants=wrong)


@check(
    "lin.gemm", level="L1", module="OPS", since="1.0", requires=("op:linear",), grade="mandatory", rules=("R",),
    kills=("M46.zeros",), cost=3.0,
    spec="""linear MUST multiply its input by the transposed weight, for any number of rows, inputs and outputs, with
    sums of float32 precision or better.""",
)  # fmt: skip
def gemm(t: Target) -> Iterator[Verdict]:
    stored_as = t.linear_input(t.plain_format)
    for rows in (1, 2, 7, 16, 33, 127, 300):
        for inputs, outputs in ((256, 96), (80, 37), (19, 61)):
            name = f"{rows}x{inputs}x{outputs}"
            rng = t.rng(name)
            x = t.stored(rng.outliers(rows, inputs))
            weight = t.stored(rng.normal(outputs, inputs) / np.sqrt(inputs))
            p = Probe(t, "linear")
            model = p.logits(p.build.take_rows(p.rows("x", x)), weight)
            (out,) = t.play(model, [every_row(rows)]).results
            (exact,) = oracle64.linear(x, [weight])
            (own,) = lowp.linear(x, [weight], dtype=t.dtype, stored_as=stored_as)
            dropped = oracle64.linear(x[:, :-8], [weight[:, :-8]])[0]
            yield measure.budget(name, out, exact, own, t.dtype, plants={"eight inputs dropped": dropped})
