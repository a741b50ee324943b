"""L1 · SMP: tokens from logits, drawn as the engine has it: within the step, by the device's sampler, or the host's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from octavo.platform import Samples, SamplingBatch
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import Row, Seq, Step
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import floats, measure, sampling, stats
from octavo_conformance.judge.floats import F32
from octavo_conformance.judge.sampling import Draw
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

ROWS = 4
"""Logits rows of a step that samples: what every platform can run whole. Draws share them."""


def model(t: Target, logits: F32) -> Model:
    """Token i has the logits of row i, of any number of tokens in the vocabulary."""
    p = Probe(t, "sampling")
    return p.logits(p.build.take_rows(p.rows("x", np.eye(len(logits)))), logits.T)


def sampled(batch: SamplingBatch, first: int = 0) -> Step:
    """Four rows of logits, from row ``first`` on, and a batch of draws from them."""
    sequences = tuple(Seq((token,)) for token in range(first, first + ROWS))
    return Step(sequences, tuple(Row(i, 0, 1) for i in range(ROWS)), sampling=batch)


def batch(draws: list[Draw], vocab: int) -> SamplingBatch:
    """The draws as a step has them, from logits of ``vocab`` tokens."""
    none = SamplingBatch.plain(len(draws), greedy=False)
    floats = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
    ints = ("row", "target", "top_k", "sample_index", "position", "logprobs")
    fields: dict[str, Any] = {name: np.array([getattr(d, name) for d in draws], np.float32) for name in floats}
    fields |= {name: np.array([getattr(d, name) for d in draws], np.int32) for name in ints}
    biases = [(i, token, value) for i, d in enumerate(draws) for token, value in d.bias]
    owners, ids = (np.array([b[n] for b in biases], np.int32) for n in (0, 1))
    histories = [(*d.prompt, *d.output) if d.penalised else () for d in draws]
    starts = np.concatenate([[0], np.cumsum([len(h) for h in histories])]).astype(np.int32)
    prompts = np.array([len(d.prompt) if d.penalised else 0 for d in draws], np.int32)
    return replace(
        none,
        **fields,
        seed=np.array([d.seed for d in draws], np.uint64),
        bias=(owners, ids, np.array([b[2] for b in biases], np.float32)),
        history=(starts, prompts, np.array([token for h in histories for token in h], np.int32)),
        mask=_mask(draws, vocab),
    )


def _mask(draws: list[Draw], vocab: int) -> Any:
    masked = [(i, d.allowed) for i, d in enumerate(draws) if d.allowed is not None]
    if not masked:
        return None
    bits = np.zeros((len(masked), -(-vocab // 32) * 32), np.uint8)
    for row, (_, allowed) in zip(bits, masked, strict=True):
        row[list(allowed)] = 1
    words = (bits.reshape(len(masked), -1, 32).astype(np.uint32) << np.arange(32, dtype=np.uint32)).sum(2, np.uint32)
    return np.array([i for i, _ in masked], np.int32), np.ascontiguousarray(words)


def drawn(t: Target, logits: F32, *batches: list[Draw]) -> list[Samples]:
    """What the platform draws from the first four rows, batch by batch."""
    return list(t.play(model(t, logits), [sampled(batch(draws, logits.shape[1])) for draws in batches]).results)


def one(t: Target, logits: F32, draws: list[Draw]) -> Samples:
    """`drawn`, of one batch."""
    (samples,) = drawn(t, logits, draws)
    return samples


def usual(t: Target, vocab: int = 64, size: float = 1.5) -> F32:
    """Four rows of logits with no equals."""
    return t.stored(t.rng("logits", vocab).normal(ROWS, vocab) * size)


def exactly(
    name: str, logits: F32, draws: list[Draw], samples: Samples, wrong: Mapping[str, list[Draw]] = MappingProxyType({})
) -> Iterator[Verdict]:  # fmt: skip
    """Rule X0: every token is the one that its settings and its number give; and none failed."""
    found = np.where(samples.failed, -1, samples.tokens)
    plants = {plant: sampling.tokens(logits, other) for plant, other in wrong.items()}
    yield measure.integers(name, found, sampling.tokens(logits, draws, found), plants=plants)


def seeded(t: Target, name: str, count: int, **settings: Any) -> list[Draw]:
    """Draws of many seeds from all rows, with the same settings."""
    seeds = t.rng("seeds", name).integers(0, 2**31, count).tolist()
    return [Draw(row=i % ROWS, seed=seed * 4294967311 + seed, position=i, **settings) for i, seed in enumerate(seeds)]


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
    logits[3], logits[5] = -3.0, 0.0  # all equal
    expected = logits.argmax(1)
    steps = [sampled(SamplingBatch.plain(ROWS, greedy=True), at) for at in range(0, rows, ROWS)]
    asked = [sampled(replace(SamplingBatch.plain(ROWS, greedy=True), plain_greedy=False), at) for at in (0, 4)]
    spoilt = np.concatenate([logits[:8], logits[:8]])
    spoilt[[9, 14], [7, 0]] = np.nan
    results = t.play(model(t, logits), [*steps, *asked]).results
    found = np.concatenate([samples.tokens for samples in results[: len(steps)]])
    failed = np.concatenate([samples.failed for samples in results])
    last = 63 - logits[:, ::-1].argmax(1)
    yield measure.integers("tokens", found, expected, plants={"largest id of equals": last})
    again = np.concatenate([samples.tokens for samples in results[len(steps) :]])
    yield measure.integers("beside other settings", again, expected[:8])
    yield measure.integers("failed", failed, np.zeros(len(failed)))
    yield from _failing(t, spoilt)


def _failing(t: Target, logits: F32) -> Iterator[Verdict]:
    """A NaN in the table of row i makes all of its logits NaN, and no other's."""
    p = Probe(t, "spoilt")
    made = p.read(p.rows("x", logits))
    for name, greedy in (("greedy", True), ("random", False)):
        steps = [sampled(SamplingBatch.plain(ROWS, greedy=greedy), at) for at in range(0, len(logits), ROWS)]
        failed = np.concatenate([samples.failed for samples in t.play(made, steps).results])
        yield measure.integers(f"rows with a NaN, {name}", failed, np.isnan(logits).any(1))


