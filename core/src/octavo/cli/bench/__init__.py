"""``octavo bench``: measurements that a user can repeat."""

import typer

from octavo.cli.bench.accuracy import accuracy
from octavo.cli.bench.kernels import kernels
from octavo.cli.bench.scheduler import scheduler
from octavo.cli.bench.serving import serve
from octavo.cli.bench.speed import latency, throughput

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure Octavo on this machine.")
for command in (throughput, latency, serve, accuracy, scheduler, kernels):
    app.command()(command)

__all__ = ["app"]
