"""``octavo artifacts``: what a store holds, whether it is whole, and how it gets to another machine."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from octavo.errors import ConfigError
from octavo.platform.artifacts import ArtifactStore, Verdict
from octavo.platform.artifacts.bundle import export_bundle, import_bundle
from octavo.platform.artifacts.inspect import Entry, chosen, listing, look, prune

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Manage compiled artifacts: programs and packed weights that platforms keep for the next start.",
)

Folder = Annotated[
    Path | None, typer.Option("--artifacts", metavar="DIR", help="Folder of artifacts instead of the user's cache.")
]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Prefixes of ids; all artifacts by default.")]

_COLOURS = {Verdict.GOOD: "green", Verdict.STALE: "yellow", Verdict.INCOMPATIBLE: "yellow", Verdict.DAMAGED: "red"}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@app.command("list")
def list_(artifacts: Folder = None) -> None:
    """List the artifacts. By what they say of themselves; verify reads all of them."""
    folder = _folder(artifacts)
    found = listing(folder)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("id", "verdict", "artifact", "compiler", "size", "last used"):
        table.add_column(column, overflow="fold")
    for entry in found:
        key = entry.index.key if entry.index else None
        table.add_row(
            entry.id[:12],
            _verdict(entry),
            escape(str(key)) if key else escape(entry.why),
            escape(key.compiler) if key else "",
            _size(entry.bytes),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used_ns / 1e9)),
        )
    console = Console()
    if found:
        console.print(table)
    count = "1 artifact" if len(found) == 1 else f"{len(found)} artifacts"
    console.print(f"{count}, {_size(sum(entry.bytes for entry in found))}, in {folder}", markup=False, highlight=False)


@app.command()
def show(
    artifact: Annotated[str, typer.Argument(metavar="ID", help="Prefix of the artifact's id.")],
    artifacts: Folder = None,
) -> None:
    """Show all that an artifact depends on and what it holds, as JSON."""
    [path] = chosen(_folder(artifacts), [artifact])
    entry = look(path, check=True, threads=_threads())
    content: dict[str, object] = {"id": entry.id, "verdict": entry.verdict.value, "bytes": entry.bytes}
    if entry.why:
        content["why"] = f"the file {entry.why}"
    if entry.index:
        content["key"] = entry.index.key.to_dict()
        content["notes"] = dict(entry.index.notes)
        content["arrays"] = {array.name: f"{array.dtype} {list(array.shape)}" for array in entry.index.arrays}
    typer.echo(json.dumps(content, indent=2))


@app.command()
def verify(ids: Ids = None, artifacts: Folder = None) -> None:
    """Compare every byte with its checksum. Ends with status 1 if any artifact is not good."""
    paths = chosen(_folder(artifacts), ids or [])
    found = [look(path, check=True, threads=_threads()) for path in paths]
    for entry in found:
        typer.echo(f"{entry.verdict.value:12}  {entry.id}" + (f"  the file {entry.why}" if entry.why else ""))
    bad = sum(entry.verdict is not Verdict.GOOD for entry in found)
    typer.echo(f"{len(found) - bad} of {len(found)} artifacts are good")
    if bad:
        raise typer.Exit(1)


@app.command("export")
def export(
    bundle: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle to write (a tar file).")],
    ids: Ids = None,
    artifacts: Folder = None,
) -> None:
    """Write artifacts to one file, to import on another machine. Prints the bundle's id."""
    folder = _folder(artifacts)
    paths = chosen(folder, ids or [])
    if not paths:
        raise ConfigError(f"there are no artifacts in {folder} to export (--artifacts)")
    found = export_bundle(paths, bundle, threads=_threads())
    typer.echo(f"{len(paths)} artifacts in {bundle}, id {found}")


@app.command("import")
def import_(
    bundle: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle that `export` wrote.")],
    artifacts: Folder = None,
    expected: Annotated[
        str | None, typer.Option("--id", help="Id that `export` printed; any other bundle is refused.")
    ] = None,
) -> None:
    """Take the artifacts of a bundle over. Programs run on the device: import only what you trust, or give its --id."""
    folder = _folder(artifacts)
    private = _store(artifacts).private
    new, there = import_bundle(bundle, folder, expected=expected, private=private, threads=_threads())
    typer.echo(f"{len(new)} artifacts imported into {folder}, {len(there)} were there")


@app.command("prune")
def prune_(
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Delete the least recently used artifacts until at most SIZE is left, such as 20G."
        ),
    ] = None,
    unused_for: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Delete artifacts that were not used for DAYS days.")
    ] = None,
    unusable: Annotated[
        bool, typer.Option("--unusable", help="Delete artifacts that are damaged or of another format.")
    ] = False,
    artifacts: Folder = None,
) -> None:
    """Delete artifacts. Those in use stay, and what killed processes left goes."""
    if max_size is None and unused_for is None and not unusable:
        raise ConfigError("say what to delete: --max-size, --unused-for or --unusable")
    if unused_for is not None and unused_for < 0:
        raise ConfigError(f"unused_for must be at least 0 days, not {unused_for:g} (--unused-for)")
    before = None if unused_for is None else time.time_ns() - int(unused_for * 86400 * 1e9)
    size = None if max_size is None else _parse_size(max_size)
    done = prune(_folder(artifacts), max_bytes=size, used_before_ns=before, unusable=unusable)
    for what, entries in (("deleted", done.gone), ("in use", done.in_use)):
        for entry in entries:
            typer.echo(f"{what}  {entry.id}  {_size(entry.bytes)}")
    typer.echo(f"{len(done.gone)} artifacts deleted, {_size(sum(entry.bytes for entry in done.gone))}")


def _store(named: Path | None) -> ArtifactStore:
    from octavo.engine.artifacts import user_store  # here, so that --help does not wait for the engine

    return user_store(named)


def _folder(named: Path | None) -> Path:
    folder = _store(named).folder
    assert folder is not None, "the user's store has a folder"
    return folder


def _threads() -> int:
    return min(8, os.cpu_count() or 1)


def _verdict(entry: Entry) -> str:
    return f"[{_COLOURS[entry.verdict]}]{entry.verdict.value}[/]"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"max_size {text!r} is no size; write 500M, 20G or a number of bytes (--max-size)")
    return int(float(match[1]) * _UNITS[match[2].upper()])