@check(
    "smp.topk_set", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M29.order", "M30.seed"), cost=0.5,
    spec="""With top_k, a token MUST be drawn only if fewer than k logits are larger than its own: all equals of the
    k-th stay.""",
)  # fmt: skip
def topk_set(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    logits[1, 10:20] = logits[1].max()  # ten equals at the top
    for k in (1, 2, 5, 40, 64, 1000):
        draws = seeded(t, f"k{k}", 240, top_k=k)
        wrong = {"all": sampling.plain(draws, top_k=0)} if k < 64 else {}
        yield from exactly(f"k={k}", logits, draws, one(t, logits, draws), wrong)
    both = seeded(t, "both", 240, top_k=8, top_p=0.7, temperature=1.3)
    wrong = {"top p alone": sampling.plain(both, top_k=0)}
    yield from exactly("k=8, then p=0.7", logits, both, one(t, logits, both), wrong)


@check(
    "smp.topp_set", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M29.boundary", "M30.seed"), cost=0.5,
    spec="""With top_p, the tokens MUST be those of the shortest run of falling probability that holds top_p of what is
    left, the one that reaches it and its equals among them.""",
)  # fmt: skip
def topp_set(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    for p in (0.01, 0.5, 0.9, 0.99, 1.0):
        draws = seeded(t, f"p{p}", 240, top_p=p)
        wrong = {"all": sampling.plain(draws, top_p=1.0)} if p < 0.95 else {}
        yield from exactly(f"p={p:g}", logits, draws, one(t, logits, draws), wrong)
    # One half, one quarter, twice an eighth: top_p 0.6 ends with the quarter, 0.8 with both eighths.
    steep = np.full((ROWS, 16), -60.0, np.float32)
    steep[:, 3:7] = np.log([4.0, 2.0, 1.0, 1.0])
    steep = t.stored(steep)
    for p, last in ((0.4, 1), (0.6, 2), (0.8, 4)):
        (samples,) = drawn(t, steep, seeded(t, f"steep{p}", 400, top_p=p))
        yield measure.integers(f"p={p:g} of a half, a quarter, two eighths", np.unique(samples.tokens),
                               np.arange(3, 3 + last))  # fmt: skip


@check(
    "smp.minp", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M30.seed",), cost=0.5,
    spec="""With min_p, a token MUST be drawn only if its probability is at least min_p times the largest, before top_p
    and after top_k.""",
)  # fmt: skip
def minp(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    for p in (0.02, 0.3, 1.0):
        draws = seeded(t, f"p{p}", 240, min_p=p)
        wrong = {"all": sampling.plain(draws, min_p=0.0)}
        yield from exactly(f"min_p={p:g}", logits, draws, one(t, logits, draws), wrong)
    draws = seeded(t, "both", 300, min_p=0.15, top_p=0.8)
    yield from exactly("min_p, then top_p", logits, draws, one(t, logits, draws))


@check(
    "smp.order_of_ops", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M29.order", "M30.seed"), cost=0.5,
    spec="""Bias MUST come first, then penalties, temperature, top_k, min_p and top_p, each of what the one before it
    leaves.""",
)  # fmt: skip
def order_of_ops(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    history = {"prompt": tuple(range(30)), "output": (5, 5, 40, 41, 41, 41)}
    penalties = {"repetition": 1.3, "presence": 0.4, "frequency": 0.3}
    biases = ((5, 3.0), (41, 4.0), (7, -np.inf), (50, 2.0))
    settings: dict[str, Any] = {**history, **penalties, "bias": biases}
    draws = [
        replace(d, top_k=12, min_p=0.02, top_p=0.85, temperature=heat)
        for heat in (0.6, 1.4)
        for d in seeded(t, f"all{heat}", 200, **settings)
    ]
    yield from exactly("all at once", logits, draws, one(t, logits, draws), {"no bias": sampling.plain(draws, bias=())})


@check(
    "smp.distribution", level="L1", module="SMP", since="1.0", rules=("S",), kills=("M30.seed", "M30.shared"), cost=3.0,
    spec="""Tokens MUST come up as often as their probabilities say, in small vocabularies and in large ones, at any
    temperature and after top_k and top_p.""",
)  # fmt: skip
def distribution(t: Target) -> Iterator[Verdict]:
    logits = usual(t, size=1.0)
    count = 13_500
    kinds: dict[str, dict[str, Any]] = {
        "plain": {}, "colder, top_k 20, top_p 0.8": {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    }  # fmt: skip
    for name, settings in kinds.items():
        seed = int(t.rng(name).integers(0, 2**31, 1)[0])
        draws = [Draw(row=1, seed=seed, position=i, **settings) for i in range(count)]
        (samples,) = drawn(t, logits, draws)
        shares = sampling.probabilities(logits[1], draws[0])
        yield stats.fit(name, np.bincount(samples.tokens, minlength=64), shares)
    large = usual(t, vocab=4000, size=1.0)
    draws = [Draw(row=2, seed=77, position=i) for i in range(3500)]
    (samples,) = drawn(t, large, draws)
    bins = np.arange(4000) % 40
    right = np.bincount(bins, sampling.probabilities(large[2], draws[0]), 40)
    yield stats.fit("4000 tokens in 40 bins", np.bincount(bins[samples.tokens], minlength=40), right, shift=0.1)


@check(
    "smp.temperature_limits", level="L1", module="SMP", since="1.0", rules=("X0", "S"),
    kills=("M29.temperature", "M30.seed"), cost=1.0,
    spec="""As the temperature falls to 0 the tokens MUST become the greedy ones; at a large one they MUST come up
    nearly alike.""",
)  # fmt: skip
def temperature_limits(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    logits[np.arange(ROWS), logits.argmax(1)] += 1  # well above the next, in units of these temperatures
    logits = t.stored(logits)
    for heat in (0.0, 1e-4, 0.01):
        draws = seeded(t, f"cold{heat}", 200, temperature=heat)
        (samples,) = drawn(t, logits, draws)
        greedy = logits.argmax(1)[[d.row for d in draws]]
        hot = sampling.tokens(logits, sampling.plain(draws, temperature=1.0))
        yield measure.integers(f"temperature {heat:g}", samples.tokens, greedy, plants={"temperature 1": hot})
    draws = seeded(t, "hot", 13_500, temperature=1000.0)
    (samples,) = drawn(t, logits, draws)
    yield stats.fit("temperature 1000", np.bincount(samples.tokens, minlength=64), np.full(64, 1 / 64))
    mixed = [replace(d, temperature=(0.0, 0.5, 1.0, 3.0)[i % 4]) for i, d in enumerate(seeded(t, "mixed", 400))]
    wrong = sampling.plain(mixed, temperature=1.0)
    yield from exactly("one for each draw", logits, mixed, one(t, logits, mixed), {"one for all": wrong})


@check(
    "smp.seed_reproducible", level="L1", module="SMP", since="1.0", rules=("X0", "B0"),
    kills=("M30.seed", "M30.shared"), cost=0.5,
    spec="""A draw's token MUST follow from its logits, settings, seed, sample and position alone: the same in any
    company, in any order, and the one that the contract's random numbers give.""",
)  # fmt: skip
def seed_reproducible(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    draws = [replace(d, sample_index=i % 3) for i, d in enumerate(seeded(t, "some", 300))]
    order = t.rng("order").permutation(300).tolist()
    company = seeded(t, "others", 100, temperature=0.4, top_k=3)
    batches = [draws, draws, [draws[i] for i in order], company + draws, draws[:1]]
    first, again, shuffled, joined, alone = (s.tokens for s in drawn(t, logits, *batches))
    yield measure.bitwise("again", again, first)
    yield measure.bitwise("in another order", shuffled, first[order])
    yield measure.bitwise("after others", joined[100:], first)
    yield measure.bitwise("alone", alone, first[:1])
    wrong = {"no sample": sampling.plain(draws, sample_index=0), "no position": sampling.plain(draws, position=0),
             "low half of the seed": [replace(d, seed=d.seed & 0xFFFFFFFF) for d in draws]}  # fmt: skip
    expected = sampling.tokens(logits, draws, first)
    plants = {name: sampling.tokens(logits, other) for name, other in wrong.items()}
    yield measure.integers("the contract's numbers", first, expected, plants=plants)


@check(
    "smp.seed_independence", level="L1", module="SMP", since="1.0", rules=("S",), kills=("M30.shared",), cost=1.0,
    spec="""Draws of different seeds, samples or positions MUST be independent: two at a time, all pairs of tokens come
    up as often as their probabilities say.""",
)  # fmt: skip
def seed_independence(t: Target) -> Iterator[Verdict]:
    logits = t.stored(np.zeros((ROWS, 4)))
    count = 6_000
    seeds = t.rng("seeds").integers(0, 2**31, 1)[0]
    variants = {
        "seeds beside each other": [Draw(seed=int(seeds) + i) for i in range(2 * count)],
        "samples": [Draw(seed=int(seeds) + i // 2, sample_index=i % 2) for i in range(2 * count)],
        "positions": [Draw(seed=int(seeds), position=i) for i in range(2 * count)],
    }
    for name, samples in zip(variants, drawn(t, logits, *variants.values()), strict=True):
        pairs = samples.tokens.reshape(-1, 2)
        yield stats.fit(name, np.bincount(pairs[:, 0] * 4 + pairs[:, 1], minlength=16), np.full(16, 1 / 16),
                        shift=0.07)  # fmt: skip


@check(
    "smp.penalties", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M29.penalties",), cost=0.5,
    spec="""The repetition penalty MUST fall on every token of prompt and output, dividing logits above 0 and
    multiplying those below; presence and frequency penalties on those of the output alone, once and for each time.""",
)  # fmt: skip
def penalties(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    histories: list[dict[str, Any]] = [
        {"prompt": tuple(range(32)), "output": (1, 1, 1, 50, 51)},
        {"prompt": (3,), "output": tuple(range(30, 64)) + (63,) * 5},
        {"prompt": (), "output": (9,)},
    ]
    kinds: dict[str, dict[str, Any]] = {
        "repetition": {"repetition": 1.8}, "rewarded": {"repetition": 0.5}, "presence": {"presence": 1.5},
        "frequency": {"frequency": 0.7}, "negative": {"frequency": -0.5, "presence": -0.5},
    }  # fmt: skip
    for name, settings in kinds.items():
        for greedy in (True, False):
            draws = [
                replace(d, **histories[i % 3], **settings, temperature=0.0 if greedy else 1.0)
                for i, d in enumerate(seeded(t, name, 240))
            ]
            wrong = {} if greedy else {"none": sampling.plain(draws, repetition=1.0, presence=0.0, frequency=0.0)}
            if settings.keys() & {"presence", "frequency"} and not greedy:
                moved = [replace(d, output=d.prompt, prompt=d.output) for d in draws]
                wrong["prompt for output"] = moved
            title = f"{name}, {'greedy' if greedy else 'random'}"
            yield from exactly(title, logits, draws, one(t, logits, draws), wrong)


@check(
    "smp.logit_bias_mask", level="L1", module="SMP", since="1.0", rules=("X0",), kills=("M29.bias",), cost=0.5,
    spec="""A bias MUST be added to its tokens' logits, of its own draw only, twice where it is given twice; a token
    with a bias of -inf MUST never be drawn, and a draw whose every token is forbidden MUST be reported as failed.""",
)  # fmt: skip
def logit_bias_mask(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    sets = [((3, 4.0), (9, -2.0)), ((60, 2.0), (60, 2.0)), (), ((0, 30.0),)]
    draws = [replace(d, bias=sets[i % 4]) for i, d in enumerate(seeded(t, "added", 400))]
    (samples,) = drawn(t, logits, draws)
    yield from exactly("added", logits, draws, samples, {"none": sampling.plain(draws, bias=())})
    allowed = (2, 31, 63)
    mask = tuple((token, float("-inf")) for token in range(64) if token not in allowed)
    masked = [replace(d, bias=mask) for d in seeded(t, "masked", 300)]
    greedy = sampling.plain(masked[:ROWS], temperature=0.0)
    nothing = [replace(masked[0], bias=tuple((token, float("-inf")) for token in range(64))), masked[1]]
    by_mask, by_greed, empty = drawn(t, logits, masked, greedy, nothing)
    yield from exactly("allowed tokens", logits, masked, by_mask, {"all": sampling.plain(masked, bias=())})
    yield from exactly("allowed tokens, greedy", logits, greedy, by_greed)
    yield measure.integers("nothing allowed", empty.failed, [1, 0])


@check(
    "smp.logprobs", level="L1", module="SMP", since="1.0", rules=("R", "X0"), kills=("M46.logprobs",), cost=0.5,
    spec="""Logprobs MUST be of the raw logits, whatever bias, penalties and temperature do to the draw: the token's
    own, its rank, and as many of the largest as were asked for, falling, the smaller id first among equals.""",
)  # fmt: skip
def logprobs(t: Target) -> Iterator[Verdict]:
    logits = usual(t, vocab=200)
    logits[2, 40:44] = logits[2].max()
    base = seeded(t, "asked", 48, logprobs=5)
    draws = [
        replace(d, temperature=(1.0, 0.3, 2.0)[i % 3], bias=((7, 5.0),) * (i % 2), target=i if i % 5 == 0 else -1)
        for i, d in enumerate(base)
    ]
    (samples,) = drawn(t, logits, draws)
    assert samples.logprobs is not None and samples.ranks is not None
    assert samples.top_ids is not None and samples.top_logprobs is not None
    every = sampling.log_softmax(logits)[[d.row for d in draws]]
    at = np.arange(len(draws))
    own = floats.rounded(every, "f32")
    chosen, raw = samples.tokens, logits[[d.row for d in draws]]
    yield measure.budget("chosen", samples.logprobs[:, None], every[at, chosen][:, None], own[at, chosen][:, None],
                         "f32")  # fmt: skip
    ranks = (raw > raw[at, chosen][:, None]).sum(1) + 1
    yield measure.integers("ranks", samples.ranks, ranks)
    ids = np.argsort(-raw, axis=1, kind="stable")[:, :5]
    yield measure.integers("largest", samples.top_ids, ids)
    top = np.take_along_axis(every, ids, 1)
    yield measure.budget("logprobs of the largest", samples.top_logprobs, top, floats.rounded(top, "f32"), "f32")
    targets = np.array([d.target for d in draws])
    scored = targets >= 0
    yield measure.integers("tokens that were given", samples.tokens[scored], targets[scored])


@check(
    "smp.per_request_params", level="L1", module="SMP", since="1.0", rules=("X0",),
    kills=("M29.temperature", "M29.bias", "M30.seed"), cost=0.5,
    spec="""Every draw of a step MUST be made with its own settings, whatever its neighbours'.""",
)  # fmt: skip
def per_request_params(t: Target) -> Iterator[Verdict]:
    logits = usual(t)
    kinds: list[dict[str, Any]] = [
        {}, {"temperature": 0.0}, {"temperature": 0.5, "top_k": 5}, {"top_p": 0.6}, {"min_p": 0.2},
        {"bias": ((11, 6.0),)}, {"repetition": 1.5, "prompt": tuple(range(20)), "output": (21, 22)},
        {"presence": 1.0, "frequency": 0.5, "output": (30, 30, 31)}, {"logprobs": 3}, {"temperature": 2.5},
    ]  # fmt: skip
    draws = [replace(d, **kinds[(i * 7) % 10]) for i, d in enumerate(seeded(t, "mixed", 600))]
    alike = [replace(d, **kinds[3]) for d in seeded(t, "mixed", 600)]
    yield from exactly("ten kinds", logits, draws, one(t, logits, draws), {"one kind": alike})
