"""L5 · ENG: what an engine does around a request must not change what the request gets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo_conformance.checks.l5_engine import BLOCKS, DECODER, FULL_DECODER, prompt
from octavo_conformance.harness import engines, numeric
from octavo_conformance.harness.engines import EVERY, Request, copied, copy_model
from octavo_conformance.harness.target import Target
from octavo_conformance.harness.trajectory import Truth, alike, distributions
from octavo_conformance.judge import measure
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict


@check(
    "eng.prefill_decode_consistency", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("M", "R", "X0", "C"), kills=("M47.decode",), cost=1.0,
    spec="""The distribution after a token MUST be the same whether the token was decoded or came with a prompt.""",
)  # fmt: skip
def prefill_decode_consistency(t: Target) -> Iterator[Verdict]:
    decoder = numeric.decoder(t, t.rng("weights"))
    given = [prompt(t, f"{n}", n) for n in (4, t.block_size - 1, t.block_size + 9)]
    count = t.block_size + 12
    decoded = engines.trace(
        t,
        decoder.model,
        [Request(f"r{i}", p, count, params={"logprobs": engines.VOCAB}) for i, p in enumerate(given)],
        blocks=BLOCKS,
    )
    whole = [Request(f"r{i}", (*p, *decoded.tokens[f"r{i}"]), 1, params=EVERY) for i, p in enumerate(given)]
    prefilled = engines.score(t, decoder.model, whole, blocks=BLOCKS)
    for request, start in zip(whole, map(len, given), strict=True):
        truth, rows = Truth(t, decoder, request.prompt[:-1]), slice(start - 1, None)
        found, again = decoded.drawn[request.id], prefilled.scored[request.id][start - 1 :]
        yield measure.within(f"prompt={start}: decoded", len(found), count, count)
        yield alike(f"prompt={start}: decode and prefill", t, truth, found, again, rows)
        yield from distributions(f"prompt={start}: prefill", t, truth, again, rows)


@check(
    "eng.batch_invariance", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("M", "X0", "C"), kills=("M33.digits",), cost=2.5,
    spec="""A request MUST get the same tokens and distributions alone and among any others; and there MUST be batches
    of many shapes for that to say something.""",
)  # fmt: skip
def batch_invariance(t: Target) -> Iterator[Verdict]:
    decoder, distance = numeric.decoder(t, t.rng("weights")), 23
    needle = prompt(t, "needle", t.block_size + 14)
    truth = Truth(t, decoder, needle)
    first = None
    for others in (0, 1, 5, 18):
        beside = [
            Request(f"other {i}", prompt(t, f"{others}/{i}", 24 + 7 * (i % 9)), 4 + i % 13, at=i // 4)
            for i in range(others)
        ]
        scored = engines.score(t, decoder.model, [*beside, Request("r", needle, 1, at=1, params=EVERY)], blocks=BLOCKS)
        exact = engines.trace(t, copy_model(t, distance), [*beside, Request("r", needle, 24, at=1)], blocks=BLOCKS)
        for request in (*beside, Request("r", needle, 24)):
            right = copied(request.prompt, distance, request.max_tokens)
            yield measure.integers(f"others={others}, {request.id}", exact.tokens[request.id], right)
        found = scored.scored["r"]
        if first is not None:
            yield alike(f"others={others}: logprobs", t, truth, found, first, slice(0, -1))
        first = found if first is None else first
        most = int(exact.shapes[:, 0].max())
        low, high = (1, 1) if not others else (2, others + 1)
        yield measure.within(f"others={others}, rows of the largest step", most, low, high)
        kinds = len(np.unique(exact.shapes, axis=0))
        yield measure.within(f"others={others}, shapes of steps", kinds, 2, len(exact.shapes))


@check(
    "eng.prefix_cache_invariance", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M09",), cost=2.0,
    spec="""A prompt MUST give the same tokens with the prefix cache off, at its first use, and at every hit after that;
    blocks of equal tokens after another beginning MUST not be taken for one another; and there MUST be hits.""",
)  # fmt: skip
def prefix_cache_invariance(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    distance = 23
    model, shared = copy_model(t, distance), prompt(t, "shared", 4 * size + 5)
    requests = [Request(f"r{i}", shared, 16, at=40 * i) for i in range(4)]
    requests.append(Request("other end", (*shared[: 3 * size], *prompt(t, "end", 30)), 16, at=160))
    # Blocks of the same tokens in another order: their keys were turned by other positions.
    moved = (*shared[size : 2 * size], *shared[:size])
    requests += [Request(f"other beginning {i}", (*moved, *shared[:3]), 16, at=200 + 40 * i) for i in range(2)]
    for caching in (False, True):
        traced = engines.trace(t, model, requests, blocks=BLOCKS, context=8 * size + 64, prefix_caching=caching)
        for request in requests:
            expected = copied(request.prompt, distance, 16)
            yield measure.integers(f"caching={caching}, {request.id}", traced.tokens[request.id], expected)
        hits = sum(count > 0 for count in traced.cached.values())
        yield measure.within(f"caching={caching}, hits", hits, 5 * caching, 5 * caching)


@check(
    "eng.prefix_partial_block", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M09.partial",), cost=1.0,
    spec="""Prompts that share all but a part of a block, a whole number of blocks, or one token more MUST each make
    their own tokens, and only whole blocks MUST count as found; samples that fork within a block MUST not write into
    one another's.""",
)  # fmt: skip
def prefix_partial_block(t: Target) -> Iterator[Verdict]:
    size, distance = t.block_size, 19
    shared = prompt(t, "shared", 3 * size + 2)
    lengths = (size - 1, size, size + 1, 2 * size - 1, 2 * size, 2 * size + 1, 3 * size, 3 * size + 1)
    requests = [Request("first", shared, 12)]
    requests += [
        Request(f"{n} shared", (*shared[:n], *prompt(t, f"end {n}", 25)), 12, at=40 + 20 * i)
        for i, n in enumerate(lengths)
    ]
    requests += [Request(f"whole {n}", shared[:n], 12, at=240 + 20 * i) for i, n in enumerate(lengths) if n > distance]
    forks = [
        Request(f"forks {n}", prompt(t, f"forks {n}", n), 9, at=420, params={"n": 3}) for n in (size + 5, 2 * size)
    ]
    traced = engines.trace(t, copy_model(t, distance), [*requests, *forks], blocks=BLOCKS)
    for request in requests:
        right = copied(request.prompt, distance, 12)
        yield measure.integers(request.id, traced.tokens[request.id], right)
        if request.id != "first":
            common = next(
                (i for i, (a, b) in enumerate(zip(request.prompt, shared, strict=False)) if a != b),
                min(len(request.prompt), len(shared)),
            )
            whole = min(common, len(request.prompt) - 1) // size * size
            yield measure.within(f"{request.id}: found", traced.cached[request.id], whole, whole)
    for request in forks:
        for name in (request.id, f"{request.id}:1", f"{request.id}:2"):
            yield measure.integers(name, traced.tokens.get(name, []), copied(request.prompt, distance, 9))
    yield measure.within("blocks held at the end", traced.used_blocks, 0, 0)


