"""Where the time of native steps went: `NativeExecutable.profile`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo_cpu.lower import Program, Step


@dataclass(frozen=True)
class StepTime:
    """Seconds of one native step, means over the threads: at work, and waiting for the slowest thread.

    ``step`` is its index in the program, or the number of steps for what is prepared before the first: rope's angles.
    Steps of one ``kind`` do the same in every layer.
    """

    step: int
    kind: str
    working: float
    waiting: float


@dataclass
class Profile:
    """The native steps' times, in the program's order; empty until the block that makes it has ended."""

    times: tuple[StepTime, ...] = ()

    def by_kind(self) -> dict[str, tuple[float, float]]:
        """(working, waiting) seconds of each kind, the longest first."""
        sums: dict[str, tuple[float, float]] = {}
        for time in self.times:
            working, waiting = sums.get(time.kind, (0.0, 0.0))
            sums[time.kind] = working + time.working, waiting + time.waiting
        return dict(sorted(sums.items(), key=lambda item: -sum(item[1])))

    def __str__(self) -> str:
        kinds = self.by_kind()
        total = sum(map(sum, kinds.values())) or 1.0
        lines = [
            f"{1e3 * (work + wait):10.3f} ms  {(work + wait) / total:6.1%}  waiting {1e3 * wait:8.3f} ms  {kind}"
            for kind, (work, wait) in kinds.items()
        ]
        return "\n".join(lines)


def step_times(program: Program, seconds: npt.NDArray[np.float64]) -> tuple[StepTime, ...]:
    """``seconds``: what octavo_clock_read fills."""
    kinds = [*map(step_kind, program.steps), "rope angles"]
    return tuple(
        StepTime(i, kind, working, waiting)
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
    parts = [part for part in name.split(".") if part != "weight"]
    return re.sub(r"\d+$", "N", parts[-1])
