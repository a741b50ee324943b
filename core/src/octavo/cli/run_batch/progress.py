"""What is shown while a batch runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Standing:
    """How far a run is."""

    done: int
    total: int
    failed: int
    input_tokens: int
    output_tokens: int


Show = Callable[[Standing], None]


@contextmanager
def batch_progress(begun: Standing, console: Console, clock: Callable[[], float] = time.perf_counter) -> Iterator[Show]:
    """Call what it yields whenever a line has ended. ``begun``: what earlier runs have done."""
    rates = _Rates(begun, clock)
    if not console.is_terminal:
        yield _plain(rates, console, clock)
        return
    columns = (
        TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[rate]}")
    )  # fmt: skip
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("", total=begun.total, completed=begun.done, rate="")
        yield lambda now: bars.update(task, completed=now.done, rate=rates.describe(now))


def _plain(rates: _Rates, console: Console, clock: Callable[[], float]) -> Show:
    due = clock() + PLAIN_SECONDS

    def show(now: Standing) -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + PLAIN_SECONDS
            left = rates.seconds_left(now)
            soon = f", about {left:,.0f} s left" if left is not None else ""
            console.print(f"{now.done} of {now.total} lines, {rates.describe(now)}{soon}", soft_wrap=True)

    return show


class _Rates:
    def __init__(self, begun: Standing, clock: Callable[[], float]) -> None:
        self._begun, self._clock, self._since = begun, clock, clock()

    def describe(self, now: Standing) -> str:
        """Tokens per second of this run, and what went wrong."""
        seconds = max(self._clock() - self._since, 1e-9)
        taken = (now.input_tokens - self._begun.input_tokens) / seconds
        made = (now.output_tokens - self._begun.output_tokens) / seconds
        failed = f", {now.failed} failed" if now.failed else ""
        return f"in {taken:,.0f} tok/s, out {made:,.0f} tok/s{failed}"

    def seconds_left(self, now: Standing) -> float | None:
        done = now.done - self._begun.done
        return (now.total - now.done) * (self._clock() - self._since) / done if done else None
