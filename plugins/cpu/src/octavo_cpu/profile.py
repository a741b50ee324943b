"""Where the time of native steps went: `NativeExecutable.profile` and `NativeExecutable.step_times`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.graph import WeightSpec
from octavo.platform import PartTime, StepInput, StepTimes
from octavo_cpu.cost import Load, Work, step_work
from octavo_cpu.lower import Program, Step
from octavo_cpu.machine import Ceilings


@dataclass(frozen=True)
class ClockedStep:
    """Seconds of one native step, means over the threads: at work, and waiting for the slowest thread.

    ``step`` is its index in the program, or the number of steps for what is prepared before the first: rope's angles.
    Steps of one ``kind`` do the same in every layer.
    """

    step: int
    kind: str
    working: float
    waiting: float

    @property
    def seconds(self) -> float:
        """From its beginning to that of the next step."""
        return self.working + self.waiting


@dataclass
class Profile:
    """The native steps' times, in the program's order; empty until the block that makes it has ended."""

    times: tuple[ClockedStep, ...] = ()

    def by_kind(self) -> dict[str, tuple[float, float]]:
        """(working, waiting) seconds of each kind, the longest first."""
        sums: dict[str, tuple[float, float]] = {}
        for clocked in self.times:
            working, waiting = sums.get(clocked.kind, (0.0, 0.0))
            sums[clocked.kind] = working + clocked.working, waiting + clocked.waiting
        return dict(sorted(sums.items(), key=lambda item: -sum(item[1])))

    def __str__(self) -> str:
        kinds = self.by_kind()
        total = sum(map(sum, kinds.values())) or 1.0
        lines = [
            f"{1e3 * (work + wait):10.3f} ms  {(work + wait) / total:6.1%}  waiting {1e3 * wait:8.3f} ms  {kind}"
            for kind, (work, wait) in kinds.items()
        ]
        return "\n".join(lines)


def clocked_steps(program: Program, seconds: npt.NDArray[np.float64]) -> tuple[ClockedStep, ...]:
    """``seconds``: what octavo_clock_read fills."""
    kinds = [*map(step_kind, program.steps), "rope angles"]
    return tuple(
        ClockedStep(i, kind, working, waiting)
        for i, (kind, (working, waiting)) in enumerate(zip(kinds, seconds.tolist(), strict=True))
    )


def step_kind(step: Step) -> str:
    """What the step does, without its layer: an op, or a linear by the last part of its matrices' names."""
    if step.op == "linear":
        names = " ".join(_short(name) for name in step.matrices)
        return f"output {names}" if step.logits else f"linear {names}"
    if step.op == "rope" and len(step.inputs) > 2:
        return "rope, write_kv"
    return step.op


def _short(name: str) -> str:
    """``model.layers.3.self_attn.q_proj.weight`` -> ``q_proj``."""
    return next(part for part in reversed(name.split(".")) if part != "weight")


@dataclass(frozen=True)
class Facts:
    """What the limits of a program's steps follow from. ``packed``: bytes of the packed matrices, by name."""

    program: Program
    specs: Mapping[str, WeightSpec]
    packed: Mapping[str, int]
    kv_dtype: str
    ceilings: Ceilings


def measure_step(
    facts: Facts,
    step: StepInput,
    run: Callable[[], object],
    profile: Callable[[], AbstractContextManager[Profile]],
    rounds: int,
) -> StepTimes:
    """Call ``run`` once to warm up and ``rounds`` times within ``profile``; the parts are those of the median round."""
    run()
    measured: list[tuple[float, Profile]] = []
    for _ in range(rounds):
        with profile() as clocked:
            begun = time.perf_counter()
            run()
            passed = time.perf_counter() - begun
        measured.append((passed, clocked))
    measured.sort(key=lambda one: one[0])
    median, clocked = measured[len(measured) // 2]
    load = Load.of(step, facts.kv_dtype)
    works = [step_work(s, facts.specs, facts.packed, load) for s in facts.program.steps]
    return StepTimes(median, measured[0][0], _parts(clocked.times, [*works, Work(0.0, 0.0)], facts.ceilings))


def _parts(times: Sequence[ClockedStep], works: Sequence[Work], ceilings: Ceilings) -> tuple[PartTime, ...]:
    """The steps of each kind as one part, the longest first."""
    kinds: dict[str, list[tuple[ClockedStep, Work]]] = {}
    for clocked, work in zip(times, works, strict=True):
        kinds.setdefault(clocked.kind, []).append((clocked, work))
    parts = []
    for kind, members in kinds.items():
        limits = [limit for _, work in members if (limit := work.limit(ceilings)) is not None]
        parts.append(
            PartTime(
                kind,
                sum(c.working for c, _ in members),
                sum(c.waiting for c, _ in members),
                sum(w.bytes for _, w in members),
                sum(w.operations for _, w in members),
                sum(limits) if limits else None,
            )
        )
    return tuple(sorted(parts, key=lambda part: -(part.working + part.waiting)))
