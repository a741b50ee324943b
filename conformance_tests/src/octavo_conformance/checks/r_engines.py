"""Engines for the fault checks: requests whose right tokens are known, as a worker is asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from octavo.platform import PlanRequest, Rank, Settings
from octavo_conformance.harness import engines
from octavo_conformance.harness.engines import Request, copied, copy_model
from octavo_conformance.harness.probe import Model
from octavo_conformance.harness.target import Target, facts
from octavo_conformance.judge import measure
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker import values

DISTANCE = 17
VICTIM = 63
"""A token that only the prompts of victims hold."""
CONTEXT = 192


def model_of(t: Target) -> Model:
    """Copies the token `DISTANCE` back."""
    return copy_model(t, DISTANCE, longest=CONTEXT)


def crowd(t: Target, count: int, *, tokens: int = 12, every: int = 1, name: str = "crowd") -> list[Request]:
    """Requests of different lengths, without `VICTIM`, one arriving ``every`` so many steps."""
    rng = t.rng(name)
    lengths = rng.integers(DISTANCE + 1, 70, count).tolist()
    prompts = [tuple(rng.integers(0, VICTIM, n).tolist()) for n in lengths]
    return [Request(f"{name}{i}", prompt, tokens, at=every * i) for i, prompt in enumerate(prompts)]


def victim(t: Target, at: int = 2) -> Request:
    """A request with `VICTIM` in its prompt."""
    prompt = t.rng("victim").integers(0, VICTIM, 40).tolist()
    prompt[30] = VICTIM
    return Request("victim", tuple(prompt), 12, at=at)


def asked(
    t: Target, model: Model, requests: Sequence[Request], *, blocks: int = 64, rows: int | None = None,
    block_size: int | None = None,
) -> Any:  # fmt: skip
    """What the engine of a worker is asked, and what jobs are that drive one; see
    `octavo_conformance.harness.engines.trace`.
    """
    settings = Settings(
        dtype=model.graph.dtype, block_size=block_size or t.block_size, max_model_len=CONTEXT, max_num_seqs=rows or 8
    )
    return {
        **engines.question(model, requests, PlanRequest(facts(model, CONTEXT), settings), blocks=blocks),
        "rank": values.rank_out(Rank()), "prefix_caching": True, "eos": [], "seed": 0, "most_steps": 20_000,
    }  # fmt: skip


def exact(case: str, requests: Sequence[Request], tokens: Any) -> Verdict:
    """All tokens of all requests, which must be the right ones."""
    expected = [copied(r.prompt, DISTANCE, r.max_tokens) for r in requests]
    found = [tokens.get(r.id, []) for r in requests]
    return measure.integers(case, list(chain(*found)), list(chain(*expected)))


def prefixes(case: str, requests: Sequence[Request], tokens: Any) -> Verdict:
    """What there is of each request, which must be how its right tokens begin."""
    wrong = sum(
        tokens.get(r.id, []) != copied(r.prompt, DISTANCE, r.max_tokens)[: len(tokens.get(r.id, []))] for r in requests
    )
    return measure.within(case, wrong, 0, 0, note="requests with a wrong token")


def restarted(t: Target, case: str = "started again") -> Verdict:
    """A new engine in the same process, which must be right."""
    requests = crowd(t, 3, tokens=6, name="again")
    return exact(case, requests, t.act("faulty_engine", faults=[], **asked(t, model_of(t), requests))["tokens"])
