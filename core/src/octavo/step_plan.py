"""The values that pass between scheduler and runner.

A plan carries only what changed: the runner keeps each row's tokens, sampling state and block
tables, so a step of 256 decodes is a small value, whatever the contexts are. Fixed order of effects
on the runner: ``released``, ``new``, ``updates``, then the step itself (``copies`` first).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from octavo.platform.buckets import Bucket
from octavo.platform.step import Floats, Words
from octavo.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities (natural logarithm) at one position.

    ``rank`` is 1 for the most probable token. ``top`` holds (token id, logprob) in falling order,
    as many as were asked for; the chosen token need not be among them.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


class TokenConstraint(Protocol):
    """Which tokens may come next in one sequence, as a state that follows it.

    The scheduler accepts every token of a sequence once, in order; the runner asks for masks in between. Preemption
    changes nothing: the state stays with the sequence. All calls come from the engine's thread.
    """

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end the sequence. A mask has them where the constraint is satisfied."""

    def mask(self, out: Words) -> str | None:
        """Overwrite ``out`` [ceil(V / 32)] with the tokens that may come next. Returns a sentence if none can."""

    def accept(self, token: int) -> bool:
        """Go on by a token that the mask had. True: the constraint is satisfied, and nothing more may follow."""

    def fork(self) -> TokenConstraint:
        """The same state for another sequence that goes its own way from here."""


@dataclass(slots=True)
class NewRow:
    """A row that the runner has not seen: admitted, resumed after preemption, or forked."""

    id: str
    """Unique while the row lives; the forks of request ``r`` are ``r:1``, ``r:2``, …"""
    tokens: list[int]
    """Prompt and any output so far."""
    prompt_length: int
    """How many of ``tokens`` are prompt."""
    params: SamplingParams
    seed: int
    """The resolved seed of the request."""
    sample_index: int
    """Which of the request's n samples this row is; 0 for the first."""
    end_ids: frozenset[int]
    """Token ids that end the sequence, masked until ``min_tokens`` are made."""
    tables: list[list[int]]
    """Per KV group the block ids in order; 0 where a window has left a block behind."""
    constraint: TokenConstraint | None = None
    """What holds its output to a constraint. Shared with the scheduler, which moves it on."""


@dataclass(slots=True)
class BlockUpdate:
    """``table[start : start + len(blocks)] = blocks`` in one group of one row."""

    id: str
    group: int
    start: int
    blocks: list[int]


@dataclass(slots=True)
class StepPlan:
    """One step, as the scheduler decided it."""

    rows: list[str]
    """Ids of the rows that run, in order."""
    counts: list[int]
    """New tokens per row, at least 1."""
    computed: list[int]
    """Tokens of each row that are in the cache before the step."""
    samples: list[int]
    """Per row how many tokens to sample after its last new token. 0: its prompt goes on, or it is only
    scored. More than 1: the row's forks take theirs from the same distribution."""
    bucket: Bucket
    released: list[str] = field(default_factory=list)
    """Rows to forget: finished, aborted or preempted."""
    new: list[NewRow] = field(default_factory=list)
    updates: list[BlockUpdate] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(source, destination) blocks, copied in order before the step writes."""


@dataclass(slots=True)
class StepResult:
    """What a step brought, row by row in the plan's order."""

    tokens: list[list[int]]
    """Sampled ids, ``plan.samples[i]`` of them for row i."""
    logprobs: list[list[TokenLogprobs] | None]
    """Beside ``tokens`` where the row asked for logprobs."""
    prompt_logprobs: list[list[TokenLogprobs] | None]
    """Where asked for: the logprobs of the prompt tokens that follow the row's new tokens (positions computed + 1 …
    computed + count, short of the prompt's end). Joined over chunks they cover all of the prompt but its first token.
    """
    failed: dict[str, str] = field(default_factory=dict)
    """Rows that cannot go on (their logits were not finite, say), with the reason."""
    pooled: list[Floats] | None = None
    """A vector for each row, from models that make those in place of tokens."""
    refused: dict[str, str | None] = field(default_factory=dict)
    """Those of ``failed`` whose request is at fault, as it lets no token come next, with the field to blame."""
