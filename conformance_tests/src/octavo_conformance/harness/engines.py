"""Whole engines under test: models whose right tokens are known by hand, and scripts of requests.

The `copy` model has one attention head that finds the token ``distance`` positions back, by rotary angles alone, with a
margin no rounding can bridge: every token that it makes is the one ``distance + 1`` before it. One wrong slot, block,
position or context length, and the token is another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from octavo.graph import RopeSpec, to_json
from octavo.graph.ir import Graph
from octavo.platform import PlanRequest, Settings, Unsupported
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.target import Refused, facts
from octavo_conformance.judge.floats import F32
from octavo_conformance.worker import values

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

VOCAB = 64
"""Tokens of the constructed models, 0 … 63; none of them ends a sequence."""
EVERY = {"logprobs": VOCAB, "prompt_logprobs": VOCAB}
"""Parameters of a request that wants the whole distribution everywhere."""
MARGIN = 30.0
"""Least distance between the score of the position that is copied and any other's: a softmax share of e^-30."""


@dataclass(frozen=True)
class Request:
    """One request of a script: added before step ``at``, taken back before step ``abort`` if that is set.

    Steps are counted within an ``episode``; the next one begins when the engine has nothing left to do.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    at: int = 0
    abort: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    episode: int = 0


@dataclass(frozen=True)
class Traced:
    """What an engine did: tokens, logprobs, reason of the end and error by request (what was refused at once has
    "refused" for a reason); cached prompt tokens; steps taken; preemptions; blocks held at the end and at the end of
    each episode, and steps after which held and free blocks did not add up.

    ``drawn`` and ``scored`` are the logprobs of all tokens, [tokens, vocabulary], at each token made and at each token
    of the prompt but the first, where a request asked for them (`EVERY`); NaN for what was not told. ``shapes`` has a
    row for each step that ran: its rows, its tokens, the longest chunk. ``late`` counts what was compiled or packed
    after the engine was ready. Forks of request r are called r:1, r:2, …
    """

    tokens: dict[str, list[int]]
    logprobs: dict[str, list[float]]
    drawn: dict[str, F32]
    scored: dict[str, F32]
    finished: dict[str, str]
    errors: dict[str, str]
    cached: dict[str, int]
    steps: int
    preemptions: int
    used_blocks: int
    held: list[int]
    unbalanced_steps: int
    shapes: npt.NDArray[np.int32]
    late: int
    block_size: int
    buckets: int


def copy_model(t: Target, distance: int, *, longest: int = 512, head_dim: int = 64, window: int | None = None) -> Model:
    """A model whose next token is the one ``distance`` positions before the last; see the module.

    ``longest`` is the context up to which the margin holds. Raises ValueError where the frequencies cannot give it.
    """
    spec = RopeSpec(head_dim, theta=4.0 * longest)
    query, key = aligned(spec, distance, longest)
    width = VOCAB + 16  # one-hot token, a constant 1, padding to a multiple of 16
    table = np.zeros((VOCAB, width), np.float32)
    table[np.arange(VOCAB), np.arange(VOCAB)] = 1
    table[:, VOCAB] = 1
    p = Probe(t, f"copy-{distance}")
    x = p.rows("embed", table)
    maps = {name: np.zeros((head_dim, width), np.float32) for name in ("q", "k", "v")}
    maps["q"][:, VOCAB], maps["k"][:, VOCAB] = query, key
    maps["v"][np.arange(min(VOCAB, head_dim)), np.arange(min(VOCAB, head_dim))] = 1
    for name, matrix in maps.items():
        p.weight(f"{name}.weight", matrix)
    q, k, v = (p.build.linear(x, name, head_dim) for name in maps)
    q, k = p.build.rope(q, k, spec)
    out = p.build.attention(q, k, v, layer=0, heads=1, kv_heads=1, head_dim=head_dim, scale=1.0, window=window)
    head = np.zeros((VOCAB, head_dim), np.float32)
    head[np.arange(VOCAB), np.arange(VOCAB)] = 1
    return p.logits(p.build.take_rows(out), head)


def aligned(
    spec: RopeSpec, distance: int, longest: int, *, window: int | None = None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A query and a key that agree best where the key stands ``distance`` before the query; within a ``window`` that
    ends just before, at the oldest key that is seen.

    All pairs point along their first axis in the key; in the query each is turned by its own angle of ``distance``, so
    that the score at a gap g is the sum of cos(frequency * (g - distance)).
    """
    pairs = spec.head_dim // 2
    frequency = spec.theta ** (-np.arange(pairs) / pairs)
    gaps = np.arange(longest if window is None else window)
    scores = np.cos((gaps[:, None] - distance) * frequency).sum(1)
    found = min(distance, len(gaps) - 1)
    lead = float(scores[found] - np.delete(scores, found).max())
    if lead <= 0:
        raise ValueError(f"no query of {spec.head_dim} elements finds the token {distance} back among {longest}")
    size = math.sqrt(2 * MARGIN / lead)  # twice, for what bf16 takes away
    query, key = np.zeros(spec.head_dim, np.float32), np.zeros(spec.head_dim, np.float32)
    key[:pairs] = size
    # Rotation adds frequency * position to the angle: the query's is behind by the distance.
    query[:pairs], query[pairs:] = size * np.cos(-frequency * distance), size * np.sin(-frequency * distance)
    return query, key


