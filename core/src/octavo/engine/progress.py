"""What a terminal shows while long work goes on. Nothing is drawn where output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from octavo.platform import Progress as Report


@contextmanager
def startup_progress() -> Iterator[Report]:
    """A bar per kind of work while an engine starts; they vanish when it is done."""
    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        console=console,
        transient=True,
    )
    tasks = {}

    def report(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=max(total, 1))
        bars.update(tasks[what], completed=done)

    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with bars:
        yield report


@contextmanager
def prompts_progress(count: int | None, *, show: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar over prompts with the token rates; call what it yields with a finished prompt's input and output tokens.

    ``count`` is ``None`` where nobody knows how many there are.
    """
    console = Console(stderr=True)
    if not show or not console.is_terminal:
        yield lambda tokens_in, tokens_out: None
        return
    columns = (
        TextColumn("prompts"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[rate]}"),
    )  # fmt: skip
    totals = [0, 0]
    begun = time.perf_counter()
    with Progress(*columns, console=console) as bars:
        task = bars.add_task("", total=count, rate="")

        def done(tokens_in: int, tokens_out: int) -> None:
            totals[0] += tokens_in
            totals[1] += tokens_out
            seconds = max(time.perf_counter() - begun, 1e-9)
            rate = f"in {totals[0] / seconds:,.0f} tok/s, out {totals[1] / seconds:,.0f} tok/s"
            bars.update(task, advance=1, rate=rate)

        yield done
