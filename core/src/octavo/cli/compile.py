"""``octavo compile``: make what a platform would make when it serves a model, with no device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.engine_options import MODEL_HELP, ShapeOptions, engine_config, with_options


@with_options
def compile_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    shape: ShapeOptions,
    out: Annotated[Path, typer.Option(help="Folder for the artifacts, which `octavo serve --artifacts` then uses.")],
    target: Annotated[
        str | None, typer.Option(help="Kind of device to compile for; `octavo platforms explain` lists them.")
    ] = None,
) -> None:
    """Compile MODEL ahead of time, for serving with --artifacts. The device need not be there; give serve's settings.

    What is there and good is left as it is; what another version of the compiler made is made again.
    """
    config = engine_config(model, shape)
    # The engine is imported here, so that --help does not wait for it.
    from octavo.engine.ahead import compile_ahead
    from octavo.engine.progress import startup_progress

    with startup_progress() as progress:
        compiled = compile_ahead(config, out, target, progress)
    for key, file, made in compiled.artifacts:
        typer.echo(f"{'made' if made else 'there'}  {key}  {file.name}")
    count = sum(made for _, _, made in compiled.artifacts)
    typer.echo(
        f"{count} of {len(compiled.artifacts)} artifacts made for {compiled.platform} ({compiled.target}) in {out}"
    )
