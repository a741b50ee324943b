"""A runner with no model: it keeps the KV cache as a picture that can be checked.

Each slot of the simulated cache holds a fingerprint of the tokens from the sequence's start up to
its own, which is what a real slot's keys and values depend on. A step first *reads*: every position
that a new token can see must hold the right fingerprint, found through the row's own block table.
Then it writes. The next token is a function of the fingerprint alone, so whatever the schedule was, a
request must get the tokens of `serial_output`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.kv import NULL_BLOCK, KVManager
from octavo.sampling import SamplingParams
from octavo.scheduler import Scheduler, TokenEvent
from octavo.step_plan import NewRow, StepPlan, StepResult, TokenLogprobs

VOCAB = 50
EOS = 0
START = 17


def fingerprint(parent: int, token: int) -> int:
    return (parent * 6364136223846793005 + token * 1442695040888963407 + 1013904223) % 2**61


def fingerprints(tokens: Sequence[int]) -> list[int]:
    prints, state = [], START
    for token in tokens:
        state = fingerprint(state, token)
        prints.append(state)
    return prints


def next_token(state: int, seed: int, sample_index: int) -> int:
    return (state // 7 + seed * 31 + sample_index * 131) % VOCAB


def score(state: int, token: int) -> TokenLogprobs:
    """Stands for the logprob of ``token`` after the tokens that ``state`` is the fingerprint of."""
    return TokenLogprobs(token, -float(state % 1000), 1)


def serial_output(
    prompt: Sequence[int], params: SamplingParams, seed: int, context: int, eos: frozenset[int]
) -> list[list[int]]:
    """What each choice generates when it runs alone, worked out with no cache at all."""
    limit = context if params.max_tokens is None else min(context, len(prompt) + params.max_tokens)
    stops = params.stop_ids if params.ignore_eos else params.stop_ids | eos
    outputs = []
    for i in range(params.n):
        tokens, state = list(prompt), fingerprints(prompt)[-1]
        while len(tokens) < limit:
            tokens.append(pick_token(state, len(tokens) + 1 - len(prompt), params, seed, i, stops))
            state = fingerprint(state, tokens[-1])
            if tokens[-1] in stops:
                break
        outputs.append(tokens[len(prompt) :])
    return outputs


def pick_token(state: int, nth: int, params: SamplingParams, seed: int, i: int, stops: frozenset[int]) -> int:
    """The ``nth`` token (from 1) of choice ``i``; ids that end the sequence are masked before ``min_tokens``."""
    token = next_token(state, seed, i)
    while nth < params.min_tokens and token in stops:
        token = (token + 1) % VOCAB
    return token


@dataclass
class Row:
    new: NewRow
    tokens: list[int]
    prints: list[int]
    tables: list[list[int]]

    def append(self, token: int) -> None:
        self.tokens.append(token)
        self.prints.append(fingerprint(self.prints[-1], token))


class SimulatedRunner:
    """Runs plans; asserts on anything that a real runner would silently get wrong."""

    def __init__(self, kv: KVManager) -> None:
        self.kv = kv
        self.size = kv.block_size
        self.rows: dict[str, Row] = {}
        self.cells: list[list[int | None]] = [[None] * self.size for _ in range(kv.pool.num_blocks)]
        self.fail_next: set[str] = set()

    def run(self, plan: StepPlan) -> StepResult:
        self._apply(plan)
        for source, destination in plan.copies:
            self.cells[destination] = list(self.cells[source])
        named = Counter(b for row in self.rows.values() for table in row.tables for b in table)
        work = [(self.rows[i], c, n) for i, c, n in zip(plan.rows, plan.computed, plan.counts, strict=True)]
        for row, computed, count in work:
            self._read(row, computed, count)
        for row, computed, count in work:
            self._write(row, computed, count, named)
        for row, computed, count in work:  # nobody wrote into what another row sees
            self._read(row, computed + count - 1, 1, written=computed + count)
        return self._sample(plan)

    def poison_free_blocks(self) -> None:
        """Make what no table names and no index promises unreadable; to be called when a step has been planned."""
        for block, refs in enumerate(self.kv.pool.refs):
            if refs == 0 and block not in self.kv.index:
                self.cells[block] = [None] * self.size

    def _apply(self, plan: StepPlan) -> None:
        for row_id in plan.released:
            del self.rows[row_id]
        for new in plan.new:
            assert new.id not in self.rows, f"{new.id} was introduced twice"
            self.rows[new.id] = Row(
                new, list(new.tokens), fingerprints(new.tokens), [list(table) for table in new.tables]
            )
        for update in plan.updates:
            table = self.rows[update.id].tables[update.group]
            assert update.start <= len(table), "a table has no holes"
            table[update.start : update.start + len(update.blocks)] = update.blocks
        assert len(set(plan.rows)) == len(plan.rows)

    def _read(self, row: Row, computed: int, count: int, written: int | None = None) -> None:
        expected = row.prints
        known = computed if written is None else written
        for g, group in enumerate(self.kv.groups):
            for position in range(group.first_visible(computed), known):
                block = row.tables[g][position // self.size]
                assert block != NULL_BLOCK, f"{row.new.id}: position {position} is visible and was freed"
                assert self.cells[block][position % self.size] == expected[position], (
                    f"{row.new.id}: position {position} of group {g} (block {block}) holds something else"
                )

    def _write(self, row: Row, computed: int, count: int, named: Counter[int]) -> None:
        expected = row.prints
        for table in row.tables:
            for position in range(computed, computed + count):
                block = table[position // self.size]
                assert block != NULL_BLOCK
                assert named[block] == 1, f"{row.new.id} writes into block {block}, which another table names too"
                self.cells[block][position % self.size] = expected[position]

    def _sample(self, plan: StepPlan) -> StepResult:
        result = StepResult([], [], [])
        for row_id, computed, count, samples in zip(plan.rows, plan.computed, plan.counts, plan.samples, strict=True):
            row = self.rows[row_id]
            new, end = row.new, computed + count
            assert samples == 0 or end == len(row.tokens), "a row is sampled after its last token only"
            if row_id in self.fail_next:
                result.failed[row_id] = "logits are not finite"
                samples = 0
            picked = [
                pick_token(
                    row.prints[-1],
                    len(row.tokens) + 1 - new.prompt_length,
                    new.params,
                    new.seed,
                    new.sample_index + i,
                    new.end_ids,
                )
                for i in range(samples)
            ]
            prints = row.prints
            wants = new.params.logprobs is not None
            result.tokens.append(picked)
            result.logprobs.append([score(prints[-1], token) for token in picked] if wants else None)
            scored = range(computed + 1, min(end + 1, new.prompt_length))
            result.prompt_logprobs.append(
                [score(prints[p - 1], row.tokens[p]) for p in scored]
                if new.params.prompt_logprobs is not None
                else None
            )
            if picked:
                row.append(picked[0])
        self.fail_next.clear()
        return result


def check_limits(plan: StepPlan, scheduler: Scheduler, lengths: dict[str, int]) -> None:
    """The plan obeys every limit of the scheduler. ``lengths``: tokens that each row has, computed or not."""
    config, limits = scheduler.config, scheduler.config.limits
    size = scheduler.kv.block_size
    tokens, rows = sum(plan.counts), len(plan.rows)
    ends = [c + n for c, n in zip(plan.computed, plan.counts, strict=True)]
    assert rows >= 1 and min(plan.counts) >= 1
    assert tokens <= min(config.max_num_batched_tokens, limits.max_tokens or tokens)
    assert rows <= min(config.max_num_seqs, limits.max_rows or rows)
    assert max(ends) <= min(config.max_model_len, limits.max_context or config.max_model_len)
    prefills = [lengths[i] - c > 1 for i, c in zip(plan.rows, plan.computed, strict=True)]
    if limits.prefill_xor_decode:
        assert all(prefills) or not any(prefills)
    assert sum(prefills) <= (limits.max_prefill_rows or rows)
    for row_id, count, end in zip(plan.rows, plan.counts, ends, strict=True):
        assert end == lengths[row_id] or count % limits.chunk_multiple == 0
    blocks = -(-max(ends) // size)
    assert rows * blocks * size <= (limits.max_volume or rows * blocks * size)
    logits = logits_rows(plan, scheduler)
    for needed, have in zip((tokens, rows, logits, blocks), plan.bucket, strict=True):
        assert have is None or needed <= have


def logits_rows(plan: StepPlan, scheduler: Scheduler) -> int:
    scored = {
        row.id for family in scheduler._groups.values() for row in family if row.params.prompt_logprobs is not None
    }
    return sum(
        count if row_id in scored else min(1, samples)
        for row_id, count, samples in zip(plan.rows, plan.counts, plan.samples, strict=True)
    )


def check_accounts(scheduler: Scheduler) -> None:
    """Between two steps: blocks, references and row_slots add up, and waste is within its bound."""
    kv, pool = scheduler.kv, scheduler.kv.pool
    rows = [row for family in scheduler._groups.values() for row in family]
    named = Counter(b for row in rows for table in row.kv.tables for b in table if b != NULL_BLOCK)
    assert pool.free + pool.used == pool.num_blocks - 1
    assert pool.used == len(named)
    assert [named[b] for b in range(1, pool.num_blocks)] == pool.refs[1:]
    assert scheduler._row_slots == sum(row.row_slots for row in scheduler._running)
    assert {r.id for r in scheduler._running if not r.kv.tracked} == {r.id for r in scheduler._unseen}
    assert scheduler._running == sorted(scheduler._running, key=lambda row: row.key)
    filled: dict[int, int] = {}  # block -> tokens in it
    for row in rows:
        for table in row.kv.tables:
            for b, block in enumerate(table):
                if block != NULL_BLOCK:
                    fill = min(kv.block_size, max(0, row.kv.length - b * kv.block_size))
                    filled[block] = max(fill, filled.get(block, 0))
    waste = scheduler.metrics().kv.wasted_slots
    assert waste == pool.used * kv.block_size - sum(filled.values())
    assert waste <= len(scheduler._running) * len(kv.groups) * (kv.block_size - 1)


class Bench:
    """A scheduler with its simulated runner, and everything that came out of them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.runner = SimulatedRunner(scheduler.kv)
        self.outputs: dict[tuple[str, int], list[int]] = {}
        self.last: dict[tuple[str, int], TokenEvent] = {}
        self.events: list[TokenEvent] = []
        self.plans: list[StepPlan] = []
        self.in_flight: StepPlan | None = None
        self.seconds: Callable[[StepPlan], float] = lambda plan: 1e-3 * sum(plan.counts)
        """How long a step takes."""
        self.now = 0.0

    def start(self) -> StepPlan | None:
        oldest = self.scheduler._running[0] if self.scheduler._running else None
        before = {row.id for row in self.scheduler._running}
        preemptions = self.scheduler.metrics().preemptions
        plan = self.in_flight = self.scheduler.schedule()
        assert (plan is None) == (self.scheduler.unfinished == 0)
        if plan is not None:
            lengths = {r.id: len(r.tokens) for family in self.scheduler._groups.values() for r in family}
            check_limits(plan, self.scheduler, lengths)
            if oldest is not None and not self.scheduler.config.limits.prefill_xor_decode:
                assert oldest.id in plan.rows, "the first row by key runs in every step"
            if self.scheduler.metrics().preemptions > preemptions:
                assert {new.id for new in plan.new} <= before, "a step that takes blocks away admits nobody"
            self.plans.append(plan)
            self.runner.poison_free_blocks()
        return plan

    def finish(self) -> list[TokenEvent]:
        plan, self.in_flight = self.in_flight, None
        assert plan is not None
        self.scheduler.observe(plan, self.seconds(plan))
        self.now += self.seconds(plan)
        events = self.scheduler.update(plan, self.runner.run(plan), self.now)
        for event in events:
            key = event.request_id, event.index
            assert key not in self.last or self.last[key].finish_reason is None, "a choice goes on after its end"
            self.outputs.setdefault(key, []).extend(event.token_ids)
            self.last[key] = event
        self.events += events
        check_accounts(self.scheduler)
        return events

    def step(self) -> list[TokenEvent]:
        return self.finish() if self.start() is not None else []

    def drain(self, bound: int = 10_000) -> int:
        """Run to the end; returns the number of steps. Fails if ``bound`` are not enough."""
        steps = 0
        while self.scheduler.unfinished:
            steps += 1
            assert steps <= bound, f"{self.scheduler.unfinished} requests unfinished after {bound} steps"
            self.step()
        return steps
