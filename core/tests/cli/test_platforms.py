"""``octavo platforms``, as typed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo._version import version
from octavo.cli.main import app
from octavo.errors import PlatformNotFound
from octavo.platform import CONTRACT, Probe, Rank
from octavo.platform.certificate import FILE, Certificate, code_digest, users_folder
from octavo.platform.discovery import Found, Registry, discover, select


def test_the_list_has_each_platform_with_its_verdict_and_flag() -> None:
    result = CliRunner().invoke(app, ["platforms"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("reference"))
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


# -- certificates ---------------------------------------------------------------------------------


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's certificate of the reference platform."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = users_folder("reference")
    folder.mkdir(parents=True)
    return folder


def issued(octavo: str) -> str:
    reference = select(discover().platforms, "reference")
    return Certificate(
        platform="reference", line="octavo-conformance 1.0 · L0 L1 · A2 · full", trust="SELF",
        version=reference.info.version, octavo=octavo, suite="1.0", code=code_digest(reference), bundle="proof.tgz",
        issued="2026-01-02", contract=dict(CONTRACT),
    ).to_json()  # fmt: skip


def listed() -> str:
    result = CliRunner().invoke(app, ["platforms"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    return result.stdout


def test_a_platform_that_nobody_certified_says_how_to(users: Path) -> None:
    assert "none; prove it: octavo conformance certify --platform reference" in listed()


def test_a_certificate_that_fits_is_shown_with_its_trust_and_its_proof(users: Path) -> None:
    (users / FILE).write_text(issued(version()), encoding="utf-8")
    (users / "proof.tgz").write_bytes(b"proof")
    text = listed()
    assert "octavo-conformance 1.0 · L0 L1 · A2 · full (SELF, 2026-01-02)" in text
    assert f"proof: {users / 'proof.tgz'}" in "".join(text.split("\n"))
    assert "warning" not in text


def test_other_versions_than_the_certified_are_warned_of(users: Path) -> None:
    (users / FILE).write_text(issued("0.0.1"), encoding="utf-8")
    text = listed()
    assert f"warning: octavo is {version()}; certified was 0.0.1" in text
    assert "prove it: octavo conformance certify --platform reference" in text


def test_a_certificate_that_cannot_be_read_takes_nothing_else_down(users: Path) -> None:
    (users / FILE).write_text("[]", encoding="utf-8")
    text = listed()
    assert "cannot be read" in text and "--platform reference" in text


def test_explain_says_which_kernels_are_the_reference_s() -> None:
    report = select(discover().platforms, "reference").open(Rank()).report()
    assert "rms_norm" in report["reference kernels"] and "own kernels" not in report
