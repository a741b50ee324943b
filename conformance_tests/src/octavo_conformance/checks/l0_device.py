"""L0 · DEV: what a platform says of itself, and its memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance import capability, refusal
from octavo_conformance.check import check
from octavo_conformance.judge import measure
from octavo_conformance.probe import Probe
from octavo_conformance.steps import every_row
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict


@check(
    "dev.manifest_truth", level="L0", module="DEV", since="1.0", rules=("C", "E"), cost=0.5,
    spec="""A platform MUST declare the floor (the ops of a decoder, a plain weight format, a block size), MUST plan for
    what it declares, at both ends of every list, and MUST refuse what it does not declare with an answer that names
    it.""",
)  # fmt: skip
def manifest_truth(t: Target) -> Iterator[Verdict]:
    can = t.capabilities
    floor = {"embed", "linear", "rms_norm", "rope", "attention", "gated_activation", "add", "take_rows"}
    yield measure.holds("floor", floor <= can.ops, f"ops lacking of a decoder: {sorted(floor - can.ops) or 'none'}")
    ends = [f"dtype:{d}" for d in can.dtypes] + [f"kv:{d}" for d in can.kv_dtypes]
    ends += [f"block_size:{s}" for s in {min(can.block_sizes), max(can.block_sizes)}]
    ends += [f"head_dim:{s}" for s in ({min(can.head_dims), max(can.head_dims)} if can.head_dims else ())]
    for token in ends:
        answer = t.negotiate(refusal.asking_for(t, token))
        yield measure.holds(token, type(answer).__name__ == "Plan", f"declared: {answer}"[:200])
    beyond = [f"block_size:{max(can.block_sizes) + 1}", "op:no_such_op", "format:no_such_format"]
    beyond += [f"head_dim:{max(can.head_dims) + 1}"] if can.head_dims else []
    beyond += [f"ranks:{can.ranks + 1}"]
    for token in beyond:
        assert not capability.declares(can, token)
        yield refusal.refused(token, t.negotiate(refusal.asking_for(t, token)), capability.split(token)[1])


@check(
    "dev.memory_sane", level="L0", module="DEV", since="1.0", rules=("C",), cost=0.5,
    spec="""memory() MUST report 0 < free <= total before load, after compile and after allocate_kv, the same total each
    time, and a second life of the device MUST find the memory of the first given back.""",
)  # fmt: skip
def memory_sane(t: Target) -> Iterator[Verdict]:
    p = Probe(t, "memory")
    model = p.read(p.rows("x", t.stored(t.rng("x").normal(32, 64))))
    lives = [t.play(model, [every_row(32)]).memory for _ in range(3)]
    for life, reports in enumerate(lives):
        for stage, (total, free) in zip(("before load", "after compile", "after allocate_kv"), reports, strict=True):
            yield measure.within(f"life {life} {stage}", free, 1, total)
    totals = {total for reports in lives for total, _ in reports}
    yield measure.within("totals", len(totals), 1, 1, note=f"totals seen: {sorted(totals)}")


@check(
    "dev.inputs_untouched", level="L0", module="DEV", since="1.0", rules=("C", "B0"), cost=0.5,
    spec="""submit MUST not write to the arrays of a step, and a result MUST depend on the values it is given: the same
    step run again with other values gives other results, with the same values the same bits.""",
)  # fmt: skip
def inputs_untouched(t: Target) -> Iterator[Verdict]:
    p = Probe(t, "inputs")
    x = t.stored(t.rng("x").normal(32, 64))
    one, two = every_row(32), every_row(16)
    played = t.play(p.read(p.rows("x", x)), [one, two, one])
    yield measure.within("arrays written to", len(played.changed), 0, 0, note=", ".join(played.changed))
    first, second, again = played.results
    yield measure.bitwise("first", np.asarray(first), x)
    yield measure.bitwise("fewer rows", np.asarray(second), x[:16])
    yield measure.bitwise("again", np.asarray(again), x)
