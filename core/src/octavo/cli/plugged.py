"""Commands that other distributions bring: found by entry point when they are typed, and not before."""

from __future__ import annotations

from importlib import metadata

import typer

from octavo.errors import ConfigError

GROUP = "octavo.commands"
CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
"""Everything after the command's name is its own, --help too."""


def conformance(context: typer.Context) -> None:
    """Prove that a platform is right. The distribution octavo-conformance brings it."""
    run("conformance", "octavo-conformance", context.args)


def run(command: str, distribution: str, arguments: list[str]) -> None:
    """Hand over to the command's own main. Raises ConfigError where its distribution is not installed."""
    found = list(metadata.entry_points(group=GROUP, name=command))
    if not found:
        raise ConfigError(f"octavo {command} comes with {distribution}; install it: pip install {distribution}")
    found[0].load()(arguments)
