"""``octavo bench kernels``: kernels, or the parts of one step, against what the machine gives at best."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from octavo.cli.bench.step import StepShape, measure_step
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.platform import KernelTime, Platform, StepTimes

NOTHING = "-"
"""Where there is no figure."""


def kernels(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="Model whose formats and shapes are measured; common ones by default."),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="Profile one step instead: prefill:[ROWSx]TOKENS or decode:[ROWSx]CONTEXT.",
            metavar="STEP",
        ),
    ] = None,
    only: Annotated[str, typer.Option(help="Measure only kernels whose name contains this.")] = "",
    rounds: Annotated[int, typer.Option(help="Number of runs of the step; the median is shown.", min=1)] = 7,
    platform: Annotated[str | None, typer.Option(help="Platform to use; `octavo platforms` lists them.")] = None,
    threads: Annotated[int | None, typer.Option(help="Number of host cores that the device may use.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in seconds, bytes and operations.")] = False,
) -> None:
    """Hold each kernel, or a step's parts, against the ceilings.

    Bytes and operations per second against what was measured as the machine's best, or (--step) where a step's time
    goes.
    """
    from octavo.platform.discovery import discover, select

    registry = discover()
    chosen = select(registry.platforms, platform)
    name = chosen.info.name
    if step is not None:
        shape = StepShape.parse(step)
        if model is None:
            raise ConfigError(f"a step is a model's: octavo bench kernels MODEL --step {step}")
        times = measure_step(chosen, registry, model, shape, rounds, threads)
        if as_json:
            typer.echo(json.dumps({"platform": name, "model": model, "step": step, **asdict(times)}, indent=1))
        else:
            Console().print(step_table(f"{step} on {name}, median of {rounds}", times))
        return
    measured: list[KernelTime] = []
    with Console(stderr=True).status("measuring what the machine gives at best") as status:
        for kernel in _measure(chosen, model, only, threads):
            measured.append(kernel)
            status.update(f"measured {kernel.kernel} {kernel.case}")
    if not measured:
        raise ConfigError(f"no kernel of {name} has {only!r} in its name; leave --only out to see them all")
    if as_json:
        shares = ("bandwidth_share", "peak_share")
        records = [{**asdict(k), **{share: getattr(k, share) for share in shares}} for k in measured]
        typer.echo(json.dumps({"platform": name, "model": model, "kernels": records}, indent=1))
        return
    for count in dict.fromkeys(k.threads for k in measured):
        Console().print(kernel_table([k for k in measured if k.threads == count]))


def _measure(platform: Platform, model: str | None, only: str, threads: int | None) -> Iterator[KernelTime]:
    from octavo.graph import fuse
    from octavo.models import load_model, resolve
    from octavo.platform import Rank, open_bench

    device = open_bench(platform, Rank(threads=threads))
    try:
        graph = fuse(load_model(resolve(model)).graph) if model is not None else None
        yield from device.kernel_times(graph, only)
    finally:
        device.close()


def kernel_table(measured: Sequence[KernelTime]) -> Table:
    """Kernels that ran on equally many threads."""
    table = Table(title=_ceilings(measured), title_justify="left", box=None)
    for column in ("kernel", "case"):
        table.add_column(column, no_wrap=True)
    for column in ("median µs", "fastest", "GB/s", "Gop/s", "of read", "of peak"):
        table.add_column(column, justify="right", no_wrap=True)
    for k in measured:
        table.add_row(
            k.kernel,
            k.case,
            f"{k.seconds * 1e6:,.1f}",
            f"{k.fastest * 1e6:,.1f}",
            f"{k.bytes / k.seconds / 1e9:,.1f}",
            f"{k.operations / k.seconds / 1e9:,.1f}" if k.operations else NOTHING,
            _percent(k.bandwidth_share),
            _percent(k.peak_share),
        )
    return table


def _ceilings(measured: Sequence[KernelTime]) -> str:
    """What the shares are of."""
    count = measured[0].threads
    read = next((k.bandwidth for k in measured if k.bandwidth), None)
    peaks = {k.arithmetic: k.peak for k in measured if k.peak}
    found = [f"read {read / 1e9:,.1f} GB/s"] if read else []
    found += [f"{arithmetic} {peak / 1e9:,.0f} Gop/s" for arithmetic, peak in peaks.items()]
    workers = "the device" if count == 0 else f"{count} thread{'s' * (count != 1)}"
    return f"{workers}, at best: {', '.join(found) or 'not known'}"


def step_table(title: str, times: StepTimes) -> Table:
    """Where a step's time went. Shares are of the whole step; ``of limit`` is the limit's share of the part's time."""
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("part", overflow="fold")
    for column in ("ms", "share", "waiting", "GB/s", "Gop/s", "limit", "of limit"):
        table.add_column(column, justify="right", no_wrap=True)
    for part in times.parts:
        seconds = part.working + part.waiting
        table.add_row(
            part.part,
            _ms(seconds),
            _percent(seconds / times.seconds),
            _ms(part.waiting),
            _rate(part.bytes, seconds),
            _rate(part.operations, seconds),
            NOTHING if part.limit is None else _ms(part.limit),
            _percent(part.limit / seconds if part.limit is not None and seconds else None),
        )
    waiting = sum(p.waiting for p in times.parts)
    outside = times.seconds - sum(p.working + p.waiting for p in times.parts)
    limits = sum(p.limit or 0.0 for p in times.parts)
    table.add_row("outside of the parts", _ms(outside), _percent(outside / times.seconds), *[NOTHING] * 5)
    table.add_section()
    table.add_row(
        "the step", _ms(times.seconds), _percent(1.0), _ms(waiting), NOTHING, NOTHING, _ms(limits),
        _percent(limits / times.seconds),
    )  # fmt: skip
    table.add_row("the fastest", _ms(times.fastest), *[NOTHING] * 6)
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f}"


def _rate(amount: float, seconds: float) -> str:
    return f"{amount / seconds / 1e9:,.1f}" if amount and seconds else NOTHING


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"
