"""The scheduler: decides which rows run in the next step, and what their results mean."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from octavo.errors import RequestError
from octavo.kv import KVManager
from octavo.scheduler.admission import Admission
from octavo.scheduler.bounds import Bounds
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.events import FinishReason, TokenEvent
from octavo.scheduler.latency import LatencyRecorder
from octavo.scheduler.metrics import SchedulerMetrics
from octavo.scheduler.queue import WaitingQueue
from octavo.scheduler.request import Request, Status, row_ids
from octavo.scheduler.step_time import StepShape, StepTimes, shape_of
from octavo.scheduler.target import Allowance
from octavo.step_plan import NewRow, StepPlan, StepResult, TokenLogprobs

Kind = Literal["mixed", "prefill", "decode"]
RUNNING = Status.RUNNING
_TURNS: dict[bool, tuple[Kind, Kind]] = {True: ("prefill", "decode"), False: ("decode", "prefill")}


def _key(request: Request) -> tuple[int, int, int]:
    return request.key


@dataclass(slots=True)
class _Budget:
    """What is left of one step while it is being formed."""

    kind: Kind
    tokens: int
    spare_samples: int
    prefill_rows: int
    allowance: Allowance | None
    """What a latency target leaves for prompt chunks, if there is one and rows decode."""
    rows: int = 0
    longest: int = 0
    """Longest context among the rows so far."""
    closed: bool = False
    """A running row was held back or preempted: nothing new is admitted."""


class Scheduler:
    """Constraints steps from requests. One step at a time: ``schedule``, run it, ``update``.

    In a step, running rows with one pending token (decodes) are served first, then running prompts
    with a chunk each, then waiting requests, all by `Request.key`; one budget of tokens for all.
    When a row finds no block, the running row that comes last by key loses all of its own and waits
    again, at its old place in the queue; what it had computed is computed anew. So the first row by
    key is in every step (in every other one where the platform cannot mix prompts and decodes), never
    loses its blocks, and finishes; then the next one does. Waiting requests do not overtake each other.

    With ``config.itl_target`` the prompt chunks of a step in which rows decode are kept so short that its time, as
    ``times`` predicts it from the steps before, stays below the target; the first of them gets `LEAST_CHUNK` tokens
    even so. Which step a token is computed in never changes a result.

    Not thread-safe. ``add`` and ``abort`` may come at any time between the other calls.
    """

    def __init__(self, config: SchedulerConfig, kv: KVManager) -> None:
        self.config = config
        self.kv = kv
        self.bounds = Bounds(config, kv)
        self.times = StepTimes()
        """Of the steps that `observe` was told of; kept only under a target."""
        self._waiting = WaitingQueue()
        self._running: list[Request] = []  # by key; iterated over while preemption shortens its tail
        self._groups: dict[str, list[Request]] = {}  # request id -> its unfinished rows
        self._row_ids: set[str] = set()  # of unfinished requests, forks to come included
        self._row_slots = 0  # taken by running rows
        self._unseen: list[Request] = []  # running rows that the runner does not know
        self._released: list[str] = []  # rows that the runner shall forget
        self._in_flight: list[Request] | None = None
        self._arrivals = 0
        self._preemptions = 0
        self._inter_token = LatencyRecorder()
        self._admission = Admission(config.max_waiting, config.max_waiting_tokens)
        self._token_budget = self.bounds.tokens  # of the last step
        self._ended = False  # _running holds rows that are FINISHED
        self._prefill_next = True  # whose turn it is where prompts and decodes exclude each other

    # -- requests ----------------------------------------------------------------------------------

    @property
    def unfinished(self) -> int:
        """Requests that were added and have not ended. While it is not 0, ``schedule`` returns a plan."""
        return len(self._groups)

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises RequestError at once when it can never run (`Bounds.check` says when) or its id is in use,
        and QueueFull when as many requests or tokens wait as may.
        """
        ids = row_ids(request.id, request.params.n)
        if not self._row_ids.isdisjoint(ids):
            raise RequestError(f"request id {request.id!r} is in use by an unfinished request", param="request_id")
        self.bounds.check(request)
        self._admission.check(self._waiting, request)
        request.max_length = min(request.max_length, self.bounds.context)
        request.key = (request.options.priority, self._arrivals, 0)
        request.kv = self.kv.sequence(request.id, request.options.cache_salt)
        self._arrivals += 1
        self._row_ids.update(ids)
        self._groups[request.id] = [request]
        self._waiting.push(request)

    def abort(self, request_id: str, index: int | None = None) -> bool:
        """End a request, or only its choice ``index``, without an event; its blocks are free at once.

        A result that is still on its way for it is dropped. False if there is nothing (left) to end.
        """
        rows = [r for r in self._groups.get(request_id, ()) if index is None or r.index == index]
        for row in rows:
            self._end(row)
        if self._ended:
            self._settle()
        return bool(rows)

    def metrics(self) -> SchedulerMetrics:
        """A snapshot; O(running rows)."""
        return SchedulerMetrics(
            len(self._running),
            len(self._waiting),
            self._preemptions,
            self.kv.stats(),
            self._token_budget,
            self._inter_token.snapshot(),
        )

    # -- forming a step ----------------------------------------------------------------------------

    def schedule(self) -> StepPlan | None:
        """The next step, or ``None`` when there is nothing to do."""
        assert self._in_flight is None, "the previous step has not been updated"
        if not self._groups:
            return None
        batch = self._form_in_turn() if self.bounds.exclusive else self._form("mixed")
        assert batch, "unfinished requests, and none that can run: Bounds.check() should have refused one"
        self._in_flight = batch
        return self._plan(batch)

    def _form_in_turn(self) -> list[Request]:
        """A step of prompt chunks, then one of decodes: neither waits for the other to run dry."""
        first, second = _TURNS[self._prefill_next]
        preemptions = self._preemptions
        batch, kind = self._form(first), first
        if not batch:
            batch, kind = self._form(second, closed=self._preemptions > preemptions), second
        self._prefill_next = kind == "decode"
        return batch

    def _form(self, kind: Kind, *, closed: bool = False) -> list[Request]:
        """The rows of a step of this kind, each with its ``scheduled`` tokens and the slots for them."""
        bounds = self.bounds
        allowance = None if self.config.itl_target is None or kind == "decode" else self._allowance()
        budget = _Budget(kind, bounds.tokens, bounds.spare_samples, bounds.prefill_rows, allowance, closed=closed)
        self._share_tokens(budget)
        batch: list[Request] = []
        for row in self._running:  # _grow shortens this list from its tail, never before `row`
            count = row.scheduled
            if not count:
                continue
            blocks = row.kv
            end = row.computed + count
            if end <= blocks.capacity and not blocks.tail_shared:
                blocks.length = end
            elif not self._grow(row, budget):
                break
            batch.append(row)
        budget.rows = len(batch)
        if self._waiting and not budget.closed:
            budget.longest = max((row.computed + row.scheduled for row in batch), default=0)
            self._admit(budget, batch)
        if kind != "decode":
            cut = allowance is not None and allowance.cut
            self._token_budget = sum([row.scheduled for row in batch]) if cut else bounds.tokens
        return batch

    def _allowance(self) -> Allowance | None:
        contexts = [row.computed + 1 for row in self._running if row.pending == 1]
        return self.allowance(StepShape(decodes=len(contexts), context=sum(contexts))) if contexts else None

    def allowance(self, decodes: StepShape) -> Allowance | None:
        """What the target leaves for prompt chunks beside ``decodes``; ``None`` without a target."""
        target, bounds = self.config.itl_target, self.bounds
        if target is None:
            return None
        if bounds.exclusive:  # a step of chunks, then one of decodes: the rows wait for both
            target, decodes = target - self.times.predict(decodes), StepShape()
        return Allowance(self.times, target, decodes, bounds.padded, bounds.chunk_multiple)

    def _share_tokens(self, budget: _Budget) -> None:
        """Give running rows their share of the step: sets ``scheduled`` of each, 0 for those left out."""
        running, bounds = self._running, self.bounds
        if bounds.volume is not None:
            running = self._within_volume(budget)
        prefills = [row for row in running if row.pending != 1]
        if budget.kind != "prefill":
            for row in running:
                row.scheduled = 1
            budget.tokens -= len(running) - len(prefills)
        else:
            for row in running:
                row.scheduled = 0
        limit = bounds.context_limit(max(1, len(running)))
        for row in prefills:
            row.scheduled = 0
            if budget.kind != "decode":
                self._take_chunk(row, budget, limit)

    def _within_volume(self, budget: _Budget) -> list[Request]:
        """The first running rows of the step's kind that the volume has room for; it always has for the first."""
        bounds = self.bounds
        size, multiple = bounds.block_size, bounds.chunk_multiple
        chosen: list[Request] = []
        longest = 0
        for row in self._running:
            row.scheduled = 0
            if budget.kind != "mixed" and (row.pending == 1) != (budget.kind == "decode"):
                continue
            context = -(-(row.computed + min(row.pending, multiple)) // size) * size
            if (len(chosen) + 1) * max(longest, context) <= (bounds.volume or 0):
                longest = max(longest, context)
                chosen.append(row)
            else:
                budget.closed = True
        return chosen

    def _take_chunk(self, row: Request, budget: _Budget, context_limit: int) -> bool:
        """Schedule the next chunk of a prompt: as much as the budget allows. False if that is nothing."""
        pending = row.pending
        count = min(pending, budget.tokens, context_limit - row.computed)
        scores = row.params.prompt_logprobs is not None
        if scores:  # every token of the chunk takes a row of logits, and one is there for each row of the step
            count = min(count, budget.spare_samples + 1)
        if budget.allowance is not None and count > 0:
            count = budget.allowance.clip(count, row.computed)
        if count < pending:
            count = 0 if self.bounds.whole else count - count % self.bounds.chunk_multiple
        if count <= 0 or (pending > 1 and budget.prefill_rows == 0):
            budget.closed = True
            return False
        row.scheduled = count
        budget.tokens -= count
        if budget.allowance is not None:
            budget.allowance.take(count, row.computed)
        if scores:
            budget.spare_samples -= count - 1
        if pending > 1:
            budget.prefill_rows -= 1
        return True

    def _grow(self, row: Request, budget: _Budget) -> bool:
        """Get slots for the row's scheduled tokens, preempting from the tail. False if that met the row itself."""
        while not self.kv.grow(row.kv, row.computed, row.scheduled):
            budget.closed = True
            victim = self._running.pop()
            self._preempt(victim)
            if victim is row:
                return False
        return True

    def _preempt(self, row: Request) -> None:
        """Take the row's blocks; it will compute all of its tokens again (less what the prefix index still has)."""
        self._leave(row)
        row.status = Status.WAITING
        row.computed = row.scheduled = 0
        row.pending = len(row.tokens)
        row.preempted += 1
        if row.prompt_logprobs is not None:
            row.prompt_logprobs = []
        self._preemptions += 1
        self._waiting.push(row)

    def _admit(self, budget: _Budget, batch: list[Request]) -> None:
        """Let waiting requests in, in order, until one does not fit."""
        kv, bounds = self.kv, self.bounds
        while budget.tokens and kv.pool.free:
            row = self._waiting.head()
            if row is None or self._row_slots + row.row_slots > bounds.row_slots:
                return
            # A prompt that is to be scored must be computed, not found.
            cached = kv.match(row.kv, row.tokens) if row.params.prompt_logprobs is None else 0
            row.computed, row.pending = cached, len(row.tokens) - cached
            if budget.kind != "mixed" and (row.pending == 1) != (budget.kind == "decode"):
                return
            limit = bounds.context_limit(budget.rows + 1)
            if budget.longest > limit or not self._take_chunk(row, budget, limit):
                return
            if not kv.admit(row.kv, cached, row.scheduled):
                row.scheduled = 0
                return
            self._waiting.pop()
            row.status = RUNNING
            if not row.preempted:
                row.cached_tokens = cached
                self._admission.admitted()
            insort(self._running, row, key=_key)
            self._row_slots += row.row_slots
            self._unseen.append(row)
            batch.append(row)
            budget.rows += 1
            budget.longest = max(budget.longest, cached + row.scheduled)

    def _plan(self, batch: list[Request]) -> StepPlan:
        counts = [row.scheduled for row in batch]
        computed = [row.computed for row in batch]
        samples = [row.branches if row.scheduled == row.pending else 0 for row in batch]
        logits = len(samples) - samples.count(0)
        for row, sampled in zip(batch, samples, strict=True):
            if row.params.prompt_logprobs is not None:
                logits += row.scheduled - (1 if sampled else 0)
        longest = max([c + n for c, n in zip(computed, counts, strict=True)])
        bucket = self.bounds.buckets.pick(sum(counts), len(batch), logits, -(-longest // self.kv.block_size))
        updates, copies = self.kv.take_changes()
        released, self._released = self._released, []
        return StepPlan(
            rows=[row.id for row in batch],
            counts=counts,
            computed=computed,
            samples=samples,
            bucket=bucket,
            released=released,
            new=self._introduce() if self._unseen else [],
            updates=updates,
            copies=copies,
        )

    def _introduce(self) -> list[NewRow]:
        """The rows of the step that the runner has not seen. A fork that is held back is introduced when it runs."""
        new = []
        for row in self._unseen:
            if row.scheduled:
                row.kv.tracked = True
                new.append(
                    NewRow(
                        id=row.id,
                        tokens=list(row.tokens),
                        prompt_length=row.prompt_length,
                        params=row.params,
                        seed=row.seed,
                        sample_index=row.index,
                        end_ids=row.stops,
                        tables=[list(table) for table in row.kv.tables],
                        constraint=row.constraint,
                    )
                )
        self._unseen = [row for row in self._unseen if not row.kv.tracked]
        return new

    # -- taking a step's result --------------------------------------------------------------------

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """The step of this plan took so long, from its planning to its result."""
        if self.config.itl_target is not None:
            self.times.observe(shape_of(plan), seconds)

    def update(self, plan: StepPlan, result: StepResult, now: float = 0.0) -> list[TokenEvent]:
        """Take the result of the plan that ``schedule`` returned last; its events, in the plan's row order.

        ``now`` is when it came, in seconds on any clock that does not go back; latencies are counted by it.
        """
        batch, self._in_flight = self._in_flight, None
        assert batch is not None and len(batch) == len(plan.rows), "the plan is not the one in flight"
        events: list[TokenEvent] = []
        failed = result.failed
        vectors = {} if result.pooled is None else dict(zip(plan.rows, result.pooled, strict=True))
        before: defaultdict[float | None, int] = defaultdict(int)  # rows with a token, by when they had the one before
        for row, tokens, logprobs, scores in zip(
            batch, result.tokens, result.logprobs, result.prompt_logprobs, strict=True
        ):
            if row.status is not RUNNING:
                continue  # aborted in flight
            if failed and row.id in failed:
                events += self._end_choices(row, "error", result)
                continue
            row.computed = computed = row.computed + row.scheduled
            row.pending -= row.scheduled
            if computed >= row.kv.boundary:
                self.kv.commit(row.kv, row.tokens, computed)
            if scores and row.prompt_logprobs is not None:
                row.prompt_logprobs += scores
            if row.pending:
                continue  # a chunk, and not the prompt's last
            if row.branches != 1:
                row.token_at = now
                first = self._first_tokens(row, tokens, logprobs)
                first[0].pooled = vectors.get(row.id)
                events += first
                continue
            token = tokens[0]
            row.tokens.append(token)
            row.pending = 1
            before[row.token_at] += 1
            row.token_at = now
            event = TokenEvent(row.root_id, row.index, (token,), cached_tokens=row.cached_tokens)
            events.append(event)
            if logprobs:
                event.logprobs = tuple(logprobs)
            if row.prompt_logprobs is not None:
                self._attach_scores(row, event)
            if row.constraint is not None or token in row.stops or len(row.tokens) >= row.max_length:
                self._conclude(row, event)
        self._inter_token.add(before, now)
        self._admission.tick(now)
        if self._ended:
            self._settle()
        return events

    def _settle(self) -> None:
        """Forget rows that have ended."""
        self._running = [row for row in self._running if row.status is RUNNING]
        self._ended = False

    def _first_tokens(self, row: Request, tokens: list[int], logprobs: list[TokenLogprobs] | None) -> list[TokenEvent]:
        """The prompt is complete of a request with n > 1, which forks now, or of one that generates nothing."""
        if row.branches == 0:
            return self._end_choices(row, "length")
        self._row_slots += 1 - row.row_slots
        row.branches = 1
        # All forks before any ending: the blocks must still be there.
        children = [row.fork(i, tokens[i], self.kv.fork(row.kv, f"{row.id}:{i}")) for i in range(1, row.params.n)]
        row.tokens.append(tokens[0])
        row.pending = 1
        for child in children:
            child.status = RUNNING
            insort(self._running, child, key=_key)
        self._row_slots += len(children)
        self._unseen += children
        self._groups[row.root_id] += children
        events = []
        for i, member in enumerate([row, *children]):
            scored = (logprobs[i],) if logprobs else None
            event = TokenEvent(row.root_id, i, (tokens[i],), scored, cached_tokens=row.cached_tokens)
            if member.prompt_logprobs is not None:
                self._attach_scores(member, event)
            self._conclude(member, event)
            events.append(event)
        return events

    def _attach_scores(self, row: Request, event: TokenEvent) -> None:
        event.prompt_logprobs = tuple(row.prompt_logprobs or ())
        row.prompt_logprobs = None

    # -- endings -----------------------------------------------------------------------------------

    def _conclude(self, row: Request, event: TokenEvent) -> None:
        """Move the row's constraint on by its last token; end the row if that token does, and say so in the event."""
        token = event.token_ids[-1]
        complete = row.constraint is not None and row.constraint.accept(token)
        reason = row.finish_reason(token, complete)
        if reason is not None:
            event.finish_reason, event.stop_reason = reason
            event.complete = complete and token not in row.eos_ids
            self._end(row)

    def _end_choices(self, row: Request, reason: FinishReason, fault: StepResult | None = None) -> list[TokenEvent]:
        """End the row, and all choices that would fork from it, without a token; ``fault`` says why it failed."""
        first = row.index
        events = [
            TokenEvent(row.root_id, i, (), finish_reason=reason, cached_tokens=row.cached_tokens)
            for i in range(first, first + row.choices)
        ]
        if fault is not None:
            for event in events:
                event.error, event.param = fault.failed[row.id], fault.refused.get(row.id)
                event.refused = row.id in fault.refused
        elif row.prompt_logprobs is not None:
            self._attach_scores(row, events[0])
        self._end(row)
        return events

    def _end(self, row: Request) -> None:
        """The row is FINISHED. It stays in ``_running`` until `_settle`."""
        was_running = row.status is RUNNING
        row.status = Status.FINISHED
        if was_running:
            self._ended = True
            self._leave(row)
        else:
            self._waiting.discard(row)
        family = self._groups[row.root_id]
        family.remove(row)
        if not family:
            del self._groups[row.root_id]
            self._row_ids.difference_update(row_ids(row.root_id, row.params.n))

    def _leave(self, row: Request) -> None:
        """Give back what a running row holds: its row_slots, its place in the runner, its blocks."""
        self._row_slots -= row.row_slots
        if row.kv.tracked:
            self._released.append(row.id)
        else:
            self._unseen.remove(row)
        self.kv.free(row.kv)
