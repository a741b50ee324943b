"""``octavo bench scheduler``: the core's own time per step, with no model."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


@dataclass
class _Times:
    """Seconds per step, by part."""

    schedule: list[float] = field(default_factory=list)
    run: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)

    def totals(self) -> list[float]:
        """Per step, all parts together."""
        return [sum(parts) for parts in zip(self.schedule, self.run, self.update, strict=True)]


def scheduler(
    rows: Annotated[int, typer.Option(help="Number of running sequences.")] = 256,
    waiting: Annotated[int, typer.Option(help="Number of waiting requests in the second case.")] = 1000,
    steps: Annotated[int, typer.Option(help="Number of steps to measure in each case.")] = 500,
    prompt: Annotated[int, typer.Option(help="Prompt tokens per sequence.")] = 256,
) -> None:
    """The core's own time per step. No model, the null executor, decode only."""
    table = Table(title=f"Core time per step at {rows} running rows, decode only (ms)", title_justify="left", box=None)
    for column in ("case", "schedule", "build + submit + collect", "update", "mean", "median", "p99"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, queue in (("nothing waits", 0), (f"{waiting} requests wait", waiting)):
        times = measure(rows, queue, steps, prompt)
        totals = sorted(times.totals())
        parts = [statistics.fmean(p) for p in (times.schedule, times.run, times.update)]
        figures = [*parts, statistics.fmean(totals), statistics.median(totals), totals[int(len(totals) * 0.99)]]
        table.add_row(name, *(f"{seconds * 1e3:.3f}" for seconds in figures))
    Console().print(table)


def measure(rows: int, waiting: int, steps: int, prompt: int) -> _Times:
    """Time ``steps`` decode steps of ``rows`` rows while ``waiting`` more requests wait."""
    from octavo.kv import KVManager
    from octavo.platform import Bucket, KVLayout, ReferenceKVStore
    from octavo.runner import Batch, Runner
    from octavo.runner.null import NullExecutable
    from octavo.sampling import SamplingParams
    from octavo.scheduler import Request, Scheduler, SchedulerConfig

    block_size, output = 16, steps + 64
    length = prompt + output
    blocks = 1 + rows * -(-length // block_size)
    core = Scheduler(SchedulerConfig(rows, 8192, length), KVManager(blocks, block_size))
    store = ReferenceKVStore(KVLayout(block_size, 0, 1, 1, "f32"), blocks)
    runner = Runner({Bucket(): NullExecutable()}, store, Batch(rows, length, block_size, 1))
    params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
    for number in range(rows + waiting):
        core.add(Request(str(number), [number % 1000, *range(prompt - 1)], params))

    def step() -> tuple[int, float, float, float]:
        begun = time.perf_counter()
        plan = core.schedule()
        assert plan is not None, "there is always work here"
        planned = time.perf_counter()
        result = runner.collect(runner.submit(plan))
        ran = time.perf_counter()
        core.update(plan, result)
        return sum(plan.counts), planned - begun, ran - planned, time.perf_counter() - ran

    while step()[0] != rows:  # until every prompt is in
        pass
    times = _Times()
    for _ in range(steps):
        _, schedule, run, update = step()
        times.schedule.append(schedule)
        times.run.append(run)
        times.update.append(update)
    return times
