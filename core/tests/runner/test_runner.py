"""Runner: plans in, tokens out, on the reference device and on devices made to misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from graph.decoders import Shape, decoder, random_weights
from runner.draws import Draw, make_batch

from octavo.graph import Graph, graph_hash
from octavo.graph.reference import run_sequence
from octavo.platform import Bucket, KVStore, MemoryReport, ReferenceDevice, Samples, StepInput, StepOutput
from octavo.quant import F32, WeightTensor
from octavo.runner import Batch, HostSampler, Runner, kv_layout, load_runner
from octavo.runner.batch import Draws
from octavo.runner.null import NullExecutable
from octavo.runner.runner import sort_draws
from octavo.sampling import SamplingParams
from octavo.step_plan import NewRow, StepPlan, StepResult

BLOCK, BLOCKS, MAX_LEN = 4, 200, 60
GREEDY = SamplingParams(temperature=0.0)


def stored(graph: Graph) -> dict[str, WeightTensor]:
    weights = {name: w.astype("<f4") for name, w in random_weights(graph).items()}
    return {name: WeightTensor(F32, w.shape, w.view(np.uint8)) for name, w in weights.items()}


def ignore(what: str, done: int, total: int) -> None: ...


@dataclass
class Served:
    """A runner on the reference device, and the least of a scheduler: rows, tables, what is computed."""

    graph: Graph
    buckets: tuple[Bucket, ...] = (Bucket(),)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    tables: dict[str, list[list[int]]] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    new: list[NewRow] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        device = ReferenceDevice(lambda: MemoryReport(1 << 30, 1 << 30))
        layout = kv_layout(self.graph, BLOCK, "f32")
        executables, self.fused = load_runner(device, self.graph, stored(self.graph), self.buckets, layout, ignore)
        self.groups = len(self.graph.kv_windows)
        store = device.allocate_kv(layout, BLOCKS)
        self.runner = Runner(executables, store, Batch(8, MAX_LEN, BLOCK, self.groups), device.sampler())
        self.free = (1 + np.random.default_rng(0).permutation(BLOCKS - 1)).tolist()

    def add(
        self, name: str, tokens: Sequence[int], params: SamplingParams, *, prompt: int | None = None, **more: Any
    ) -> None:
        blocks = -(-(len(tokens) + 12) // BLOCK)  # room for what it will make
        self.tokens[name], self.computed[name] = list(tokens), more.pop("computed", 0)
        self.tables[name] = more.pop("tables", None) or [
            [self.free.pop() for _ in range(blocks)] for _ in range(self.groups)
        ]
        row = {"seed": 0, "sample_index": 0, "end_ids": frozenset(), **more}
        self.new.append(NewRow(name, list(tokens), prompt or len(tokens), params, tables=self.tables[name], **row))

    def release(self, name: str) -> None:
        self.released.append(name)
        self.free += [block for table in self.tables.pop(name) for block in table]
        del self.tokens[name]

    def step(self, *rows: tuple[str, int], samples: int = 1, copies: Any = ()) -> StepResult:
        """Run (row, how many tokens) and take the tokens that come of it."""
        counts = [n or len(self.tokens[r]) - self.computed[r] for r, n in rows]
        computed = [self.computed[r] for r, _ in rows]
        ends = [c + n == len(self.tokens[r]) for (r, _), c, n in zip(rows, computed, counts, strict=True)]
        size = Bucket(
            sum(counts), len(rows), sum(counts), -(-max(map(sum, zip(computed, counts, strict=True))) // BLOCK)
        )
        plan = StepPlan(
            rows=[r for r, _ in rows],
            counts=counts,
            computed=computed,
            samples=[samples if end else 0 for end in ends],
            bucket=next(b for b in self.buckets if b.covers(size)),
            new=self.new,
            released=self.released,
            copies=list(copies),
        )
        self.new, self.released = [], []
        result = self.runner.collect(self.runner.submit(plan))
        for (name, _), count, made in zip(rows, counts, result.tokens, strict=True):
            self.computed[name] += count
            self.tokens[name] += made[:1]
        return result


def greedy(graph: Graph, prompt: Sequence[int], count: int) -> list[int]:
    """The whole sequence computed anew for every token."""
    weights = {name: w.astype(np.float32) for name, w in random_weights(graph).items()}
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(run_sequence(graph, weights, tokens)[-1].argmax()))
    return tokens


PROMPTS = {"a": [3, 1, 4, 1, 5, 9, 2, 6, 5], "b": [2, 7, 1], "c": [16, 18, 0, 3, 3, 9, 8, 8, 7, 4, 9, 8, 9, 4]}


@pytest.mark.parametrize(
    "buckets",
    [(Bucket(),), (Bucket(4, 3, 4, 8), Bucket(16, 4, 16, 12), Bucket(32, 4, 32, 12))],
    ids=["dynamic", "static"],
)
@pytest.mark.parametrize("windows", [(None, None), (3, None, 3)], ids=["full", "windows"])
def test_greedy_tokens_of_mixed_steps_equal_those_of_whole_sequences(
    windows: tuple[int | None, ...], buckets: tuple[Bucket, ...]
) -> None:
    graph = decoder(Shape(windows=windows, qk_norm=True, bias=True))
    served = Served(graph, buckets)
    for name, prompt in PROMPTS.items():
        served.add(name, prompt, GREEDY)
    served.step(("a", 4), ("b", 0))  # a chunk and a whole prompt
    served.step(("b", 0), ("c", 5), ("a", 3))  # a decode between chunks
    served.step(("a", 0), ("b", 0))
    while served.computed["c"] < len(PROMPTS["c"]):
        served.step(("c", min(4, len(PROMPTS["c"]) - served.computed["c"])), ("a", 0))
    for _ in range(3):
        served.step(("a", 0), ("b", 0), ("c", 0))
    for name, prompt in PROMPTS.items():
        made = len(served.tokens[name]) - len(prompt)
        assert made >= 4
        assert served.tokens[name] == greedy(graph, prompt, made)


def test_a_preempted_row_goes_on_as_if_nothing_had_happened() -> None:
    graph = decoder()
    served = Served(graph)
    served.add("a", PROMPTS["a"], GREEDY)
    served.add("b", PROMPTS["b"], GREEDY)
    served.step(("a", 0), ("b", 0))
    served.step(("a", 0), ("b", 0))
    made = list(served.tokens["a"])
    served.release("a")
    served.step(("b", 0))
    served.add("a", made, GREEDY, prompt=len(PROMPTS["a"]))
    served.step(("a", 5))
    served.step(("a", 0), ("b", 0))
    served.step(("a", 0))
    assert served.tokens["a"] == greedy(graph, PROMPTS["a"], 4)
    assert served.tokens["b"] == greedy(graph, PROMPTS["b"], 4)


def test_the_samples_of_a_request_are_those_of_its_forks_run_alone() -> None:
    graph = decoder(Shape(windows=(None, 4)))
    params = SamplingParams(n=3, temperature=2.0)

    def alone(index: int) -> list[int]:
        served = Served(graph)
        served.add("r", PROMPTS["a"], params, seed=11, sample_index=index)
        for _ in range(4):
            served.step(("r", 0))
        return served.tokens["r"]

    served = Served(graph)
    served.add("r", PROMPTS["a"], params, seed=11)
    (first,) = served.step(("r", 0), samples=3).tokens
    copies = []
    for fork in (1, 2):
        tables = [[served.free.pop() for _ in table] for table in served.tables["r"]]
        for table, old in zip(tables, served.tables["r"], strict=True):
            copies += list(zip(old, table, strict=True))
        served.add(
            f"r:{fork}", [*PROMPTS["a"], first[fork]], params,
            prompt=len(PROMPTS["a"]), computed=len(PROMPTS["a"]), tables=tables, seed=11, sample_index=fork,
        )  # fmt: skip
    served.step(("r:1", 0), ("r", 0), ("r:2", 0), copies=copies)
    for _ in range(2):
        served.step(("r", 0), ("r:1", 0), ("r:2", 0))
    made = [served.tokens[name] for name in ("r", "r:1", "r:2")]
    assert made == [alone(i) for i in range(3)]
    assert len({tuple(t) for t in made}) == 3


@pytest.mark.parametrize("chunks", [[14], [1, 13], [5, 5, 4], [13, 1], [1] * 14])
def test_prompt_logprobs_join_over_chunks(chunks: list[int]) -> None:
    graph = decoder()
    weights = {name: w.astype(np.float32) for name, w in random_weights(graph).items()}
    prompt = PROMPTS["c"]
    served = Served(graph)
    served.add("c", prompt, SamplingParams(temperature=0.0, prompt_logprobs=2, logprobs=1))
    served.add("b", PROMPTS["b"], GREEDY)
    joined = []
    for i, count in enumerate(chunks):
        result = served.step(("b", 0), ("c", count))
        assert (result.prompt_logprobs[0], result.logprobs[0]) == (None, None)
        joined += result.prompt_logprobs[1] or []
        assert (result.logprobs[1] is None) == (i + 1 < len(chunks))
    logits = run_sequence(graph, weights, prompt).astype(np.float64)
    exact = (
        logits
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - logits.max(-1, keepdims=True)
    )
    assert [p.token_id for p in joined] == prompt[1:]
    for position, found in enumerate(joined):
        assert found.logprob == pytest.approx(exact[position, found.token_id], abs=2e-3)
        assert found.rank == 1 + (logits[position] > logits[position, found.token_id]).sum()
        assert [t for t, _ in found.top] == np.argsort(-logits[position], kind="stable")[:2].tolist()
    (last,) = result.logprobs[1]  # type: ignore[misc]
    assert last.token_id == served.tokens["c"][-1] == logits[-1].argmax()
    assert last.top == ((last.token_id, last.logprob),)
    assert last.rank == 1
    served.step(("c", 0), ("b", 0))
    assert served.tokens["b"] == greedy(graph, PROMPTS["b"], len(served.tokens["b"]) - 3)


def test_a_prompt_may_be_scored_and_not_continued() -> None:
    served = Served(decoder())
    served.add("c", PROMPTS["c"], SamplingParams(max_tokens=0, prompt_logprobs=0))
    result = served.step(("c", 0), samples=0)
    assert result.tokens == [[]]
    assert result.logprobs == [None]
    assert [p.token_id for p in result.prompt_logprobs[0] or []] == PROMPTS["c"][1:]


@dataclass
class Fixed:
    """A device that answers with given logits, or fails."""

    logits: np.ndarray | None = None
    error: Exception | None = None

    def submit(self, step: StepInput, kv: KVStore) -> int:
        return len(step.sample_rows)

    def collect(self, ticket: int) -> StepOutput:
        if self.error is not None:
            raise self.error
        assert self.logits is not None
        return StepOutput(logits=self.logits[:ticket])


def two_rows(executable: Any, first: SamplingParams = GREEDY, second: SamplingParams = GREEDY) -> StepResult:
    runner = Runner({Bucket(): executable}, None, Batch(4, MAX_LEN, BLOCK, 1))  # type: ignore[arg-type]
    new = [
        NewRow(name, [1, 2, 3], 3, params, 0, 0, frozenset(), [[i]])
        for i, (name, params) in enumerate((("a", first), ("b", second)), 1)
    ]
    plan = StepPlan(["a", "b"], [3, 3], [0, 0], [1, 1], Bucket(), new=new)
    return runner.collect(runner.submit(plan))


@pytest.mark.parametrize(
    "params", [GREEDY, SamplingParams(), SamplingParams(logprobs=1)], ids=["greedy", "sampled", "logprobs"]
)
def test_a_row_whose_logits_are_not_finite_fails_alone(params: SamplingParams) -> None:
    logits = np.array([[0, np.nan, 1], [0, 50, 1]], np.float32)
    result = two_rows(Fixed(logits), params, params)
    assert list(result.failed) == ["a"]
    assert "not finite" in result.failed["a"]
    assert result.tokens[1] == [1]


def test_a_row_that_may_choose_nothing_fails_alone() -> None:
    forbidding = SamplingParams(temperature=0.0, min_tokens=1, stop_token_ids=[0, 1, 2])
    result = two_rows(Fixed(np.array([[0, 9, 1], [0, 50, 1]], np.float32)), forbidding)
    assert list(result.failed) == ["a"]
    assert "every token was forbidden" in result.failed["a"]
    assert result.tokens[1] == [1]


def test_a_prompt_that_cannot_be_scored_fails() -> None:
    logits = np.array([[0, 1, 2, 3], [0, np.inf, 1, 0], [9, 0, 0, 0], [0, 50, 1, 1]], np.float32)
    result = two_rows(Fixed(logits), SamplingParams(temperature=0.0, prompt_logprobs=1))
    assert list(result.failed) == ["a"]
    assert result.tokens == [[0], [1]]


def test_errors_of_the_device_come_through() -> None:
    with pytest.raises(RuntimeError, match="the link is down"):
        two_rows(Fixed(error=RuntimeError("the link is down")))


def test_a_device_may_sample_by_itself() -> None:
    @dataclass
    class Sampling:
        def submit(self, step: StepInput, kv: KVStore) -> int:
            return step.sampling.draws

        def collect(self, ticket: int) -> StepOutput:
            return StepOutput(samples=Samples(np.arange(ticket, dtype=np.int32) + 7, np.zeros(ticket, np.bool_)))

    assert two_rows(Sampling()).tokens == [[7], [8]]


def test_the_null_device_answers_with_zeros() -> None:
    assert two_rows(NullExecutable(), second=SamplingParams(top_p=0.9)) == StepResult(
        [[0], [0]], [None] * 2, [None] * 2
    )


def test_a_sampler_of_the_devices_own_is_used() -> None:
    class Second(HostSampler):
        def sample(self, logits: Any, batch: Any) -> Samples:
            return Samples(np.full(batch.draws, 2, np.int32), np.zeros(batch.draws, np.bool_))

    runner = Runner({Bucket(): Fixed(np.zeros((1, 3), np.float32))}, None, Batch(1, 9, BLOCK, 1), Second())  # type: ignore[arg-type, dict-item]
    plan = StepPlan(["a"], [1], [0], [1], Bucket(), new=[NewRow("a", [1], 1, GREEDY, 0, 0, frozenset(), [[1]])])
    assert runner.collect(runner.submit(plan)).tokens == [[2]]


def test_draws_are_sorted_back_into_rows() -> None:
    """Rows of no draw, of forks, of scored tokens and a draw, of scored tokens alone, of a draw with its logprob."""
    asks = [1, 1, 0, 0, -1, 2, 2, 0]
    plan = StepPlan(["none", "forks", "scored", "only", "own"], [1, 1, 3, 1, 1], [0] * 5, [0, 2, 1, 0, 1], Bucket())
    draws = Draws([0, 0, 2, 2, 0], make_batch([Draw(logprobs=n) for n in asks]), np.zeros(8, np.int32))
    ids = np.arange(8, dtype=np.int32)
    values = -np.arange(8, dtype=np.float32) / 4
    failed = np.zeros(8, np.bool_)
    failed[6] = True
    samples = Samples(
        ids + 10, failed, values, ids + 1, np.stack([ids, ids + 50], 1), np.stack([values, values - 1], 1)
    )
    result = sort_draws(plan, draws, samples)
    assert result.tokens == [[], [10, 11], [14], [], [17]]
    assert result.logprobs[0] is None
    forks = result.logprobs[1]
    assert forks is not None
    assert [(p.token_id, p.logprob, p.rank, p.top) for p in forks] == [
        (10, 0.0, 1, ((0, 0.0),)),
        (11, -0.25, 2, ((1, -0.25),)),
    ]
    assert result.logprobs[2:4] == [None, None]  # the third asked for its prompt alone
    assert [(p.token_id, p.logprob, p.rank, p.top) for p in result.logprobs[4] or []] == [(17, -1.75, 8, ())]
    assert result.prompt_logprobs[:2] == [None, None]
    assert [(p.token_id, p.top) for p in result.prompt_logprobs[2] or []] == [(12, ()), (13, ())]
    assert [p.top for p in result.prompt_logprobs[3] or []] == [((5, -1.25), (55, -2.25)), ((6, -1.5), (56, -2.5))]
    assert list(result.failed) == ["only"]


def test_every_bucket_is_compiled_before_serving_and_progress_is_told() -> None:
    graph = decoder(Shape(windows=(None,)))
    told = []
    device = ReferenceDevice(lambda: MemoryReport(1, 1))
    buckets = (Bucket(4, 1, 1, 2), Bucket(8, 2, 2, 2))
    layout = kv_layout(graph, BLOCK, "f32")
    executables, fused = load_runner(device, graph, stored(graph), buckets, layout, lambda *a: told.append(a))
    assert set(executables) == set(buckets)
    assert graph_hash(fused) != graph_hash(graph)
    count = len(graph.weights)
    assert told[0] == ("loading weights", 0, count)
    assert ("loading weights", count, count) in told
    assert told[-3:] == [("compiling", 0, 2), ("compiling", 1, 2), ("compiling", 2, 2)]


def test_a_bucket_that_was_not_compiled_is_our_own_bug() -> None:
    runner = Runner({Bucket(8, 2, 2, 2): NullExecutable()}, None, Batch(1, 9, BLOCK, 1))  # type: ignore[arg-type]
    plan = StepPlan(
        ["a"], [1], [0], [1], Bucket(4, 1, 1, 1), new=[NewRow("a", [1], 1, GREEDY, 0, 0, frozenset(), [[1]])]
    )
    with pytest.raises(KeyError, match=r"Bucket\(tokens=4, rows=1, samples=1, blocks=1\)"):
        runner.submit(plan)


def test_the_layout_is_that_of_the_graphs_attention() -> None:
    layout = kv_layout(decoder(Shape(windows=(None, 4, 4, None))), 16, "bf16")
    assert (layout.block_size, layout.slots, layout.kv_heads, layout.head_dim, layout.dtype) == (16, 2, 2, 4, "bf16")
