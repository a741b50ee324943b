"""``octavo platform new``: begin a plugin."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli import scaffold

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True, help="Create a platform plugin.")


@app.callback()
def _group() -> None:
    """Keep ``new`` a subcommand although it is the only one."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name that users will give to --platform, such as acme.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Folder to create; octavo-NAME by default.")
    ] = None,
) -> None:
    """Write a complete plugin for a new platform: it installs, serves, and passes conformance as it is.

    The reference device does the work at first, in numpy on the host; replace it part by part. Nothing is overwritten.
    """
    target = folder or Path(scaffold.distribution_of(name))
    written = scaffold.write(name, target)
    lines = 0
    for path in written:
        count = len(path.read_text(encoding="utf-8").splitlines())
        typer.echo(f"{count:5}  {path}")
        lines += count
    typer.echo(f"{lines:5}  lines: a platform called {name}, on Octavo's reference device so far\n\nNext:")
    here = shlex.quote(str(target) if target.is_absolute() else f"./{target}")
    for command, why in (
        (f"pip install -e {here}", "octavo platforms then lists it"),
        (f"octavo serve MODEL --platform {name}", "the first tokens"),
        (f"octavo conformance run --platform {name}", "after each kernel; pip install octavo-conformance"),
    ):
        typer.echo(f"  {command:<44}  # {why}")
