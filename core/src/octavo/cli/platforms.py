"""``octavo platforms``: what is installed, what this machine can run, and why."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from octavo.errors import PlatformError
from octavo.platform.discovery import discover, select

_COLOURS = {"available": "green", "unavailable": "yellow", "broken": "red"}


def platforms() -> None:
    """List every installed platform with its verdict, the reason, and which one would be used."""
    found = discover().platforms
    console = Console()
    if not found:
        console.print("No platform plugin is installed; install one: pip install 'octavo[PLATFORM]'", markup=False)
        return
    try:
        chosen, why_not = select(found).info.name, ""
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
