"""Batch: after any sequence of plans the step's arrays are those of a construction token by token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runner.naive_batch import NaiveBatch, compare

from octavo.platform import Bucket
from octavo.runner import Batch
from octavo.sampling import SamplingParams
from octavo.step_plan import BlockUpdate, NewRow, StepPlan

VOCAB, MAX_LEN, MAX_ROWS, BLOCK = 50, 21, 5, 4

params = st.one_of(
    st.just(SamplingParams(temperature=0.0)),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, 1.0]),
        top_p=st.sampled_from([1.0, 0.9]),
        top_k=st.sampled_from([-1, 0, 3, 2**40]),
        min_p=st.sampled_from([0.0, 0.1]),
        presence_penalty=st.sampled_from([0.0, 0.0, 0.5]),
        frequency_penalty=st.sampled_from([0.0, 0.0, -0.5]),
        repetition_penalty=st.sampled_from([1.0, 1.0, 1.2]),
        logit_bias=st.none() | st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-1.0, 2.5]), max_size=2),
        min_tokens=st.sampled_from([0, 0, 2]),
        stop_token_ids=st.lists(st.integers(0, VOCAB - 1), max_size=2),
        logprobs=st.none() | st.integers(0, 3),
        prompt_logprobs=st.none() | st.integers(0, 3),
    ),
)


class Simulation:
    """Plans as a scheduler might make them, at random, given to both implementations."""

    def __init__(self, data: st.DataObject, groups: int) -> None:
        self.data = data
        self.groups = groups
        self.naive = NaiveBatch(BLOCK, groups)
        self.batch = Batch(MAX_ROWS, MAX_LEN, BLOCK, groups)
        self.computed: dict[str, int] = {}
        self.forks: list[NewRow] = []
        self.names = 0
        self.blocks = 0

    def draw(self, strategy: Any) -> Any:
        return self.data.draw(strategy)

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def block(self) -> int:
        self.blocks += 1
        return self.blocks

    def table(self, tokens: int) -> list[int]:
        """Blocks for so many tokens, and maybe one to spare."""
        table = [self.block() for _ in range(-(-tokens // BLOCK))]
        return [*table, self.block()] if self.chance() and len(table) * BLOCK < MAX_LEN else table

    def step(self) -> None:
        plan = StepPlan(rows=[], counts=[], computed=[], samples=[], bucket=Bucket())
        self.release(plan)
        self.introduce(plan)
        self.naive.apply(plan)  # what follows needs the rows; the runner gets the plan when it is whole
        self.choose(plan)
        if not plan.rows:
            self.batch.apply(plan)
            return
        plan.copies = self.draw(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=2))
        sizes = Bucket(*self.sizes(plan))
        spare = self.draw(st.none() | st.tuples(*[st.integers(0, 2)] * 4))
        if spare is not None:
            plan.bucket = Bucket(*(a + b for a, b in zip(sizes, spare, strict=True)))  # type: ignore[operator]
        self.batch.apply(plan)
        step, draws = self.batch.build(plan)
        assert draws.batch is step.sampling
        assert step.bucket == plan.bucket
        compare(step, self.naive.expect(plan))
        self.take(plan)

    def release(self, plan: StepPlan) -> None:
        for name in sorted(self.naive.rows):
            if self.draw(st.integers(0, 5)) == 0:
                plan.released.append(name)
                if self.chance():  # preempted, and back at once with what it has made
                    row = self.naive.rows[name]
                    again = replace(row.new, tokens=list(row.tokens), tables=self.tables(len(row.tokens)))
                    plan.new.append(again)
                    self.computed[name] = 0
        if self.chance():
            plan.released.append("a row that never ran")

    def tables(self, tokens: int) -> list[list[int]]:
        return [self.table(tokens) for _ in range(self.groups)]

    def introduce(self, plan: StepPlan) -> None:
        room = MAX_ROWS - len(set(self.naive.rows) - set(plan.released)) - len(plan.new)
        while self.forks and room:
            plan.new.append(self.forks.pop(0))
            room -= 1
        while room and self.chance():
            self.names += 1
            room -= 1
            prompt = self.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=MAX_LEN - 4))
            seed, ends = self.draw(st.integers(-(2**63), 2**64 - 1)), frozenset({self.draw(st.integers(0, VOCAB - 1))})
            self.computed[f"r{self.names}"] = self.draw(st.integers(0, len(prompt) - 1))  # a prefix may be cached
            plan.new.append(
                NewRow(
                    f"r{self.names}", prompt, len(prompt), self.draw(params), seed, 0, ends, self.tables(len(prompt))
                )
            )

    def choose(self, plan: StepPlan) -> None:
        for name in self.draw(st.permutations(sorted(self.naive.rows))):
            row, computed = self.naive.rows[name], self.computed[name]
            if len(row.tokens) > MAX_LEN or (plan.rows and self.draw(st.integers(0, 3)) == 0):
                continue
            pending = len(row.tokens) - computed
            count = pending if self.chance() else self.draw(st.integers(1, pending))
            plan.rows.append(name)
            plan.computed.append(computed)
            plan.counts.append(count)
            forking = row.new.sample_index == 0 and len(row.tokens) == row.new.prompt_length
            plan.samples.append(0 if count < pending else self.draw(st.sampled_from([1, 1, 0, 3] if forking else [1])))
            self.update(plan, name, computed + count)
        update_rows = StepPlan([], [], [], [], Bucket(), updates=plan.updates)
        self.naive.apply(update_rows)

    def update(self, plan: StepPlan, name: str, context: int) -> None:
        """Grow the tables to the context; replace a block, or lose one to the window."""
        for group, table in enumerate(self.naive.rows[name].tables):
            short = -(-context // BLOCK) - len(table)
            if short > 0:
                plan.updates.append(BlockUpdate(name, group, len(table), [self.block() for _ in range(short)]))
            if table and self.chance():
                at = self.draw(st.integers(0, len(table) - 1))
                plan.updates.append(BlockUpdate(name, group, at, [self.draw(st.sampled_from([0, self.block()]))]))

    def sizes(self, plan: StepPlan) -> tuple[int, int, int, int]:
        expected = self.naive.expect(plan)["step"]
        width = -(-max(expected["context_lens"]) // BLOCK)
        return len(expected["tokens"]), len(plan.rows), len(expected["sample_rows"]), width

    def take(self, plan: StepPlan) -> None:
        tokens = [[self.draw(st.integers(0, VOCAB - 1)) for _ in range(n)] for n in plan.samples]
        parents = {name: list(self.naive.rows[name].tokens) for name in plan.rows}
        self.naive.record(plan, tokens)
        self.batch.record(plan, tokens)
        for name, count, sampled in zip(plan.rows, plan.counts, tokens, strict=True):
            self.computed[name] += count
            for fork in range(1, len(sampled)):
                new, made = self.naive.rows[name].new, [*parents[name], sampled[fork]]
                child = replace(new, id=f"{name}:{fork}", tokens=made, sample_index=fork, tables=self.tables(len(made)))
                self.forks.append(child)
                self.computed[child.id] = len(made) - 1
            if self.computed[name] == len(self.naive.rows[name].tokens):  # scored, and not sampled from: it is done
                self.computed[name] -= 1


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_any_sequence_of_plans_gives_the_arrays_that_the_contract_defines(data: st.DataObject, groups: int) -> None:
    simulation = Simulation(data, groups)
    for _ in range(8):
        simulation.step()


def new_row(name: str, tokens: list[int], **params: Any) -> NewRow:
    tables = [[10 + i for i in range(-(-len(tokens) // BLOCK))]]
    return NewRow(name, tokens, len(tokens), SamplingParams(**params), 7, 0, frozenset({2}), tables)


def decode(batch: Batch, *rows: NewRow, **plan: Any) -> Any:
    """A step that computes the last token of each row and samples one."""
    whole = StepPlan(
        rows=[r.id for r in rows],
        counts=[1] * len(rows),
        computed=[len(r.tokens) - 1 for r in rows],
        samples=[1] * len(rows),
        bucket=Bucket(),
        new=list(rows),
        **plan,
    )
    batch.apply(whole)
    return batch.build(whole)[0]


def test_greedy_rows_make_a_plain_greedy_batch() -> None:
    batch = Batch(4, MAX_LEN, BLOCK, 1)
    step = decode(batch, new_row("a", [1, 2], temperature=0.0), new_row("b", [3], temperature=0.0))
    assert step.sampling.plain_greedy
    assert decode(batch, new_row("c", [1], temperature=0.0), new_row("d", [1])).sampling.plain_greedy is False


@pytest.mark.parametrize(
    "asks",
    [{"logprobs": 0}, {"prompt_logprobs": 0}, {"logit_bias": {3: 1.0}}, {"min_tokens": 1}, {"repetition_penalty": 1.1},
     {"presence_penalty": 0.1}, {"frequency_penalty": 0.1}],
    ids=lambda asks: next(iter(asks)),
)  # fmt: skip
def test_a_greedy_row_that_asks_for_more_is_not_plain(asks: dict[str, Any]) -> None:
    batch = Batch(4, MAX_LEN, BLOCK, 1)
    assert not decode(batch, new_row("a", [1, 2, 3], temperature=0.0, **asks)).sampling.plain_greedy


def test_a_slot_keeps_nothing_of_the_row_before() -> None:
    batch = Batch(1, MAX_LEN, BLOCK, 1)
    decode(batch, new_row("long", list(range(20)), temperature=0.3, top_k=5, logprobs=2))
    short, other = new_row("short", [1]), StepPlan([], [], [], [], Bucket(), released=["long"])
    short.tables = [[99]]
    batch.apply(other)
    batch.apply(StepPlan([], [], [], [], Bucket(), new=[short]))
    plan = StepPlan(["short"], [1], [0], [1], Bucket(blocks=5))
    step = batch.build(plan)[0]
    assert step.block_tables.tolist() == [[[99, 0, 0, 0, 0]]]
    assert (step.sampling.top_k[0], step.sampling.logprobs[0], step.sampling.temperature[0]) == (0, -1, 1.0)


def test_a_slot_keeps_no_block_that_an_update_brought() -> None:
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    decode(batch, new_row("grown", [1, 2]), updates=[BlockUpdate("grown", 0, 1, [50, 51])])
    step = decode(batch, new_row("short", [1]), new_row("long", list(range(12))), released=["grown"])
    assert step.block_tables.tolist() == [[[10, 0, 0], [10, 11, 12]]]


def test_a_shorter_row_beside_a_longer_one_shows_null_blocks() -> None:
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    decode(batch, new_row("old", list(range(20))))
    step = decode(batch, new_row("long", list(range(17))), new_row("short", [1, 2]), released=["old"])
    assert step.block_tables.tolist() == [[[10, 11, 12, 13, 14], [10, 0, 0, 0, 0]]]


def test_min_tokens_masks_what_would_end_the_row_until_they_are_made() -> None:
    batch = Batch(1, MAX_LEN, BLOCK, 1)
    row = new_row("a", [5, 6], min_tokens=2, stop_token_ids=[9], temperature=0.0)
    masked = []
    for made in range(4):
        plan = StepPlan(["a"], [1], [1 + made], [1], Bucket(), new=[row] if made == 0 else [])
        batch.apply(plan)
        draws, tokens, values = batch.build(plan)[0].sampling.bias
        assert (values == -np.inf).all()
        assert (draws == 0).all()
        masked.append(sorted(tokens.tolist()))
        batch.record(plan, [[7]])
    assert masked == [[2, 9], [2, 9], [], []]


def test_min_tokens_counts_what_was_made_before_a_preemption() -> None:
    batch = Batch(1, MAX_LEN, BLOCK, 1)
    row = replace(new_row("a", [5, 6, 7, 7], min_tokens=2), prompt_length=2)
    assert len(decode(batch, row).sampling.bias[0]) == 0


def test_rows_come_and_go_within_the_limit() -> None:
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    for i in range(20):
        released = [f"r{i - 2}", f"r{i - 2}"] if i >= 2 else []
        step = decode(batch, new_row(f"r{i}", [i, i + 1]), released=released)
        assert step.tokens.tolist() == [i + 1]


def test_a_row_may_fill_the_context() -> None:
    batch = Batch(1, MAX_LEN, BLOCK, 1)
    row = new_row("a", list(range(MAX_LEN)))
    row.tables = [[1, 2, 3, 4, 5, 6]]
    step = decode(batch, row)
    assert step.positions.tolist() == [MAX_LEN - 1]
    batch.record(StepPlan(["a"], [1], [MAX_LEN - 1], [1], Bucket()), [[8]])


def test_the_arrays_of_a_step_do_not_change_with_the_next() -> None:
    """They are the device's until the step is collected; the next step is built meanwhile."""
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    step = decode(batch, new_row("a", [5, 6], temperature=0.5), new_row("b", [1, 2, 3], frequency_penalty=0.5))
    before = {n: getattr(step, n).copy() for n in ("tokens", "slots", "block_tables", "positions")}
    history = step.sampling.history[2].copy()
    plan = StepPlan(["c"], [1], [0], [1], Bucket(), released=["a", "b"], new=[new_row("c", [9])])
    batch.apply(plan)
    batch.build(plan)
    assert all(np.array_equal(getattr(step, n), x) for n, x in before.items())
    assert np.array_equal(step.sampling.history[2], history)
    assert step.sampling.temperature.tolist() == [0.5, 1.0]


def test_a_step_that_exceeds_its_bucket_is_our_own_bug() -> None:
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    for bucket in (Bucket(tokens=2), Bucket(rows=0), Bucket(samples=0), Bucket(blocks=0)):
        plan = StepPlan(["a"], [3], [0], [1], bucket, new=[new_row("a", [1, 2, 3])])
        batch.apply(plan)
        with pytest.raises(AssertionError, match="does not fit bucket"):
            batch.build(plan)
        batch.apply(StepPlan([], [], [], [], Bucket(), released=["a"]))


def test_a_row_is_new_once() -> None:
    batch = Batch(2, MAX_LEN, BLOCK, 1)
    decode(batch, new_row("a", [1]))
    with pytest.raises(AssertionError, match="row a is new, but was not released"):
        decode(batch, new_row("a", [1]))
