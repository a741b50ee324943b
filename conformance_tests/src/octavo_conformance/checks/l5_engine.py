"""L5 · ENG: the whole engine on the platform, over models whose right tokens are known by hand."""

from __future__ import annotations

from collections.abc import Iterator

from octavo_conformance import engines
from octavo_conformance.check import check
from octavo_conformance.engines import Request, copied, copy_model
from octavo_conformance.judge import measure
from octavo_conformance.target import Target
from octavo_conformance.verdict import Verdict

DECODER = ("op:embed", "op:linear", "op:rope", "op:attention", "op:take_rows")


def prompt(t: Target, name: str, length: int) -> tuple[int, ...]:
    """Random tokens, in which no other distance than the right one gives the same copy for long."""
    return tuple(t.rng("prompt", name).integers(0, engines.VOCAB, length).tolist())


@check(
    "eng.constructed_exact", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M01", "M46.zeros"), cost=4.0,
    spec="""A model that copies the token a fixed distance back MUST make exactly these tokens, for requests of many
    lengths that arrive at different times and share steps.""",
)  # fmt: skip
def constructed_exact(t: Target) -> Iterator[Verdict]:
    for distance in (1, 17, 40):
        model = copy_model(t, distance)
        lengths = (distance + 1, 2 * t.block_size + 10, 2 * t.block_size + 11, 61, 130)
        requests = [
            Request(f"r{i}", prompt(t, f"{distance}/{i}", max(n, distance + 1)), 24, at=2 * i)
            for i, n in enumerate(lengths)
        ]
        traced = engines.trace(t, model, requests, blocks=200, context=256)
        for request in requests:
            found, expected = traced.tokens[request.id], copied(request.prompt, distance, request.max_tokens)
            yield measure.integers(f"distance={distance}, {request.id}, prompt={len(request.prompt)}", found, expected)
        yield measure.within(f"distance={distance}, blocks held at the end", traced.used_blocks, 0, 0)
        yield measure.within(f"distance={distance}, unbalanced steps", traced.unbalanced_steps, 0, 0)


@check(
    "eng.prefix_cache_invariance", level="L5", module="ENG", since="1.0", requires=DECODER, grade="mandatory",
    rules=("X0", "C"), kills=("M09",), cost=2.0,
    spec="""A prompt MUST give the same tokens with the prefix cache off, at its first use, and at every hit after that;
    and there MUST be hits.""",
)  # fmt: skip
def prefix_cache_invariance(t: Target) -> Iterator[Verdict]:
    distance = 23
    model, shared = copy_model(t, distance), prompt(t, "shared", 4 * t.block_size + 5)
    requests = [Request(f"r{i}", shared, 16, at=40 * i) for i in range(4)]
    requests.append(Request("other end", (*shared[: 3 * t.block_size], *prompt(t, "end", 30)), 16, at=160))
    for caching in (False, True):
        traced = engines.trace(t, model, requests, blocks=200, context=8 * t.block_size + 64, prefix_caching=caching)
        for request in requests:
            expected = copied(request.prompt, distance, 16)
            yield measure.integers(f"caching={caching}, {request.id}", traced.tokens[request.id], expected)
        hits = sum(count > 0 for count in traced.cached.values())
        yield measure.within(f"caching={caching}, hits", hits, 4 * caching, 4 * caching)