def copied(prompt: Sequence[int], distance: int, count: int) -> list[int]:
    """What a `copy_model` must make of a prompt longer than ``distance``."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(tokens[len(tokens) - 1 - distance])
    return tokens[len(prompt) :]


def vocabulary(graph: Graph) -> int:
    """Tokens that a model knows: the width of its logits."""
    return graph.types[graph.outputs["logits"]].width


def trace(
    t: Target, model: Model, requests: Sequence[Request], *, blocks: int, context: int = 512, rows: int | None = None,
    budget: int | None = None, block_size: int | None = None, prefix_caching: bool = True, seed: int = 0,
    eos: Sequence[int] = (), most_steps: int = 20_000,
) -> Traced:  # fmt: skip
    """Run requests through an engine of ``blocks`` KV blocks. ``rows`` and ``budget`` bound a step (max_num_seqs,
    max_num_batched_tokens; the platform's choice if left out). Greedy unless a request's params say otherwise.
    """
    settings = Settings(
        dtype=model.graph.dtype, block_size=block_size, max_model_len=context, max_num_seqs=rows,
        max_num_batched_tokens=budget,
    )  # fmt: skip
    answer = t.ask_engine(
        **question(model, requests, PlanRequest(facts(model, context), settings), blocks=blocks),
        prefix_caching=prefix_caching, eos=list(eos), seed=seed, most_steps=most_steps,
    )  # fmt: skip
    if "refused" in answer:
        raise Refused(Unsupported(**answer["refused"]))
    return Traced(**answer)


def question(model: Model, requests: Sequence[Request], request: PlanRequest, *, blocks: int) -> dict[str, Any]:
    """What an engine's worker is asked of a model and a script, whatever else it is asked."""
    script: list[dict[str, Any]] = []
    for r in requests:
        params = {"temperature": 0.0, "max_tokens": r.max_tokens, "ignore_eos": True, **r.params}
        when = {"episode": r.episode, "id": r.id}
        script.append({"do": "add", "at": r.at, "prompt": list(r.prompt), "params": params, **when})
        if r.abort is not None:
            script.append({"do": "abort", "at": r.abort, **when})
    return {
        "graph": to_json(model.graph), "weights": {name: values.weight_out(w) for name, w in model.weights.items()},
        "request": values.request_out(request), "blocks": blocks, "vocab": vocabulary(model.graph), "script": script,
    }  # fmt: skip


def score(t: Target, model: Model, requests: Sequence[Request], **options: Any) -> Traced:
    """As `trace`, with ``scored`` for every request that asks for its prompt's logprobs, also where the engine cannot
    score prompts (its shapes bring too few rows of logits): there each beginning of such a prompt is a request of its
    own, among the same others, and its first distribution counts.
    """
    traced = trace(t, model, requests, **options)
    refused = [r for r in requests if "prompt_logprobs" in r.params and traced.finished.get(r.id) == "refused"]
    if not refused:
        return traced
    again = [r for r in requests if r not in refused]
    for request in refused:
        params = {name: value for name, value in request.params.items() if name != "prompt_logprobs"}
        again.append(replace(request, params=params))
        again += [
            replace(request, id=f"{request.id}#{n}", prompt=request.prompt[:n], max_tokens=1, params=params)
            for n in range(1, len(request.prompt))
        ]
    traced = trace(t, model, again, **options)
    scored = {r.id: [traced.drawn[f"{r.id}#{n}"] for n in range(1, len(r.prompt))] for r in refused}
    return replace(traced, scored={**traced.scored, **{name: np.concatenate(rows) for name, rows in scored.items()}})
