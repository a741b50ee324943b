"""Commands that other distributions bring."""

from __future__ import annotations

from importlib import metadata

import pytest
from typer.testing import CliRunner

from octavo.cli import plugged
from octavo.cli.main import app
from octavo.errors import ConfigError


class Command:
    """An entry point whose command keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def load(self) -> object:
        return self.given.extend


def test_everything_after_the_name_goes_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command()
    monkeypatch.setattr(metadata, "entry_points", lambda group, name: [command])
    result = CliRunner().invoke(app, ["conformance", "run", "--platform", "acme", "-h", "--", "--odd"])
    assert result.exit_code == 0, result.output
    assert command.given[:4] == ["run", "--platform", "acme", "-h"]


def test_a_command_whose_distribution_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group, name: [])
    with pytest.raises(ConfigError, match="octavo conformance comes with octavo-conformance; install it: pip install"):
        plugged.run("conformance", "octavo-conformance", ["list"])


def test_help_names_the_command_without_loading_it() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert "conformance" in result.output
