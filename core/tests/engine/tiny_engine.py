"""A real engine over a tiny random model, with no checkpoint and no tokenizer: the whole core, nothing faked.

It runs on the platform that `on` names: modules that use the fixture ``platform_name`` run on each in turn. What a
request gets `alone` is always the reference's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from engine.simulated_time import SimulatedClock, TimedExecutable

from octavo.engine.core import EngineCore
from octavo.engine.warm_up import warm_up
from octavo.graph import Builder, Graph, RopeSpec
from octavo.kv import KVGroup, KVManager
from octavo.platform import (
    Capabilities,
    Device,
    Limits,
    MemoryReport,
    ModelFacts,
    Plan,
    PlanRequest,
    Rank,
    ReferenceDevice,
    Settings,
)
from octavo.platform.discovery import discover, select
from octavo.quant import F32, WeightTensor
from octavo.runner import Batch, Runner, kv_layout, load_runner
from octavo.sampling import SamplingParams
from octavo.scheduler import Scheduler, SchedulerConfig, TokenEvent

VOCAB, EOS, BLOCK = 97, 0, 4

REFERENCE = "reference"
_platform = REFERENCE
_opened: list[TinyEngine] = []


@contextmanager
def on(platform: str) -> Iterator[None]:
    """Within it, `engine` makes engines on this platform."""
    global _platform
    _platform, before = platform, _platform
    try:
        yield
    finally:
        _platform = before


@contextmanager
def closing() -> Iterator[list[TinyEngine]]:
    """The engines made within it, which are closed when it ends."""
    first = len(_opened)
    made: list[TinyEngine] = []
    try:
        yield made
    finally:
        made += _opened[first:]
        del _opened[first:]
        for tiny in made:
            tiny.core.close()


def block() -> int:
    """Tokens of a block on the platform that engines are made on."""
    return BLOCK if _platform == REFERENCE else _capabilities().block_sizes[0]


def _capabilities() -> Capabilities:
    return select(discover().platforms, _platform).capabilities()


def graph(windows: Sequence[int | None] = (None, None)) -> Graph:
    """A decoder of one layer per window, two query heads over one KV head."""
    g = Builder("tiny")
    h = g.embed("embed", vocab=VOCAB, width=32)
    for i, window in enumerate(windows):
        with g.scope(f"layers.{i}"):
            x = g.rms_norm(h, "norm", eps=1e-5)
            q, k, v = g.linear_split(x, ["q", "k", "v"], [32, 16, 16])
            q, k = g.rope(q, k, RopeSpec(16))
            a = g.attention(q, k, v, layer=i, heads=2, kv_heads=1, head_dim=16, scale=0.25, window=window)
            h = g.add(h, g.linear(a, "o", 32))
            gate, up = g.linear_split(g.rms_norm(h, "norm2", eps=1e-5), ["gate", "up"], [48, 48])
            h = g.add(h, g.linear(g.gated_activation(gate, up, "silu"), "down", 32))
    g.output("logits", g.linear(g.rms_norm(g.take_rows(h), "final", eps=1e-5), "head", VOCAB))
    return g.build()


def weights(of: Graph, seed: int = 0) -> dict[str, WeightTensor]:
    """Seeded weights, large enough that every token depends on all before it."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, spec in of.weights.items():
        values = rng.standard_normal(spec.shape) * (1.5 / np.sqrt(spec.shape[-1]) if len(spec.shape) > 1 else 0.2)
        values = values + (1.0 if len(spec.shape) == 1 else 0.0)
        data = np.ascontiguousarray(values.astype("<f4")).view(np.uint8).reshape(*spec.shape[:-1], -1)
        tensors[name] = WeightTensor(F32, spec.shape, data)
    return tensors


