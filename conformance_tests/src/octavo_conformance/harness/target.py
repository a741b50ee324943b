"""The target: a platform as checks see it. It is driven through the engine's own contract, in a worker process.

What a check may use: ``t.capabilities`` and `Target.declares` (what the platform says), ``t.dtype``, ``t.kv_dtype`` and
``t.block_size`` (what it prefers, which most checks run with), `Target.stored` (numbers that it can hold),
`Target.rng`, `Target.plan`, `Target.play`, `Target.engine`, `Target.act`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import to_json
from octavo.platform import (
    Bucket,
    Capabilities,
    KVLayout,
    ModelFacts,
    Plan,
    PlanRequest,
    Rank,
    Samples,
    Settings,
    Unsupported,
)
from octavo_conformance import suite_version
from octavo_conformance.harness.probe import Model
from octavo_conformance.harness.steps import Action, MoveBlock, ReadBlock, Step, arrays, bucket_of, schedule
from octavo_conformance.judge import floats
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite import capability
from octavo_conformance.worker import values
from octavo_conformance.worker.host import Worker

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Played:
    """What a script brought.

    ``results`` has one entry per action: for a Step its logits float32 [tokens, V] (`Samples`, where the step has a
    sampling batch: from the device, its sampler, or the host's, as the engine would), for a ReadBlock the block, for a
    WriteBlock ``None``. ``changed`` names step inputs that the device wrote to, ``memory`` the (total, free) bytes
    before load, after compile and after allocate_kv, ``block_bytes`` what the device says that a block takes. ``taken``
    is the memory in use after each step: of the device, or of the process on the host. ``buckets`` were compiled.
    ``seconds`` is the time in submit and collect. ``kept`` is what the artifact store did, where one was given.
    """

    results: list[Any]
    changed: tuple[str, ...]
    memory: tuple[tuple[int, int], ...]
    steps: int
    seconds: float
    block_bytes: int = 0
    taken: tuple[int, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    kept: Kept | None = None


@dataclass(frozen=True)
class Script:
    """What a worker is asked to do in one device's life, and how its answers become those of the actions.

    ``request`` is as `octavo_conformance.worker.play` takes it.
    """

    request: Mapping[str, Any] = field(repr=False)
    actions: Sequence[Action] = field(repr=False)
    spans: Sequence[tuple[int, int]] = field(repr=False)
    pieces: Mapping[int, list[Any]] = field(repr=False)

    def results(self, raw: Sequence[Any]) -> list[Any]:
        """One for each action; see `Played`."""
        return [
            _joined(action, self.pieces[index], raw[a:b]) if isinstance(action, Step) else raw[a]
            for index, (action, (a, b)) in enumerate(zip(self.actions, self.spans, strict=True))
        ]


@dataclass(frozen=True)
class Kept:
    """What the artifact store of a device's life did: the artifacts that were opened, in order, each with its key, its
    id, its file (``None`` where it was in memory only) and whether it was made; and the warnings that the store gave.
    """

    opened: list[dict[str, Any]]
    warnings: list[str]

    @property
    def made(self) -> int:
        """How many were made."""
        return sum(entry["made"] for entry in self.opened)


class Refused(Exception):
    """`negotiate` refused what a check asked for. Uncaught it fails the check: what it requires was declared."""

    def __init__(self, refusal: Unsupported) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Target:
    """One platform under one check. Made by the runner; see the module."""

    def __init__(self, worker: Worker, check: str, seed: str, rank: Rank | None = None) -> None:
        self._worker = worker
        self._check = check
        self._seed = seed
        self._rank = rank or Rank()
        self.mutant = worker.mutant
        self.threads = self._rank.threads
        self.info: Mapping[str, Any] = worker.description["info"]
        self.probe: Mapping[str, Any] = worker.description["probe"]
        self.capabilities: Capabilities = values.capabilities_in(worker.description["capabilities"])
        self.dtype: str = self.capabilities.dtypes[0]
        self.kv_dtype: str = self.capabilities.kv_dtypes[0]
        self.block_size: int = self.capabilities.block_sizes[0]

    def rng(self, *case: str | int) -> Rng:
        """The input stream of a case: a function of suite, check, case and seed alone."""
        return Rng(suite_version(), self._check, *case, self._seed)

    def declares(self, token: str) -> bool:
        """Whether the platform says that it can; see `octavo_conformance.suite.capability`."""
        return capability.declares(self.capabilities, token)

    @property
    def plain_format(self) -> str:
        """The weight format that probes use for tables and for the output: one that neither loses the numbers of
        ``dtype`` nor makes the platform round what it multiplies.
        """
        for name in ("f32", "f16", "bf16"):
            exact = name in ("f32", self.dtype) or self.dtype != "f32"
            if name in self.capabilities.weight_formats and exact and self.linear_input(name) == self.dtype:
                return name
        raise LookupError(
            f"platform {self.info['name']} declares no weight format that keeps {self.dtype} activations exactly "
            f"(it has {', '.join(sorted(self.capabilities.weight_formats))}); declare f32 or {self.dtype}"
        )

    def linear_input(self, format: str) -> str:
        """As what a linear stores its input before it multiplies a weight of ``format``: a float type, or
        ``int8x32``.
        """
        return self.capabilities.linear_inputs.get(format, self.dtype)

    def stored(self, numbers: npt.ArrayLike) -> F32:
        """``numbers`` rounded to the activation dtype: what goes in is then exactly what the oracle sees."""
        return floats.rounded(numbers, self.dtype)

    def kv_stored(self, numbers: npt.ArrayLike, dtype: str | None = None) -> F32:
        """``numbers`` as the KV cache keeps them (of float types)."""
        return floats.rounded(numbers, dtype or self.kv_dtype)

    # -- asking ---------------------------------------------------------------------------------

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """The platform's own answer."""
        return values.answer_in(self._worker.ask("negotiate", request=values.request_out(request)))

    def plan(self, model: Model, *, context: int, block_size: int | None = None, kv_dtype: str | None = None) -> Plan:
        """The plan for a model whose sequences have up to ``context`` tokens. Raises `Refused`."""
        settings = Settings(dtype=model.graph.dtype, block_size=block_size, kv_cache_dtype=kv_dtype)
        answer = self.negotiate(PlanRequest(facts(model, context), settings))
        if isinstance(answer, Unsupported):
            raise Refused(answer)
        return answer

    # -- running --------------------------------------------------------------------------------

    def play(
        self,
        model: Model,
        actions: Sequence[Action],
        *,
        block_size: int | None = None,
        kv_dtype: str | None = None,
        blocks: int | None = None,
        poison: bool = True,
        seconds: float | None = None,
        keep: Mapping[str, Any] | None = None,
        plan: Plan | None = None,
    ) -> Played:
        """One device's life: load the model, compile the buckets that the steps need, allocate ``blocks`` blocks (as
        many as the script names, if left out), run the actions in order, close. The pool begins as NaN, unless
        ``poison`` is off (for pools too large to be written).

        With a ``plan`` the platform is not asked for one, so that it can be given what it would refuse.

        ``keep`` says what the device's artifact store is (`octavo_conformance.worker.kept`); nothing is kept without.

        Steps are split as the platform's limits ask, and their logits put together again. Raises what
        `octavo_conformance.worker.host` raises, and `Refused`.
        """
        script = self.script(
            model, actions, block_size=block_size, kv_dtype=kv_dtype, blocks=blocks, poison=poison, plan=plan
        )
        keep = dict(keep) if keep is not None else None
        answer = self._worker.ask("play", **{**script.request, "keep": keep}, seconds=seconds)
        raw, kept = answer["results"], None if keep is None else Kept(**answer["kept"])
        buckets = tuple(Bucket(*bucket) for bucket in script.request["buckets"])
        if not raw and script.request["actions"]:  # compiled for a target: nothing ran
            return Played([], (), (), 0, 0.0, buckets=buckets, kept=kept)
        steps = [r for r in raw if isinstance(r, dict)]
        return Played(
            script.results(raw),
            tuple(sorted({name for r in steps for name in r["changed"]})),
            tuple((m["total"], m["free"]) for m in answer["memory"]),
            len(steps),
            sum(r["seconds"] for r in steps),
            answer["block_bytes"],
            tuple(r["taken"] for r in steps),
            buckets,
            kept,
        )

    def script(
        self, model: Model, actions: Sequence[Action], *, block_size: int | None = None, kv_dtype: str | None = None,
        blocks: int | None = None, poison: bool = True, plan: Plan | None = None,
    ) -> Script:  # fmt: skip
        """What `play` asks for, for jobs (`act`) that lead the device's life in another way."""
        context = max((row.start + row.count for a in actions if isinstance(a, Step) for row in a.rows), default=1)
        plan = plan or self.plan(
            model, context=context, block_size=block_size or self.block_size, kv_dtype=kv_dtype or self.kv_dtype
        )
        script: list[dict[str, Any]] = []
        spans: list[tuple[int, int]] = []
        pieces_of: dict[int, list[Any]] = {}
        buckets: dict[Any, None] = {}
        for index, action in enumerate(actions):
            first = len(script)
            if isinstance(action, Step):
                pieces_of[index] = schedule(action, plan)
                if action.sampling is not None and len(pieces_of[index]) > 1:
                    raise ValueError(
                        f"a step that samples must be run whole; this one takes {len(pieces_of[index])} steps"
                    )
                for piece in pieces_of[index]:
                    buckets[bucket_of(piece, plan)] = None
                    step = arrays(action, piece, plan, model.groups)
                    sample = action.sampling is not None
                    script.append({"do": "step", "step": values.step_out(step), "sample": sample})
            elif isinstance(action, ReadBlock):
                script.append({"do": "read_block", "block": action.block})
            elif isinstance(action, MoveBlock):
                script.append({"do": "move_block", "source": action.source, "target": action.target})
            else:
                script.append({"do": "write_block", "block": action.block, "data": np.asarray(action.data, np.float32)})
            spans.append((first, len(script)))
        graph = model.graph
        heads, dim = (graph.kv[0].kv_heads, graph.kv[0].head_dim) if graph.kv else (0, 0)
        layout = KVLayout(plan.block_size, graph.kv_slots, heads, dim, plan.kv_cache_dtype)
        request = {
            "rank": values.rank_out(self._rank), "graph": to_json(graph),
            "weights": {name: values.weight_out(w) for name, w in model.weights.items()},
            "buckets": [list(bucket) for bucket in buckets], "layout": values.layout_out(layout),
            "blocks": blocks or blocks_named(actions), "poison": poison, "actions": script, "keep": None,
        }  # fmt: skip
        return Script(request, actions, spans, pieces_of)

    @contextmanager
    def fresh(self, environment: Mapping[str, str] = {}) -> Iterator[Target]:
        """The same target in a new process, in which no device was opened yet."""
        with self._worker.again(environment) as worker:
            yield Target(worker, self._check, self._seed, self._rank)

    @property
    def worker(self) -> Worker:
        """Its process, for checks of what becomes of one."""
        return self._worker

    def act(self, name: str, *, seconds: float | None = None, **arguments: Any) -> Any:
        """Do a named job in the worker; see `octavo_conformance.worker.actions`."""
        return self._worker.ask("act", name=name, arguments=arguments, seconds=seconds)

    def ask_engine(self, *, seconds: float | None = None, **request: Any) -> Any:
        """Drive a whole engine; use `octavo_conformance.harness.engines`, which knows the requests."""
        return self._worker.ask("engine", rank=values.rank_out(self._rank), seconds=seconds, **request)


def facts(model: Model, context: int) -> ModelFacts:
    """What `negotiate` is told of a model, found as the engine finds it."""
    graph = model.graph
    return ModelFacts.of(
        graph,
        name=graph.name,
        head_dim=graph.kv[0].head_dim if graph.kv else 64,
        max_position=context,
        weight_bytes=sum(tensor.nbytes for tensor in model.weights.values()),
        whole_prompts="pooled" in graph.outputs or any(node.attrs.get("causal") is False for node in graph.nodes),
    )


def blocks_named(actions: Sequence[Action]) -> int:
    """Blocks that a pool must have for a script, the null block and one spare among them."""
    largest = 0
    for action in actions:
        if isinstance(action, Step):
            named = [b for seq in action.sequences for table in seq.tables for b in table]
            named += [b for pair in action.copies for b in pair]
            largest = max([largest, *named])
        elif isinstance(action, MoveBlock):
            largest = max(largest, action.source, action.target)
        else:
            largest = max(largest, action.block)
    return largest + 2


def _joined(step: Step, pieces: Sequence[Any], raw: Sequence[Mapping[str, Any]]) -> F32 | Samples:
    """The result of a whole step from those of its pieces; what padding brought is left out."""
    if step.sampling is not None:
        samples = values.samples_in(raw[0]["samples"])
        assert samples is not None, "a step that samples brings samples"
        return samples
    parts = [(piece, part["logits"]) for piece, part in zip(pieces, raw, strict=True) if piece.wanted]
    lacking = [i for i, (_, logits) in enumerate(parts) if logits is None]
    if lacking:
        raise ValueError(f"piece {lacking[0]} of a step asked for logits and brought none")
    count = sum(len(piece.wanted) for piece, _ in parts)
    joined = np.full((count, parts[0][1].shape[1]), np.nan, np.float32)
    for piece, logits in parts:
        joined[list(piece.into)] = logits[: len(piece.wanted)]
    return joined


@contextmanager
def target(
    platform: str, check: str, *, seed: str = "0", mutant: str = "", threads: int | None = None
) -> Iterator[Target]:
    """A target with a worker of its own, for tests and for trying checks out while they are written."""
    with Worker(platform, mutant=mutant) as worker:
        yield Target(worker, check, seed, replace(Rank(), threads=threads))
