"""``octavo serve``: a model behind the OpenAI and Anthropic APIs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.engine_options import (
    MODEL_HELP,
    RunningOptions,
    ShapeOptions,
    describe,
    engine_config,
    plain_words,
    with_options,
)
from octavo.cli.server_options import ServerOptions, with_limits
from octavo.env import data_folder
from octavo.errors import ConfigError

BATCH_PRIORITY = 1000
"""Added to the priority of a batch's lines, so that whoever waits for an answer goes first."""


@with_options
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    shape: ShapeOptions,
    running: RunningOptions,
    server: ServerOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8000,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="SQL database for stored responses and files, as an SQLAlchemy URL; sqlite:// keeps it in memory. "
            "Without it, a file in the user's data folder.",
        ),
    ] = None,
    files_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for uploaded files and batch results; belongs to this database."),
    ] = None,
    responses_max_age: Annotated[
        float, typer.Option(metavar="DAYS", help="Days for which responses and conversations are kept.")
    ] = 30,
    responses_max_bytes: Annotated[
        int,
        typer.Option(
            metavar="BYTES", help="Maximum size of stored responses and conversations; the oldest are deleted first."
        ),
    ] = 2**30,
    enable_tokenizer_info: Annotated[
        bool,
        typer.Option("--enable-tokenizer-info", help="Serve special tokens and the chat template at /tokenizer_info."),
    ] = False,
    openapi: Annotated[
        bool | None,
        typer.Option(help="Serve /openapi.json; the default is to do so only when listening on a loopback address."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name by which a local proxy or browser may call the server; may be repeated."),
    ] = None,
    ui: Annotated[bool, typer.Option(help="Serve a chat page at /.")] = True,
) -> None:
    """Serve MODEL through the OpenAI and Anthropic APIs until Ctrl-C."""
    limits = server.limits()
    config = with_limits(engine_config(_model_of([model, *context.args]), shape, running), limits)
    # The engine and the server are imported here, so that --help does not wait for them.
    from octavo.engine import AsyncLLM, start
    from octavo.engine.progress import startup_progress
    from octavo.server.loop import exposed, listen
    from octavo.server.loop import serve as serve_llm
    from octavo.server.transport.database import METADATA, Database
    from octavo.text.templates.worker import template_worker

    kept = database or Database.file(data_folder() / "server.db")
    settings = server.settings(
        limits,
        database=kept,
        files_dir=files_dir or _files_beside(kept),
        responses_max_age=responses_max_age,
        responses_max_bytes=responses_max_bytes,
        tokenizer_info=enable_tokenizer_info,
        ui=ui,
        allowed_hosts=tuple(allowed_host or ()),
    )
    Database(settings.database, METADATA).close()  # before the model is loaded: what cannot be opened shows at once
    listener = listen(host, port)  # before the model is loaded: a port in use shows at once
    try:
        with startup_progress() as progress:
            started = start(config, progress)
    except BaseException:
        listener.close()
        raise
    plan = started.plan
    typer.echo(describe(started.platform, plan.max_model_len, plan.max_num_seqs, started.kv_blocks, plan.block_size))
    for decision in plan.decisions:
        typer.echo(f"  {decision}")
    if started.generation.told:
        typer.echo(f"  {started.generation.told}")
    settings = replace(
        settings,
        plugged=started.plugged,
        openapi=not exposed(listener) if openapi is None else openapi,
        batch_lines_in_flight=max(1, plan.max_num_seqs * 3 // 4),  # the other rows are for those who wait
        batch_priority=BATCH_PRIORITY if config.scheduling_policy == "priority" else 0,
    )
    with template_worker(started.tokenizer, limits.template_seconds, limits.template_memory):
        serve_llm(AsyncLLM.from_started(started, config.step_timeout), listener=listener, settings=settings)


def _files_beside(database: str) -> Path | None:
    """The folder of files that goes with a database, where none is named: files belong to their rows."""
    from octavo.server.transport.database import IN_MEMORY

    if database == IN_MEMORY:
        return None
    return data_folder() / f"files-{hashlib.sha256(database.encode()).hexdigest()[:12]}"


def _model_of(words: list[str]) -> str:
    """MODEL, among the words that no option took."""
    words = plain_words(words, "serve")
    if len(words) != 1:
        raise ConfigError(f"serve takes one MODEL; what is {words[1]!r}?" if words else "serve needs a MODEL")
    return words[0]
