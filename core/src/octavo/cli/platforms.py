"""``octavo platforms``: what is installed, what this machine can run, and why, and what of it is certified;
``explain``: how one of them works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from octavo.errors import PlatformError
from octavo.platform import Platform, Rank, certificate
from octavo.platform.discovery import Found, default, discover, select

_COLOURS = {"available": "green", "unavailable": "yellow", "broken": "red"}


app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def platforms(context: typer.Context) -> None:
    """List the installed platforms. Each with its verdict, the reason, which would be used, and its certificate."""
    if context.invoked_subcommand is None:
        _list()


@app.command()
def explain(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the platform.")]) -> None:
    """Open a platform and show what it declares and measures.

    And what it chose on this machine.
    """
    from octavo.engine.artifacts import user_store  # here, so that --help does not wait for the engine

    platform = select(discover().platforms, name)
    info, can = platform.info, platform.capabilities()
    device = platform.open(Rank(artifacts=user_store()))
    try:
        report = dict(device.report())
    finally:
        device.close()
    rows = {
        "platform": f"{info.name} {info.version} by {info.vendor} ({info.kind})",
        "contract": ", ".join(f"{facet} {version}" for facet, version in info.contract.items()),
        "ops": ", ".join(sorted(can.ops)),
        "weight formats": ", ".join(sorted(can.weight_formats)),
        "activations, KV cache": f"{', '.join(can.dtypes)}; {', '.join(can.kv_dtypes)}",
        "attention": ", ".join(["causal", *sorted(can.attention)]),
        "block sizes": ", ".join(map(str, can.block_sizes)),
        "compiles ahead for": ", ".join(can.targets) or "nothing: it compiles on the device that serves",
        **report,
    }
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(escape(key), escape(value))
    Console().print(table)


def _list() -> None:
    found = discover().platforms
    console = Console()
    if not found:
        console.print("No platform plugin is installed; install one: pip install 'octavo[PLATFORM]'", markup=False)
        return
    try:
        chosen, why_not = default(found).name, ""
    except PlatformError as error:
        chosen, why_not = None, str(error)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("platform", "verdict", "why", "from", "select with"):
        table.add_column(column, overflow="fold")
    for f in found:
        colour = _COLOURS[f.verdict]
        selection = f"--platform {f.name}" + (" (default)" if f.name == chosen else "")
        table.add_row(
            f.name,
            f"[{colour}]{f.verdict}[/]",
            escape(f.probe.reason),
            f.distribution,
            selection if f.verdict == "available" else "",
        )
    console.print(table)
    if why_not:
        console.print(f"No default: {why_not}", markup=False)
    _certificates(console, found)


def _certificates(console: Console, found: Sequence[Found]) -> None:
    """What each platform is certified as, and in what that which runs differs from it."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("platform", "certificate"):
        table.add_column(column, overflow="fold")
    for f in found:
        if f.platform is not None:
            for i, line in enumerate(_certified(f.platform)):
                table.add_row("" if i else f.name, line)
    if table.row_count:
        console.print()
        console.print(table)


def _certified(platform: Platform) -> Iterator[str]:
    """Lines with rich's markup."""
    cure = f"octavo conformance certify --platform {escape(platform.info.name)}"
    try:
        found = certificate.held(platform)
    except PlatformError as error:
        yield f"[red]{escape(str(error))}[/]"
        return
    if not found:
        yield f"none; prove it: {cure}"
    for held in found:
        about = held.certificate
        colour = "yellow" if held.differences else "green"
        yield f"[{colour}]{escape(about.line)}[/] ({escape(about.trust)}, {escape(about.issued)})"
        yield f"proof: {escape(str(held.bundle or 'not there'))}"
        yield from (f"[yellow]warning: {escape(difference)}[/]" for difference in held.differences)
    if found and all(held.differences for held in found):
        yield f"[yellow]what runs is not what was certified; prove it: {cure}[/]"
