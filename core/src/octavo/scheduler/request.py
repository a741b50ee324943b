"""One sequence on its way through the scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum

from octavo.kv import KVSequence
from octavo.sampling import DEFAULT_OPTIONS, RequestOptions, SamplingParams
from octavo.scheduler.events import FinishReason
from octavo.step_plan import TokenConstraint, TokenLogprobs

NO_LENGTH = 2**62


class Status(Enum):
    """WAITING <-> RUNNING -> FINISHED, or WAITING -> FINISHED. Preemption is RUNNING -> WAITING."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """A request, or one of its forks: a sequence of its own once the prompt's last chunk has run.

    Give ``id``, ``prompt`` (token ids), ``params``, ``seed`` (resolved: never None), ``eos_ids``, and if wanted
    ``options`` and ``constraint`` (what its output has to satisfy). The scheduler owns the object from `Scheduler.add`
    on, and everything below the line.
    """

    id: str
    prompt: InitVar[Sequence[int]]
    params: SamplingParams
    seed: int = 0
    eos_ids: frozenset[int] = frozenset()
    options: RequestOptions = DEFAULT_OPTIONS
    constraint: TokenConstraint | None = None
    # ----------------------------------------------------------------------------------------------
    root_id: str = field(init=False)
    """The request's id, which a fork's own id begins with."""
    index: int = field(init=False, default=0)
    """Which of the n choices."""
    tokens: list[int] = field(init=False)
    """Prompt and output."""
    prompt_length: int = field(init=False)
    computed: int = field(init=False, default=0)
    """Leading tokens whose keys and values are in the cache."""
    pending: int = field(init=False)
    """The others: len(tokens) - computed. 1: the next step is a decode."""
    scheduled: int = field(init=False, default=0)
    """How many of the pending tokens are in the step that is being formed or in flight."""
    branches: int = field(init=False)
    """Tokens to sample after the last pending one: n before the fork, then 1; 0 if nothing is to be generated."""
    stops: frozenset[int] = field(init=False)
    """Token ids that end the sequence."""
    max_length: int = field(init=False)
    """Length of ``tokens`` that ends the sequence; `Scheduler.add` caps it at the context."""
    status: Status = field(init=False, default=Status.WAITING)
    key: tuple[int, int, int] = field(init=False, default=(0, 0, 0))
    """(priority, arrival, index): who goes first, and who is preempted last."""
    kv: KVSequence = field(init=False)
    preempted: int = field(init=False, default=0)
    """How many times it lost its blocks."""
    token_at: float | None = field(init=False, default=None)
    """When its last token came."""
    cached_tokens: int = field(init=False, default=0)
    """Prompt tokens found in the cache at the first admission."""
    prompt_logprobs: list[TokenLogprobs] | None = field(init=False, default=None)
    """Completion until they are complete, where the request asked for them."""

    def __post_init__(self, prompt: Sequence[int]) -> None:
        params = self.params
        self.root_id = self.id
        self.tokens = list(prompt)
        self.prompt_length = self.pending = len(self.tokens)
        self.branches = 0 if params.max_tokens == 0 else params.n
        self.stops = params.stop_ids if params.ignore_eos else params.stop_ids | self.eos_ids
        self.max_length = NO_LENGTH if params.max_tokens is None else self.prompt_length + params.max_tokens
        self.prompt_logprobs = [] if params.prompt_logprobs is not None else None

    @property
    def row_slots(self) -> int:
        """Rows it counts as among ``max_num_seqs``: before the fork as many as it will need after."""
        return max(1, self.branches)

    @property
    def choices(self) -> int:
        """Choices that end if this row ends: all n before the fork, then its own."""
        return self.params.n if self.branches != 1 else 1

    def fork(self, index: int, token: int, kv: KVSequence) -> Request:
        """Choice ``index`` as a row of its own, with the ``token`` it sampled after the prompt."""
        constraint = None if self.constraint is None else self.constraint.fork()
        child = Request(
            kv.id,
            [*self.tokens, token],
            self.params,
            self.seed,
            self.eos_ids,
            self.options,
            constraint,
        )
        child.root_id, child.index = self.root_id, index
        child.prompt_length, child.max_length = self.prompt_length, self.max_length
        child.computed, child.pending, child.branches = self.computed, 1, 1
        child.key = (self.key[0], self.key[1], index)
        child.kv = kv
        child.cached_tokens, child.prompt_logprobs = self.cached_tokens, None
        child.token_at = self.token_at
        return child

    def finish_reason(self, token: int, complete: bool = False) -> tuple[FinishReason, int | None] | None:
        """Why ``token``, just appended, ends the sequence: (finish_reason, stop_reason), or ``None``. ``complete``: so
        says the constraint.
        """
        generated = len(self.tokens) - self.prompt_length
        if token in self.stops and generated >= self.params.min_tokens:
            is_eos = token in self.eos_ids and not self.params.ignore_eos
            return "stop", None if is_eos else token
        if complete:
            return "stop", None
        if len(self.tokens) >= self.max_length:
            return "length", None
        return None


def row_ids(request_id: str, n: int) -> list[str]:
    """The ids of a request's rows: its own, then those of its forks."""
    return [request_id, *(f"{request_id}:{i}" for i in range(1, n))]
