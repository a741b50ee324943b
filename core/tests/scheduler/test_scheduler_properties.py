"""Whatever arrives, is aborted, fails or is preempted: the right tokens, the right blocks, and an end."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_runner import EOS, VOCAB, Bench, check_accounts, fingerprints, score, serial_output

from octavo.errors import RequestError
from octavo.kv import KVGroup, KVManager
from octavo.kv.sizing import peak_blocks
from octavo.platform.buckets import Bucket, BucketPolicy, powers_up_to
from octavo.platform.limits import Limits
from octavo.sampling import RequestOptions, SamplingParams
from octavo.scheduler import Request, Scheduler, SchedulerConfig

CONTEXT = 40
SHARED = [7, 3, 9, 9, 2, 4, 7, 3, 1, 5, 8, 6, 2, 2, 4, 1]

groups = st.sampled_from(
    [
        (KVGroup(),),
        (KVGroup(window=5),),
        (KVGroup(), KVGroup(window=1)),
        (KVGroup(), KVGroup(window=6), KVGroup(window=13)),
    ]
)


def buckets(kind: str, tokens: int, seqs: int) -> BucketPolicy:
    if kind == "none":
        return BucketPolicy()
    rows = powers_up_to(seqs)
    if kind == "product":
        return BucketPolicy(
            tokens=powers_up_to(tokens), rows=rows, samples=powers_up_to(seqs + 3), blocks=powers_up_to(CONTEXT, 2)
        )
    return BucketPolicy(explicit=(Bucket(tokens, seqs, None, CONTEXT), Bucket(seqs, seqs, seqs, 8)))


class Wish(NamedTuple):
    """What is drawn for one request."""

    shared: int
    own: list[int]
    n: int
    max_tokens: int | None
    min_tokens: int
    stops: tuple[int, ...]
    ignore_eos: bool
    priority: int
    scored: int | None
    seed: int
    namespace: str


wishes = st.builds(
    Wish,
    shared=st.integers(0, len(SHARED)),
    own=st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=12),
    n=st.sampled_from([1, 1, 2, 4]),
    max_tokens=st.sampled_from([None, 20, 5, 1, 0]),
    min_tokens=st.sampled_from([0, 0, 3]),
    stops=st.sampled_from([(), (), (5, 6, 7)]),
    ignore_eos=st.booleans(),
    priority=st.integers(-1, 1),
    scored=st.sampled_from([None, None, None, 0]),
    seed=st.integers(0, 3),
    namespace=st.sampled_from(["", "other"]),
)


class AnyTraffic(RuleBasedStateMachine):
    """Random traffic on a random, small engine."""

    @initialize(
        groups=groups,
        block_size=st.sampled_from([1, 3, 4]),
        spare_blocks=st.sampled_from([0, 1, 3, 10, 60]),
        caching=st.booleans(),
        seqs=st.sampled_from([4, 6, 3, 2, 1]),
        tokens=st.sampled_from([24, 16, 9, 5, 2]),
        policy=st.sampled_from(["fcfs", "priority"]),
        exclusive=st.booleans(),
        multiple=st.sampled_from([1, 1, 2]),
        volume=st.sampled_from([None, None, CONTEXT + 4, 2 * CONTEXT]),
        prefill_rows=st.sampled_from([None, None, 1, 2]),
        bucket_kind=st.sampled_from(["none", "product", "explicit"]),
        itl_target=st.sampled_from([None, None, 1e-6, 0.005, 1.0]),
    )
    def build(
        self, groups: Any, block_size: int, spare_blocks: int, caching: bool, seqs: int, tokens: int, policy: Any,
        exclusive: bool, multiple: int, volume: int | None, prefill_rows: int | None, bucket_kind: str,
        itl_target: float | None,
    ) -> None:  # fmt: skip
        needed = peak_blocks(groups, block_size, CONTEXT, tokens)  # one sequence of the full length, and not much more
        kv = KVManager(1 + needed + spare_blocks, block_size, groups, caching, hash_key=b"fixed")
        limits = Limits(
            prefill_xor_decode=exclusive,
            chunk_multiple=multiple,
            max_volume=volume,
            max_prefill_rows=prefill_rows,
            buckets=buckets(bucket_kind, tokens, seqs),
        )
        config = SchedulerConfig(seqs, tokens, CONTEXT, limits, policy=policy, itl_target=itl_target)
        self.bench = Bench(Scheduler(config, kv))
        self.requests: dict[str, Request] = {}
        self.aborted: set[tuple[str, int]] = set()
        self.failed: set[tuple[str, int]] = set()
        self.work = 0  # tokens that the requests need at most, all choices together

    @rule(burst=st.lists(wishes, min_size=1, max_size=6))
    def add(self, burst: list[Wish]) -> None:
        for wish in burst:
            self._add(wish)

    def _add(self, wish: Wish) -> None:
        scheduler = self.bench.scheduler
        most = CONTEXT if wish.max_tokens is None else wish.max_tokens
        params = SamplingParams(
            n=wish.n,
            max_tokens=wish.max_tokens,
            min_tokens=min(wish.min_tokens, most),
            stop_token_ids=wish.stops,
            ignore_eos=wish.ignore_eos,
            logprobs=wish.scored,
            prompt_logprobs=wish.scored,
        )
        request = Request(
            f"r{len(self.requests)}",
            SHARED[: wish.shared] + wish.own,
            params,
            wish.seed,
            frozenset([EOS]),
            RequestOptions(wish.priority if scheduler.config.policy == "priority" else 0, wish.namespace),
        )
        try:
            scheduler.add(request)
        except RequestError as error:
            if error.param in ("n", "prompt_logprobs"):  # nothing here is too long: only these may be impossible
                return
            raise
        self.requests[request.id] = request
        self.work += wish.n * min(CONTEXT, request.prompt_length + most)

    def _abort(self, data: st.DataObject, whole: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        n = self.requests[request_id].params.n
        index = None if whole else data.draw(st.integers(0, n - 1))
        family = self.bench.scheduler._groups.get(request_id, [])
        alive = {row.index for row in family if index is None or row.index == index}
        if family and family[0].choices > 1 and 0 in alive:
            alive = set(range(n))  # before the fork, choice 0 stands for all
        assert self.bench.scheduler.abort(request_id, index) == bool(alive)
        assert not self.bench.scheduler.abort(request_id, index)
        self.aborted |= {(request_id, i) for i in alive}
        check_accounts(self.bench.scheduler)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), whole=st.booleans())
    def abort(self, data: st.DataObject, whole: bool) -> None:
        self._abort(data, whole)

    @rule(data=st.data(), count=st.sampled_from([1, 1, 5, 15]), abort=st.sampled_from([False, False, False, True]))
    def steps(self, data: st.DataObject, count: int, abort: bool) -> None:
        for _ in range(count):
            if self.bench.start() is None:
                return
            if abort and data.draw(st.booleans()):
                self._abort(data, whole=data.draw(st.booleans()))
            self.bench.finish()

    @rule(data=st.data())
    def fail_a_row(self, data: st.DataObject) -> None:
        plan = self.bench.start()
        if plan is None:
            return
        victim = data.draw(st.sampled_from(plan.rows))
        self.bench.runner.fail_next.add(victim)
        errors = [event for event in self.bench.finish() if event.finish_reason == "error"]
        assert errors and all(event.error and not event.token_ids for event in errors)
        self.failed |= {(event.request_id, event.index) for event in errors}

    @invariant()
    def free_and_used_blocks_add_up(self) -> None:
        if hasattr(self, "bench"):
            check_accounts(self.bench.scheduler)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        bench = self.bench
        # The first row by key advances in every step (every other one where kinds exclude each other).
        bench.drain(bound=2 * self.work + 10)
        assert bench.scheduler.kv.pool.used == 0
        assert bench.scheduler._row_ids == set()
        for request in self.requests.values():
            self._check(request)

    def _check(self, request: Request) -> None:
        params, bench = request.params, self.bench
        prompt = request.tokens[: request.prompt_length]
        expected = serial_output(prompt, params, request.seed, CONTEXT, request.eos_ids)
        for i, tokens in enumerate(expected):
            key = request.id, i
            got = bench.outputs.get(key, [])
            if key in self.aborted or key in self.failed:
                assert got == tokens[: len(got)]
                continue
            assert got == tokens
            last = bench.last[key]
            if tokens and tokens[-1] in request.stops and len(tokens) >= params.min_tokens:
                assert last.finish_reason == "stop"
                assert last.stop_reason == (tokens[-1] if tokens[-1] in params.stop_ids else None)
            else:
                assert last.finish_reason == "length"
        if params.prompt_logprobs is not None and not {(request.id, 0)} & (self.aborted | self.failed):
            prints = fingerprints(prompt)
            scores = [
                e.prompt_logprobs for e in bench.events if e.request_id == request.id and e.prompt_logprobs is not None
            ]
            assert scores == [tuple(score(prints[p - 1], prompt[p]) for p in range(1, len(prompt)))]
            for i in range(params.n):
                events = [e for e in bench.events if (e.request_id, e.index) == (request.id, i) and e.token_ids]
                assert all(e.logprobs and e.logprobs[0].token_id == e.token_ids[0] for e in events)


TestAnyTraffic = AnyTraffic.TestCase
TestAnyTraffic.settings = settings(
    max_examples=150, stateful_step_count=25, deadline=None, derandomize=True, report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
