"""L1 · SMP: tokens from logits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.platform import SamplingBatch
from octavo_conformance.check import check
from octavo_conformance.judge import measure
from octavo_conformance.probe import Probe
from octavo_conformance.steps import Row, Seq, Step
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict


@check(
    "smp.greedy_argmax", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M46.zeros",), cost=0.5,
    spec="""At temperature 0 the token MUST be the one of the largest logit, the smallest id among equals; a row with a
    NaN MUST be reported as failed.""",
)  # fmt: skip
def greedy_argmax(t: Target) -> Iterator[Verdict]:
    rng = t.rng("logits")
    rows = 40
    logits = t.stored(rng.normal(rows, 64))
    top = rng.integers(1, 64, rows)
    logits[np.arange(rows), top] = 8
    logits[1::2, 60] = np.where(top[1::2] < 60, 8, logits[1::2, 60])  # an equal that comes later
    expected = logits.argmax(1)
    p = Probe(t, "greedy")
    model = p.read(p.rows("x", logits))
    steps = [_four(range(at, at + 4)) for at in range(0, rows, 4)]
    results = t.play(model, steps).results
    found = np.concatenate([samples.tokens for samples in results])
    failed = np.concatenate([samples.failed for samples in results])
    last = 63 - logits[:, ::-1].argmax(1)
    wrong = {"largest id of equals": last} if (last != expected).any() else {}
    yield measure.integers("tokens", found, expected, plants=wrong)
    yield measure.integers("failed", failed, np.zeros(rows))


def _four(tokens: range) -> Step:
    """Four sequences of one token each, sampled greedily."""
    sequences = tuple(Seq((token,)) for token in tokens)
    return Step(sequences, tuple(Row(i, 0, 1) for i in range(4)), sampling=SamplingBatch.plain(4, greedy=True))
