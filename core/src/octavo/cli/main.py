"""The ``octavo`` command."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from octavo import __version__, env
from octavo.cli import artifacts, bench, engine_options, platform, platforms, plugged, serve
from octavo.cli.chat import DEFAULT_URL, chat
from octavo.cli.compile import compile_model
from octavo.cli.openapi import openapi
from octavo.cli.run_batch import run_batch
from octavo.errors import OctavoError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the rich help cuts long option names short at 80 columns
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Octavo serves large language models on any accelerator.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"octavo {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


def _chat(
    url: Annotated[str, typer.Option(help="Base URL of an OpenAI-compatible server.")] = DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="Model to use; the server's first by default.")] = None,
    system: Annotated[str | None, typer.Option(help="System message that opens every conversation.")] = None,
    api_key: Annotated[str | None, typer.Option(help="API key of the server.", envvar="OPENAI_API_KEY")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; the server's default unless given.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Maximum number of tokens in an answer.")] = None,
) -> None:
    """Talk to a running server in the terminal."""
    chat(url, model, system, api_key=api_key, temperature=temperature, max_tokens=max_tokens)


app.command("serve", context_settings=engine_options.CONTEXT)(serve.serve)
app.command("chat")(_chat)
app.command("compile")(compile_model)
app.command("openapi")(openapi)
app.command("run-batch", context_settings=engine_options.CONTEXT)(run_batch)
app.command("conformance", context_settings=plugged.CONTEXT)(plugged.conformance)
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(platforms.app, name="platforms")
app.add_typer(platform.app, name="platform")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """Run the command line. An error on purpose becomes one line on stderr and exit code 1; anything else is a bug."""
    try:
        _log_to_stderr()
        app()
    except OctavoError as error:
        sys.stderr.write(f"octavo: {error}\n")
        raise SystemExit(1) from None


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname).1s %(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("octavo")
    logger.addHandler(handler)
    logger.setLevel(env.log_level())


if __name__ == "__main__":
    main()
