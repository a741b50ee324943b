"""The flags of ``octavo run-batch``, and what it prints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

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
from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.cli.run_batch.job import Job
    from octavo.config import EngineConfig

SOME_FAILED = 3
INTERRUPTED = 130


@with_options
def run_batch(
    context: typer.Context,
    shape: ShapeOptions,
    running: RunningOptions,
    server: ServerOptions,
    input: Annotated[
        str | None, typer.Argument(metavar="IN", help="File of requests, one JSON object per line; a path or a URL.")
    ] = None,
    input_file: Annotated[str | None, typer.Option("-i", "--input-file", help="The same as IN.")] = None,
    output_file: Annotated[
        str | None, typer.Option("-o", "--output-file", help="Output file for the answers; a path or a URL.")
    ] = None,
    model: Annotated[str | None, typer.Option(help=MODEL_HELP)] = None,
    error_file: Annotated[
        str | None, typer.Option(help="Output file for failed lines; NAME.errors.jsonl beside the answers by default.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start over, ignoring what the output files already contain.")
    ] = False,
) -> None:
    """Run a file of requests through a model: the OpenAI batch format in, the same out.

    Started again after an interruption, it goes on where it stopped. Ends with 0 if every line was answered, 3 if some
    failed, 130 if it was interrupted, and 1 if it could not go on.
    """
    source = _input_of([*([input] if input else []), *context.args], input_file)
    if model is None:
        raise ConfigError("run-batch needs a model (--model)")
    if output_file is None:
        raise ConfigError("run-batch needs a file for the answers (-o)")
    limits = server.limits()
    config = with_limits(engine_config(model, shape, running), limits)
    # The server is imported here, so that --help does not wait for it.
    from octavo.cli.run_batch.job import Files, Job
    from octavo.cli.run_batch.places import Place, beside

    files = Files(Place(source), Place(output_file), Place(error_file or beside(output_file)))
    job = Job(files, overwrite=overwrite, settings=server.settings(limits))
    if job.standing.done:
        typer.echo(f"Going on: {job.standing.done} of {job.total} lines are finished.", err=True)
    begun, before = time.perf_counter(), job.standing
    try:
        finished = job.standing.done == job.total or _run(job, config)
    finally:
        job.close()
    now, seconds = job.standing, time.perf_counter() - begun
    typer.echo(f"{now.done - now.failed} of {now.total} lines were answered: {output_file}")
    if now.failed:
        typer.echo(f"{now.failed} failed: {files.errors.url}")
    taken, made = now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens
    if made or taken:
        typer.echo(f"{taken:,} prompt and {made:,} output tokens in {seconds:,.1f} s")
    if not finished:
        typer.echo(f"{now.total - now.done} are left; the same command goes on with them.")
        raise typer.Exit(INTERRUPTED)
    if now.failed:
        raise typer.Exit(SOME_FAILED)


def _run(job: Job, config: EngineConfig) -> bool:
    import uvloop
    from rich.console import Console

    from octavo.cli.run_batch.job import LINES_PER_SEQUENCE
    from octavo.cli.run_batch.progress import batch_progress
    from octavo.engine import AsyncLLM, start
    from octavo.engine.progress import startup_progress

    with startup_progress() as progress:
        started = start(config, progress)
    plan = started.plan
    typer.echo(
        describe(started.platform, plan.max_model_len, plan.max_num_seqs, started.kv_blocks, plan.block_size), err=True
    )
    if started.generation.told:
        typer.echo(f"  {started.generation.told}", err=True)

    async def serve() -> bool:
        llm = AsyncLLM.from_started(started, config.step_timeout)
        try:
            with batch_progress(job.standing, Console(stderr=True)) as show:
                lines = LINES_PER_SEQUENCE * plan.max_num_seqs
                return await job.run(llm, lines, show, lambda text: typer.echo(text, err=True), started.plugged)
        finally:
            await llm.close()

    return uvloop.run(serve())


def _input_of(words: list[str], flagged: str | None) -> str:
    """IN, given as a word or by its flag."""
    given = [*plain_words(words, "run-batch"), *([flagged] if flagged is not None else [])]
    if not given:
        raise ConfigError("run-batch needs a file of requests: octavo run-batch IN.jsonl -o OUT.jsonl --model MODEL")
    if len(given) > 1:
        raise ConfigError(f"run-batch takes one file of requests; what is {given[1]!r}?")
    return given[0]
