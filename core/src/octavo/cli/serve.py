"""``octavo serve``: a model behind the OpenAI API."""

from __future__ import annotations

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
from octavo.errors import ConfigError


@with_options
def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    shape: ShapeOptions,
    running: RunningOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
) -> None:
    """Serve MODEL through the OpenAI API until Ctrl-C."""
    config = engine_config(_model_of([model, *context.args]), shape, running)
    # The engine and the server are imported here, so that --help does not wait for them.
    from octavo.engine import AsyncLLM, start
    from octavo.engine.progress import startup_progress
    from octavo.server.loop import listen
    from octavo.server.loop import serve as serve_llm

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
    serve_llm(AsyncLLM.from_started(started, config.step_timeout), listener=listener)


def _model_of(words: list[str]) -> str:
    """MODEL, among the words that no option took."""
    words = plain_words(words, "serve")
    if len(words) != 1:
        raise ConfigError(f"serve takes one MODEL; what is {words[1]!r}?" if words else "serve needs a MODEL")
    return words[0]