@dataclass
class TinyEngine:
    """An `EngineCore` and the parts that tests look at."""

    core: EngineCore
    scheduler: Scheduler
    kv: KVManager
    runner: Runner
    device: Device
    events: list[TokenEvent] = field(default_factory=list)

    def step(self) -> list[TokenEvent]:
        """One step; block accounting is checked after each."""
        events = self.core.step()
        assert self.kv.pool.used + self.kv.pool.free == self.kv.pool.num_blocks - 1
        self.events += events
        return events

    def finish(self) -> None:
        """Step until nothing is left."""
        while self.core.has_work:
            self.step()

    def tokens(self, request_id: str, index: int = 0) -> list[int]:
        """What one choice has so far."""
        return [t for e in self.events if (e.request_id, e.index) == (request_id, index) for t in e.token_ids]

    def ended(self, request_id: str, index: int = 0) -> TokenEvent | None:
        """The event that ended a choice."""
        found = [e for e in self.events if (e.request_id, e.index) == (request_id, index) and e.finish_reason]
        assert len(found) < 2, "a choice ends once"
        return found[0] if found else None


def engine(
    *,
    windows: Sequence[int | None] = (None, None),
    blocks: int = 400,
    rows: int = 40,
    budget: int = 64,
    context: int = 200,
    prefix_caching: bool = True,
    limits: Limits | None = None,
    seed: int = 0,
    platform: str | None = None,
    itl_target: float | None = None,
    clock: SimulatedClock | None = None,
    absent: Sequence[int] = (),
) -> TinyEngine:
    """Put one together. ``limits`` are for the reference, which has none; another platform has its own. With a
    ``clock``, its steps take the time that the clock gives them, and are rehearsed. ``absent`` ids are no tokens."""
    model = graph(windows)
    if (platform or _platform) == REFERENCE:
        device: Device = ReferenceDevice(lambda: MemoryReport(1 << 30, 1 << 30))
        config = SchedulerConfig(rows, budget, context, limits or Limits(), itl_target=itl_target)
        block_size = BLOCK
    else:
        assert limits is None, "a platform's limits are its own"
        chosen = select(discover().platforms, platform or _platform)
        settings = Settings(max_model_len=context, max_num_seqs=min(rows, budget), max_num_batched_tokens=budget)
        facts = ModelFacts.of(model, name="tiny", head_dim=16, max_position=2048, weight_bytes=0)
        plan = chosen.negotiate(PlanRequest(facts, settings))
        assert isinstance(plan, Plan), plan
        config = SchedulerConfig(
            plan.max_num_seqs,
            plan.max_num_batched_tokens,
            plan.max_model_len,
            plan.limits,
            itl_target=itl_target,
        )
        device, block_size = chosen.open(Rank()), plan.block_size
    groups = [KVGroup(w) for w in model.kv_windows]
    kv = KVManager(blocks, block_size, groups, prefix_caching)
    scheduler = Scheduler(config, kv)
    buckets = scheduler.bounds.buckets.buckets
    layout = kv_layout(model, block_size, "f32")
    executables, _ = load_runner(device, model, weights(model), buckets, layout, lambda what, done, total: None)
    store = device.allocate_kv(layout, blocks)
    measured: Callable[[], float] = time.perf_counter
    if clock is not None:
        executables = {bucket: TimedExecutable(inner, clock) for bucket, inner in executables.items()}
        warm_up(scheduler.times, config, groups, block_size, executables, store, None, clock)
        measured = clock
    batch = Batch(config.max_num_seqs, context, block_size, len(groups), vocab_size=VOCAB, absent=absent)
    runner = Runner(executables, store, batch, absent=absent)
    core = EngineCore(
        scheduler, runner, device, store, vocab_size=VOCAB, eos_ids=frozenset({EOS}), seed=seed, clock=measured
    )
    tiny = TinyEngine(core, scheduler, kv, runner, device)
    _opened.append(tiny)
    return tiny


def prompt(seed: int, length: int) -> list[int]:
    """Random token ids, never the end-of-sequence one."""
    return [int(t) for t in np.random.default_rng(seed).integers(1, VOCAB, length)]


def greedy(tokens: int = 12) -> SamplingParams:
    """Greedy, of a fixed length."""
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def alone(request: Sequence[int], params: SamplingParams, windows: Iterable[int | None] = (None, None)) -> list[int]:
    """What a request gets when it is the only one, on the reference platform."""
    single = engine(windows=tuple(windows), platform=REFERENCE)
    single.core.add("r", request, params)
    single.finish()
    return single.tokens("r")
