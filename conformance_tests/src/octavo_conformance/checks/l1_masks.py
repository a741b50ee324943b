"""L1 · SMP: masks, which let a draw choose among some tokens only.

A platform that declares no masks gets biases of -inf in their place, as the engine gives them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from octavo_conformance.checks.l1_sampling import ROWS, drawn, exactly, one, seeded, usual
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, measure, sampling
from octavo_conformance.judge.sampling import Draw
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

VOCAB = 77
"""Two whole words of a mask and a part of a third."""
SETS = (
    (0,), (31, 32), (76,), (3, 35, 67), tuple(range(64, 77)), tuple(range(32)), tuple(range(0, 77, 2)), None,
)  # fmt: skip
"""Of tokens: single ones, both sides of a word's edge, the last; whole words; every other; and no mask."""


def masked(t: Target, name: str, count: int, **settings: Any) -> list[Draw]:
    """`seeded`, with the sets in turn: draws of one row have different ones, and some have none."""
    return [
        replace(d, allowed=SETS[(i + i // ROWS) % len(SETS)]) for i, d in enumerate(seeded(t, name, count, **settings))
    ]


@check(
    "smp.token_mask", level="L1", module="SMP", since="1.0", rules=("X0",),
    kills=("M29.mask", "M29.mask_late", "M29.mask_tail"), cost=0.5,
    spec="""With a mask, a token MUST be drawn only if its bit is 1, greedily or by chance: what is masked is -inf
    before bias, penalties, top_k, min_p and top_p. A mask is of its own draw alone, and a draw whose every token is
    masked MUST be reported as failed.""",
)  # fmt: skip
def token_mask(t: Target) -> Iterator[Verdict]:
    logits = usual(t, vocab=VOCAB)
    kinds: dict[str, dict[str, Any]] = {
        "random": {}, "greedy": {"temperature": 0.0}, "top_k": {"top_k": 3}, "top_p": {"top_p": 0.5},
        "min_p": {"min_p": 0.3}, "bias": {"bias": ((1, 50.0), (33, 2.0))},
        "penalties": {"repetition": 1.6, "presence": 0.5, "prompt": tuple(range(20)), "output": (31, 76, 76)},
    }  # fmt: skip
    for name, settings in kinds.items():
        draws = masked(t, name, 240, **settings)
        yield from exactly(name, logits, draws, one(t, logits, draws), {"no mask": sampling.plain(draws, allowed=None)})
    some = seeded(t, "nothing", 3)
    nothing = [replace(some[0], allowed=()), some[1], replace(some[2], allowed=(), temperature=0.0)]
    (empty,) = drawn(t, logits, nothing)
    yield measure.integers("nothing allowed", empty.failed, [1, 0, 1])


@check(
    "smp.mask_logprobs", level="L1", module="SMP", since="1.0", rules=("R", "X0"),
    kills=("M46.mask_logprobs",), cost=0.5,
    spec="""Logprobs MUST be of the raw logits beside a mask too: the token's own and its rank among all tokens, and the
    largest of all tokens, masked or not.""",
)  # fmt: skip
def mask_logprobs(t: Target) -> Iterator[Verdict]:
    logits = usual(t, vocab=VOCAB)
    draws = masked(t, "asked", 64, logprobs=4)
    (samples,) = drawn(t, logits, draws)
    assert samples.logprobs is not None and samples.ranks is not None and samples.top_ids is not None
    every = sampling.log_softmax(logits)[[d.row for d in draws]]
    raw, at, chosen = logits[[d.row for d in draws]], np.arange(len(draws)), samples.tokens
    own = floats.rounded(every, "f32")
    yield measure.budget("chosen", samples.logprobs[:, None], every[at, chosen][:, None], own[at, chosen][:, None],
                         "f32")  # fmt: skip
    yield measure.integers("ranks", samples.ranks, (raw > raw[at, chosen][:, None]).sum(1) + 1)
    yield measure.integers("largest", samples.top_ids, np.argsort(-raw, axis=1, kind="stable")[:, :4])