@check(
    "eng.history_invariance", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M09",), cost=2.0,
    spec="""A request MUST make the same tokens on a fresh engine and after two hundred others whose blocks it gets.""",
)  # fmt: skip
def history_invariance(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    distance = 18
    again = prompt(t, "again", 3 * size + 9)
    requests = [Request("before", again, 16)]
    for i in range(200):
        # Half of them hold whole blocks of the request's, in another order.
        own = (*again[size : 2 * size], *again[:size]) if i % 2 else prompt(t, str(i), size + 9)
        end = prompt(t, f"{i} too", 5)
        requests.append(Request(f"other {i}", (*own, *end), 1 + i % 2, episode=1 + i // 50, at=i % 50 // 4))
    requests += [Request(f"after {i}", again, 16, episode=5 + i) for i in range(2)]
    traced = engines.trace(t, copy_model(t, distance), requests, blocks=6 * 12)
    for request in requests:
        if request.id[:5] in ("befor", "after") or int(request.id.split()[-1]) % 10 < 2:
            right = copied(request.prompt, distance, request.max_tokens)
            yield measure.integers(request.id, traced.tokens[request.id], right)
    yield measure.within("blocks held between", sum(traced.held), 0, 0)


@check(
    "eng.chunk_size_invariance", level="L5", module="ENG", since="1.0", requires=FULL_DECODER, grade="mandatory",
    rules=("M", "X0", "C"), kills=("M05.engine",), cost=2.0,
    spec="""A prompt MUST give the same tokens and distributions in chunks of any size, and chunks there MUST be.""",
)  # fmt: skip
def chunk_size_invariance(t: Target) -> Iterator[Verdict]:
    size, distance = t.block_size, 37
    decoder, given = numeric.decoder(t, t.rng("weights")), prompt(t, "given", 3 * size + 7)
    truth = Truth(t, decoder, given)
    whole = None
    multiple = t.plan(decoder.model, context=len(given)).limits.chunk_multiple
    for budget in (None, size + 1, size, max(size // 2 - 1, multiple)):
        name = f"budget={budget or 'open'}"
        rows = None if budget is None else 4
        beside = [Request("r", given, 24), Request("beside", given[5:], 24, at=1)]
        exact = engines.trace(t, copy_model(t, distance), beside, blocks=BLOCKS, budget=budget, rows=rows)
        for request in beside:
            right = copied(request.prompt, distance, 24)
            yield measure.integers(f"{name}, {request.id}", exact.tokens[request.id], right)
        longest = int(exact.shapes[:, 2].max())
        yield measure.within(f"{name}, longest chunk", longest, 2, budget or len(given))
        scored = [Request("r", given, 1, params=EVERY)]
        found = engines.score(t, decoder.model, scored, blocks=BLOCKS, budget=budget, rows=rows).scored["r"]
        if whole is not None:
            yield alike(f"{name}: logprobs", t, truth, found, whole, slice(0, -1))
        whole = found if whole is None else whole
