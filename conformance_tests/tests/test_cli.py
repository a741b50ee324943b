"""``octavo conformance``, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wild_plugins import WILD, install, on_path

from octavo.cli.main import app as octavo
from octavo_conformance.cli import app, main
from octavo_conformance.proof import bundle
from octavo_conformance.suite.registry import catalogue


def typed(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_octavo_hands_its_arguments_over() -> None:
    result = CliRunner().invoke(octavo, ["conformance", "list", "--level", "L0"])
    assert result.exit_code == 0 and "dev.manifest_truth" in result.output and "norm.rms" not in result.output
    assert "Recompute every verdict" in CliRunner().invoke(octavo, ["conformance", "verify", "--help"]).output


def test_list_has_every_check_with_its_text() -> None:
    _, text = typed("list")
    assert all(name in text for name in catalogue())
    _, raw = typed("list", "--json")
    facts = {fact["id"]: fact for fact in json.loads(raw)}
    assert set(facts) == set(catalogue())
    assert "MUST" in facts["norm.rms"]["spec"]


def test_explain_tells_demand_rules_and_faults() -> None:
    code, text = typed("explain", "att.block_boundary")
    assert code == 0
    assert "MUST read each token from the block" in " ".join(text.split())
    assert "X0: integers" in text and "Catches M01" in text


def test_a_partial_run_ends_with_3_and_its_bundle_verifies(tmp_path: Path) -> None:
    code, text = typed(
        "run", "--platform", "reference", "--check", "norm.rms", "--check", "kv.", "--out", str(tmp_path)
    )
    assert code == 3
    assert "PASS       norm.rms" in text and "does not certify: a part of the profile was left out" in text
    (path,) = tmp_path.glob("conformance-reference-*.tgz")
    assert {p.name for p in tmp_path.iterdir()} == {path.name, "report.md", "junit.xml"}
    assert typed("verify", str(path))[0] == 0
    assert typed("verify", str(path), "--strict")[0] == 1
    code, text = typed("repro", str(path), "norm.rms:heads")
    assert code == 0 and "heads  [R]" in text and "wide  [R]" not in text
    code, text = typed("diff", str(path), str(path))
    assert code == 0 and "None changed." in text
    code, text = typed("report", str(path), "--md", "--out", str(tmp_path / "again"))
    assert [p.name for p in (tmp_path / "again").iterdir()] == ["report.md"]


def test_the_same_seed_gives_the_same_measurements(tmp_path: Path) -> None:
    def records(name: str, seed: str) -> list[object]:
        typed("run", "--platform", "reference", "--check", "norm.rms", "--seed", seed, "--out", str(tmp_path / name))
        (path,) = (tmp_path / name).glob("*.tgz")
        return [r.verdicts for r in bundle.read(path).records if r.mode == "run"]

    assert records("a", "7") == records("b", "7") != records("c", "8")


def test_a_budget_leaves_the_rest_unrun(tmp_path: Path) -> None:
    code, text = typed("run", "--platform", "reference", "--budget", "1", "--out", str(tmp_path))
    assert code == 3 and "a part of the profile was left out" in text
    (path,) = tmp_path.glob("*.tgz")
    modes = [r.mode for r in bundle.read(path).records]
    assert 0 < modes.count("run") < len(modes) and len(modes) == len(catalogue())


def test_a_platform_that_fails_ends_with_1_and_verify_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "wild", "octavo_wild", WILD)
    on_path(monkeypatch, tmp_path / "site")
    monkeypatch.setenv("WILD", "scribbles")
    code, text = typed("run", "--platform", "wild", "--check", "dev.inputs_untouched", "--out", str(tmp_path))
    assert code == 1 and "FAIL       dev.inputs_untouched" in text
    (path,) = tmp_path.glob("*.tgz")
    code, text = typed("verify", str(path))
    assert code == 0 and "FAIL" in text  # the bundle is sound: it says that the platform fails
    assert typed("repro", str(path), "dev.inputs_untouched")[0] == 1


def test_verify_needs_no_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "wild", "octavo_wild", WILD)
    with monkeypatch.context() as patched:
        on_path(patched, tmp_path / "site")
        typed("run", "--platform", "wild", "--check", "norm.rms", "--out", str(tmp_path))
    (path,) = tmp_path.glob("*.tgz")
    assert typed("verify", str(path))[0] == 0  # in this process, and with no plugin called wild on the path


def test_a_damaged_bundle_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.tgz").write_bytes(b"damaged")
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(tmp_path / "b.tgz")])
    assert ended.value.code == 4 and "is no bundle" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--platform", "reference", "--check", "no.such"], "there is no check no.such"),
        (["run", "--platform", "reference", "--profile", "lazy"], "--profile lazy is not known; choose of quick"),
        (["run", "--platform", "reference", "--levels", "L0,L9"], "--levels L9 is not known"),
        (["run", "--platform", "reference", "--tier", "A9"], "--tier A9 is not known; choose of A0, A1, A2"),
        (["mutants", "--only", "M99"], "there is no mutant M99"),
    ],
)
def test_a_question_that_makes_no_sense_ends_with_4(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 4
    assert message in capsys.readouterr().err


def test_a_platform_that_is_not_installed_ends_with_4(tmp_path: Path) -> None:
    code, text = typed("run", "--platform", "acme", "--out", str(tmp_path))
    assert code == 4 and "platform acme is not installed" in text
    assert not list(tmp_path.iterdir())


def test_the_lock_command_agrees() -> None:
    assert typed("lock") == (0, "")
