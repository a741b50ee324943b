"""L5 · ENG: the whole engine on the platform, over models whose right tokens are known by hand, and over one whose
distributions are known in float64.

The checks of what must change nothing (batches, chunks, cache hits) are in `l5_invariance`, those of schedules, aborts
and preemption in `l5_schedules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from octavo_conformance.harness import constructed, engines, numeric, plain
from octavo_conformance.harness.engines import EVERY, Request, copied, copy_model
from octavo_conformance.harness.probe import Model
from octavo_conformance.harness.target import Target
from octavo_conformance.harness.trajectory import Truth, alike, chosen, distributions
from octavo_conformance.judge import measure, quant
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

DECODER = ("op:embed", "op:linear", "op:rope", "op:attention", "op:take_rows")
FULL_DECODER = (*DECODER, "op:rms_norm", "op:gated_activation", "op:add")
BLOCKS = 200


def prompt(t: Target, name: str, length: int, vocabulary: int = engines.VOCAB) -> tuple[int, ...]:
    """Random tokens, in which no other distance than the right one gives the same copy for long."""
    return tuple(t.rng("prompt", name).integers(0, vocabulary, length).tolist())


def blocks_for(t: Target, tokens: int) -> int:
    """Blocks that so many tokens take."""
    return -(-tokens // t.block_size)


@check(
    "eng.constructed_exact", level="L5", module="ENG", since="1.0", requires=(*DECODER, "op:add"), grade="mandatory",
    rules=("X0", "C"), kills=("M01", "M46.zeros"), cost=2.0,
    spec="""Models that copy the token a fixed distance back, look up the one as far back as the last token says,
    continue what followed before, or count what they see MUST make exactly the tokens that follow from their prompts,
    for requests of many lengths, up to the longest context of 4096 tokens that the platform takes, that arrive at
    different times and share steps.""",
)  # fmt: skip
def constructed_exact(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    for distance in (1, 17, 40):
        lengths = (distance + 1, 2 * size - 1, 2 * size, 2 * size + 1, 61, 130)
        requests = [
            Request(f"r{i}", prompt(t, f"{distance}/{i}", max(n, distance + 1)), 24, at=2 * i)
            for i, n in enumerate(lengths)
        ]
        right = {r.id: copied(r.prompt, distance, r.max_tokens) for r in requests}
        yield from _exact(t, f"copy {distance}", copy_model(t, distance), requests, right)
    distances = t.rng("distances").integers(0, 3 * size, engines.VOCAB).tolist()
    requests = [Request(f"r{i}", prompt(t, f"lookup/{i}", 3 * size + 9 * i), 24, at=i) for i in range(5)]
    right = {r.id: constructed.looked_up(r.prompt, distances, r.max_tokens) for r in requests}
    yield from _exact(t, "lookup", constructed.lookup_model(t, distances), requests, right)
    cycle = t.rng("cycle").permutation(constructed.BEGIN).tolist()
    requests = [Request(f"r{i}", (constructed.BEGIN, *(cycle * 4)[: 70 + 23 * i]), 24, at=i) for i in range(5)]
    right = {r.id: constructed.induced(r.prompt, r.max_tokens) for r in requests}
    yield from _exact(t, "induction", constructed.induction_model(t), requests, right)
    longest = t.plan(constructed.balance_model(t), context=4096).max_model_len
    requests = [
        Request("short", prompt(t, "short", 2 * size + 1, 2), 24),
        Request("long", prompt(t, "long", longest - 24, 2), 24, at=3),
        Request("between", prompt(t, "between", 5 * size, 2), 24, at=5),
    ]
    right = {r.id: constructed.balanced(r.prompt, r.max_tokens) for r in requests}
    model = constructed.balance_model(t, longest=longest)
    yield from _exact(t, f"count up to {longest}", model, requests, right, context=longest)


def _exact(
    t: Target, name: str, model: Model, requests: Sequence[Request], right: dict[str, list[int]], context: int = 512
) -> Iterator[Verdict]:
    blocks = 2 + sum(blocks_for(t, len(r.prompt) + r.max_tokens) for r in requests)
    traced = engines.trace(t, model, requests, blocks=blocks, context=context)
    for request in requests:
        case = f"{name}, {request.id}, prompt={len(request.prompt)}"
        yield measure.integers(case, traced.tokens[request.id], right[request.id])
    yield measure.within(f"{name}, blocks held at the end", traced.used_blocks, 0, 0)
    yield measure.within(f"{name}, unbalanced steps", traced.unbalanced_steps, 0, 0)


@check(
    "eng.logits_vs_reference", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("R", "X0", "C"), kills=("M50.slight",), cost=1.5,
    spec="""Along given tokens a decoder's distributions MUST stay as close to float64 as a reference of the same
    precision, at every position to the end, and the best token MUST be the right one wherever the truth decides.""",
)  # fmt: skip
def logits_vs_reference(t: Target) -> Iterator[Verdict]:
    yield from _along(t, None, (t.block_size - 1, t.block_size + 1, 150))


def _along(t: Target, format: str | None, lengths: Sequence[int]) -> Iterator[Verdict]:
    """T for prompts of these lengths, which share steps."""
    name = format or "plain"
    decoder = numeric.decoder(t, t.rng("weights", name), format)
    requests = [
        Request(f"{name}, prompt={n}", prompt(t, f"{name}/{n}", n), 1, at=i, params=EVERY)
        for i, n in enumerate(lengths)
    ]
    traced = engines.score(t, decoder.model, requests, blocks=BLOCKS)
    for request in requests:
        truth, found = Truth(t, decoder, request.prompt), traced.scored[request.id]
        yield from distributions(request.id, t, truth, found, slice(0, -1))


@check(
    "eng.quant_model", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("R", "X0", "C"), kills=("M50.slight",), cost=2.0,
    spec="""A decoder whose matrices are in a weight format that the platform declares MUST bring the distributions of
    the numbers that the codes mean, as closely as a reference that stores the inputs of linears as declared; for every
    such format.""",
)  # fmt: skip
def quant_model(t: Target) -> Iterator[Verdict]:
    declared = sorted(name for name in quant.FORMATS if t.declares(f"format:{name}"))
    formats: list[str | None] = [*declared] or [None]
    for name in formats:
        yield from _along(t, name, (t.block_size + 3, 100))


@check(
    "eng.greedy_match", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("R", "X0", "C"), kills=("M50.slight",), cost=1.0,
    spec="""Every token of a greedy run MUST be the one that float64 puts first after the tokens before it, wherever the
    truth decides, and its logprobs MUST be within the budget.""",
)  # fmt: skip
def greedy_match(t: Target) -> Iterator[Verdict]:
    decoder = numeric.decoder(t, t.rng("weights"))
    requests = [
        Request(f"prompt={n}", prompt(t, str(n), n), 40, at=2 * i, params={"logprobs": engines.VOCAB})
        for i, n in enumerate((5, t.block_size, 90))
    ]
    traced = engines.trace(t, decoder.model, requests, blocks=BLOCKS)
    for request in requests:
        made = traced.tokens[request.id]
        yield measure.within(f"{request.id}: tokens", len(made), 40, 40)
        truth = Truth(t, decoder, (*request.prompt, *made[:-1]))
        rows = slice(len(request.prompt) - 1, None)
        yield from chosen(f"{request.id}: chosen", truth, made, rows)
        yield from distributions(request.id, t, truth, traced.drawn[request.id], rows)


@check(
    "eng.stop_conditions", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M46.zeros",), cost=0.5,
    spec="""A request MUST end with the first token that ends it (an end-of-sequence token unless it is ignored, one of
    its own stop ids), which is its last, or after max_tokens, whichever comes first, and MUST say which it was.""",
)  # fmt: skip
def stop_conditions(t: Target) -> Iterator[Verdict]:
    distance, count = 29, 20
    given = t.rng("prompt").permutation(engines.VOCAB)[: distance + 8].tolist()  # all different: so are the next ones
    right = copied(given, distance, count)
    cases: dict[str, tuple[dict[str, Any], list[int], str]] = {
        "end of sequence": ({"ignore_eos": False}, right[:8], "stop"),
        "end of sequence ignored": ({}, right, "length"),
        "stop id": ({"stop_token_ids": [right[4], right[11]]}, right[:5], "stop"),
        "stop id before the end of sequence": ({"ignore_eos": False, "stop_token_ids": [right[2]]}, right[:3], "stop"),
        "stop id after the end of sequence": ({"ignore_eos": False, "stop_token_ids": [right[9]]}, right[:8], "stop"),
        "stop id that comes first": ({"stop_token_ids": [right[0]]}, right[:1], "stop"),
        "max_tokens=1": ({"max_tokens": 1}, right[:1], "length"),
        "max_tokens before the stop id": ({"max_tokens": 4, "stop_token_ids": [right[4]]}, right[:4], "length"),
        "min_tokens reached before the stop id": ({"stop_token_ids": [right[4]], "min_tokens": 4}, right[:5], "stop"),
    }
    requests = [
        Request(name, tuple(given), count, at=i, params=dict(params))
        for i, (name, (params, *_)) in enumerate(cases.items())
    ]
    traced = engines.trace(t, copy_model(t, distance), requests, blocks=BLOCKS, eos=[right[7]])
    for name, (_, tokens, reason) in cases.items():
        yield measure.integers(name, traced.tokens[name], tokens)
        said = traced.finished[name]
        yield measure.holds(f"{name}, reason", said == reason, f"it ended for {said}, and must for {reason}")


@check(
    "eng.max_len_edge", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M01",), cost=0.5,
    spec="""Sequences MUST be right up to the last token of the context, and end there; a prompt that leaves no room for
    a token MUST be refused by a message that names the limit.""",
)  # fmt: skip
def max_len_edge(t: Target) -> Iterator[Verdict]:
    distance, context = 17, 3 * t.block_size
    room = {"one token": 1, "two tokens": 2, "across the last block": t.block_size + 2, "most of it": context - 18}
    requests = [
        Request(name, prompt(t, name, context - left), context, at=i) for i, (name, left) in enumerate(room.items())
    ]
    full = [Request(f"{over} too many", prompt(t, "full", context + over), 1) for over in (0, 1, t.block_size)]
    traced = engines.trace(t, copy_model(t, distance), [*requests, *full], blocks=BLOCKS, context=context)
    for request in requests:
        yield measure.integers(
            request.id, traced.tokens[request.id], copied(request.prompt, distance, room[request.id])
        )
        said = traced.finished[request.id]
        yield measure.holds(f"{request.id}, reason", said == "length", f"it ended for {said}")
    for request in full:
        said = traced.errors.get(request.id, "nothing was said")
        refused = traced.finished.get(request.id) == "refused" and str(context) in said
        yield measure.holds(f"{request.id}: refused", refused, said)
    yield measure.within("blocks held at the end", traced.used_blocks, 0, 0)


@check(
    "eng.sliding_window_model", level="L5", module="ENG", since="1.0",
    requires=(*DECODER, "op:add", "attention:window"), rules=("X0", "C"), kills=("M04.engine",), cost=1.5,
    spec="""Models that count within a window, alone or beside a layer that sees everything, MUST make exactly the
    tokens that follow, whether the window is shorter or longer than a block, the prompt is found in the cache or not,
    and the prefix that is found ends within the window or beyond it.""",
)  # fmt: skip
def sliding_window_model(t: Target) -> Iterator[Verdict]:
    size, distance = t.block_size, 21
    for window in (size - 3, size, 2 * size + 5):
        shared = prompt(t, f"shared {window}", 4 * size + 5)
        requests = [Request(f"again {i}", shared, 24, at=40 * i) for i in range(3)]
        for kept in (size, 2 * size, 3 * size + 1, 4 * size):
            other = prompt(t, f"end {window}/{kept}", size + 7)
            requests.append(Request(f"{kept} shared", (*shared[:kept], *other), 24, at=120 + 40 * (kept // size)))
        pairs = engines.trace(t, constructed.windowed_model(t, distance, window), requests, blocks=BLOCKS)
        bits = [Request(r.id, tuple(token % 2 for token in r.prompt), 24, r.at) for r in requests]
        alone = engines.trace(t, constructed.balance_model(t, window=window), bits, blocks=BLOCKS)
        for request, small in zip(requests, bits, strict=True):
            case = f"window={window}, {request.id}"
            right = constructed.windowed(request.prompt, distance, window, 24)
            yield measure.integers(f"{case}, beside a full layer", pairs.tokens[request.id], right)
            yield measure.integers(case, alone.tokens[small.id], constructed.balanced(small.prompt, 24, window))
        for name, traced in (("beside a full layer", pairs), ("alone", alone)):
            hits = sum(count > 0 for count in traced.cached.values())
            yield measure.within(f"window={window}, {name}, hits", hits, 3, len(requests) - 1)
            yield measure.within(f"window={window}, {name}, blocks held", traced.used_blocks, 0, 0)


@check(
    "eng.restart_same", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("X0", "M", "C"), kills=("M32.restart",), cost=2.0,
    spec="""An engine that is closed and started again, in the same process or in another, MUST make the same tokens and
    distributions.""",
)  # fmt: skip
def restart_same(t: Target) -> Iterator[Verdict]:
    decoder, distance = numeric.decoder(t, t.rng("weights")), 17
    scored = [Request("r", prompt(t, "scored", 2 * t.block_size + 3), 1, params=EVERY)]
    exact = [Request("r", prompt(t, "copied", 40), 20)]
    truth = Truth(t, decoder, scored[0].prompt)
    first = None
    with t.fresh() as elsewhere:
        for name, where in (("first", t), ("same process", t), ("another process", elsewhere)):
            found = engines.score(where, decoder.model, scored, blocks=20).scored["r"]
            made = engines.trace(where, copy_model(t, distance), exact, blocks=20).tokens["r"]
            yield measure.integers(f"{name}: tokens", made, copied(exact[0].prompt, distance, 20))
            if first is not None:
                yield alike(f"{name}: logprobs", t, truth, found, first, slice(0, -1))
            first = found if first is None else first


@check(
    "eng.plain_process", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("R", "X0", "C"), kills=("M51",), cost=2.0,
    spec="""A platform MUST be as right in a process that shows nothing of this suite, neither among its modules nor its
    arguments, as it is under test.""",
)  # fmt: skip
def plain_process(t: Target) -> Iterator[Verdict]:
    distance = 31
    requests = [Request(f"prompt={n}", prompt(t, str(n), n), 20) for n in (40, 2 * t.block_size + 1, 75)]
    served = plain.serve(t, copy_model(t, distance), requests, blocks=BLOCKS)
    for request in requests:
        right = copied(request.prompt, distance, 20)
        yield measure.integers(request.id, served.tokens[request.id], right)
    decoder = numeric.decoder(t, t.rng("weights"))
    given = prompt(t, "scored", 60)
    each = [Request(str(n), given[:n], 1, params={"logprobs": engines.VOCAB}) for n in range(1, 61)]
    drawn = plain.serve(t, decoder.model, each, blocks=BLOCKS).drawn
    found = np.concatenate([drawn[request.id] for request in each])
    yield from distributions("scored", t, Truth(t, decoder, given), found)
