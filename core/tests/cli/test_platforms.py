"""``octavo platforms``, as typed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.errors import PlatformNotFound
from octavo.platform import Probe
from octavo.platform.discovery import Found, Registry, discover


def test_the_list_has_each_platform_with_its_verdict_and_flag() -> None:
    result = CliRunner().invoke(app, ["platforms"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    [line] = [line for line in result.stdout.splitlines() if line.startswith("reference")]
    assert "available" in line and "--platform reference" in line


def test_the_list_shows_a_broken_plugin_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    broken = Found("acme", "octavo-acme 1.0", Probe(False, "ImportError: libacme"))
    found = Registry((*discover().platforms, broken), ())
    monkeypatch.setattr("octavo.cli.platforms.discover", lambda: found)
    result = CliRunner().invoke(app, ["platforms"], env={"COLUMNS": "200"})
    assert result.stdout.count("libacme") == 1
    assert not caplog.records  # what `select` warns of is in the table already


def test_explain_shows_declarations_and_the_report_of_the_device() -> None:
    result = CliRunner().invoke(app, ["platforms", "explain", "reference"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for part in ("kv 1.0", "gated_activation", "q4_k", "numpy, float32"):
        assert part in result.stdout


def test_explain_of_a_platform_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(PlatformNotFound, match="acme"):
        CliRunner().invoke(app, ["platforms", "explain", "acme"], catch_exceptions=False)
