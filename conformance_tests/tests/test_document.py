"""The conformance document: made from the checks, and as it is committed."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from octavo_conformance import mutants
from octavo_conformance.cli import app
from octavo_conformance.judge import tol
from octavo_conformance.report import document, explanation, listing
from octavo_conformance.report.document import COMMAND, RULES, TITLES
from octavo_conformance.suite.check import LEVELS
from octavo_conformance.suite.registry import catalogue

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"


def test_the_committed_document_is_what_the_checks_say() -> None:
    made = document(catalogue(), mutants.catalogue())
    assert PAGE.read_text(encoding="utf-8") == made, f"docs/reference/conformance.md is old; make it anew: {COMMAND}"


def test_the_command_writes_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["list", "--md", "--out", str(tmp_path / "page.md")])
    assert result.exit_code == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_it_has_every_check_and_every_fault_that_one_catches() -> None:
    page = document(catalogue(), mutants.catalogue())
    assert [c.id for c in catalogue().values() if c.spec not in page] == []
    killed = {m.id for m in mutants.catalogue().values() if any(c in catalogue() for c in m.killed_by)}
    assert [name for name in killed if f"{name} (" not in page] == []


def test_every_level_and_every_rule_is_explained() -> None:
    assert set(TITLES) == set(LEVELS)
    assert {name.partition("(")[0] for name in RULES} == set(tol._JUDGES)


def test_what_the_terminal_shows_fits_its_width() -> None:
    checks = list(catalogue().values())
    lines = [*listing(checks, 80), *(line for c in checks for line in explanation(c, mutants.catalogue(), 80))]
    assert [line for line in lines if len(line) > 80] == []
