"""L5 · ENG: requests that come and go as they like, aborts, and pools that are too small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from octavo_conformance.checks.l5_engine import BLOCKS, DECODER, prompt
from octavo_conformance.harness import engines
from octavo_conformance.harness.engines import Request, Traced, copied, copy_model
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.check import check
from octavo_conformance.suite.verdict import Verdict

DISTANCE = 17
TRACES = 200


def wrong(traced: Traced, requests: Sequence[Request], distance: int = DISTANCE) -> list[str]:
    """Requests of a `copy_model` that did not get exactly their tokens: all of them, or of one that was taken back the
    first ones.
    """
    found = []
    for request in requests:
        right = copied(request.prompt, distance, request.max_tokens)
        forks = [f"{request.id}:{i}" for i in range(1, request.params.get("n", 1))]
        for name in (request.id, *forks):
            made = traced.tokens.get(name, [])
            whole = traced.finished.get(request.id) != "abort"
            if made != (right if whole else right[: len(made)]):
                found.append(name)
    return found


def _judged(name: str, traced: Traced, requests: Sequence[Request]) -> Iterator[Verdict]:
    """X0 over the tokens of all requests at once, C over the pool."""
    made = [token for request in requests for token in traced.tokens.get(request.id, [])]
    right = []
    for request in requests:
        whole = copied(request.prompt, DISTANCE, request.max_tokens)
        ended_early = traced.finished.get(request.id) == "abort"
        right += whole[: len(traced.tokens.get(request.id, []))] if ended_early else whole
    yield measure.integers(f"{name}: tokens", made, right)
    bad = wrong(traced, requests)
    yield measure.within(f"{name}: requests that went wrong", len(bad), 0, 0, note=", ".join(bad[:8]))
    yield measure.within(f"{name}: errors", len(traced.errors), 0, 0, note="; ".join(list(traced.errors.values())[:2]))
    yield measure.within(f"{name}: blocks held between", sum(traced.held), 0, 0)
    yield measure.within(f"{name}: unbalanced steps", traced.unbalanced_steps, 0, 0)


@dataclass(frozen=True)
class _Engine:
    """One engine that traces run on: blocks beside the null block in units of what the longest request takes."""

    name: str
    pool: float
    rows: int | None
    chunk: float | None
    caching: bool = True


_ENGINES = (
    _Engine("roomy", 12, None, None),
    _Engine("small steps", 8, 4, 0.6),
    _Engine("tight pool", 1.4, 8, None),
    _Engine("no cache", 2.0, 5, 1.0, caching=False),
)


@check(
    "eng.schedule_fuzz", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M48",), cost=6.0,
    spec="""Two hundred random traces of arrivals, lengths, shared beginnings, samples and aborts, on engines with room
    to spare, small steps, a pool that is too small, and no prefix cache, MUST give every request the tokens that it
    gets alone.""",
)  # fmt: skip
def schedule_fuzz(t: Target) -> Iterator[Verdict]:
    model = copy_model(t, DISTANCE)
    preempted = 0
    for engine in _ENGINES:
        rng = t.rng(engine.name)
        beginnings = [prompt(t, f"begin {i}", 3 * t.block_size) for i in range(6)]
        requests: list[Request] = []
        for episode in range(TRACES // len(_ENGINES)):
            requests += _trace(t, rng, episode, beginnings, forks=engine.pool >= 4)
        longest = 3 * t.block_size + 16
        blocks = 2 + int(engine.pool * -(-longest // t.block_size))
        budget = None if engine.chunk is None else max(16, int(engine.chunk * t.block_size))
        traced = engines.trace(
            t, model, requests, blocks=blocks, context=longest, rows=engine.rows, budget=budget,
            prefix_caching=engine.caching,
        )  # fmt: skip
        yield from _judged(engine.name, traced, requests)
        preempted += traced.preemptions
    yield measure.within("preemptions", preempted, 5, 100_000)


def _trace(t: Target, rng: Rng, episode: int, beginnings: Sequence[tuple[int, ...]], forks: bool) -> list[Request]:
    """A few requests. Lengths lie around the ends of blocks more often than elsewhere."""
    made = []
    size = t.block_size
    for i in range(int(rng.integers(2, 6, 1)[0])):
        kind, edge, off, anywhere, count, at, begin, end, abort = (
            int(n) for n in rng.integers(0, 1 << 16, 9)
        )  # fmt: skip
        length = (1 + edge % 2) * size + off % 4 - 2 if kind % 2 else 18 + anywhere % (2 * size)
        length = max(18, length)
        tokens = tuple(rng.integers(0, engines.VOCAB, length).tolist())
        if kind % 3 == 0:
            shared = min(length - 1, end % (2 * size))
            tokens = (*beginnings[begin % len(beginnings)][:shared], *tokens[shared:])
        made.append(
            Request(
                f"{episode}.{i}", tokens, 1 + count % 12, at=at % 7, episode=episode,
                abort=at % 7 + abort % 14 if kind % 4 == 1 else None,
                params={"n": 2} if forks and kind % 8 == 3 else {},
            )
        )  # fmt: skip
    return made


@check(
    "eng.preempt_recompute", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M47",), cost=1.5,
    spec="""Where the pool is too small for all, requests that lose their blocks and compute them again MUST make the
    tokens that they make alone, and there MUST be such requests.""",
)  # fmt: skip
def preempt_recompute(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    for caching in (True, False):
        for distance in (2, DISTANCE):
            requests = [
                Request(f"r{i}", prompt(t, f"{distance}/{i}", 2 * size - 3 - i), size + 9, at=i) for i in range(5)
            ]
            traced = engines.trace(
                t, copy_model(t, distance), requests, blocks=1 + 9, context=4 * size, prefix_caching=caching
            )
            name = f"caching={caching}, distance={distance}"
            for request in requests:
                right = copied(request.prompt, distance, request.max_tokens)
                yield measure.integers(f"{name}, {request.id}", traced.tokens[request.id], right)
            yield measure.within(f"{name}, preemptions", traced.preemptions, 1, 1000)
            yield measure.within(f"{name}, blocks held at the end", traced.used_blocks, 0, 0)


@check(
    "eng.abort_anywhere", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M48", "M40.abort"), cost=1.5,
    spec="""A request that is taken back before any of its steps MUST give its blocks back at once and change nothing
    for the others, those that share its beginning among them.""",
)  # fmt: skip
def abort_anywhere(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    requests = []
    for step in range(20):
        shared = prompt(t, f"{step}", 2 * size)
        for i, (length, count) in enumerate(((2 * size - 4, 12), (2 * size, 12), (size + 3, 16), (40, 9))):
            own = (*shared[: min(length, size + 2 * i)], *prompt(t, f"{step}/{i}", max(0, length - size - 2 * i)))
            abort = step if i == 0 else None
            requests.append(Request(f"{step}.{i}", own, count, at=i // 2, abort=abort, episode=step))
    traced = engines.trace(t, copy_model(t, DISTANCE), requests, blocks=2 + 4 * 5, context=4 * size, budget=2 * size)
    yield from _judged("aborts", traced, requests)
    ended = sum(traced.finished[f"{step}.0"] == "abort" for step in range(20))
    yield measure.within("aborts that came in time", ended, 8, 20)


@check(
    "eng.block_conservation", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M40.abort",), cost=1.0,
    spec="""After every step free and held blocks MUST add up to the pool, and none MUST be held once all requests have
    ended: after they ran to their end, were taken back, were preempted, forked or were refused.""",
)  # fmt: skip
def block_conservation(t: Target) -> Iterator[Verdict]:
    size = t.block_size
    for name, blocks, params, aborts in (
        ("to the end", BLOCKS, {}, False), ("taken back", BLOCKS, {}, True), ("preempted", 9, {}, False),
        ("preempted and taken back", 9, {}, True), ("forked", BLOCKS, {"n": 3}, True),
    ):  # fmt: skip
        shortest = max(size, DISTANCE) + 1
        requests = [
            Request(
                f"{episode}.{i}", prompt(t, f"{name}/{episode}/{i}", shortest + 3 * i), 12, at=i, episode=episode,
                abort=3 * i + episode if aborts and i % 2 else None, params=dict(params),
            )
            for episode in range(4)
            for i in range(5)
        ]  # fmt: skip
        refused = Request("refused", prompt(t, "refused", 5 * size), 5, at=2)
        context = 4 * size
        traced = engines.trace(t, copy_model(t, DISTANCE), [*requests, refused], blocks=blocks, context=context)
        yield measure.within(f"{name}: held between", max(traced.held), 0, 0, note=f"after each: {traced.held}")
        yield measure.within(f"{name}: unbalanced steps", traced.unbalanced_steps, 0, 0)
        yield measure.holds(f"{name}: refused", traced.finished["refused"] == "refused", "a prompt beyond the context")
        whole = [r for r in requests if traced.finished.get(r.id) == "length"]
        right = [token for r in whole for token in copied(r.prompt, DISTANCE, 12)]
        yield measure.integers(f"{name}: tokens", [token for r in whole for token in traced.tokens[r.id]], right)
