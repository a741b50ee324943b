"""``octavo conformance certify``: what holds is issued, where `octavo platforms` finds it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner
from wild_plugins import WILD, install, on_path

from octavo.platform.certificate import FILE, held, users_folder
from octavo.platform.discovery import discover, select
from octavo_conformance.cli import app
from octavo_conformance.proof import bundle
from octavo_conformance.proof.certificate import with_lower


@pytest.fixture(autouse=True)
def _users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def typed(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def certify(tmp_path: Path, platform: str, *more: str) -> tuple[int, str]:
    out = ("--out", str(tmp_path / "out"))
    return typed("certify", "--platform", platform, "--profile", "quick", "--levels", "L0", *out, *more)


def test_what_is_proven_is_issued_beside_its_proof(tmp_path: Path) -> None:
    code, text = certify(tmp_path, "reference", "--challenge", "7")
    assert code == 0, text
    folder = users_folder("reference")
    assert f"certificate: {folder / FILE}" in text
    (found,) = held(select(discover().platforms, "reference"))
    assert found.differences == ()
    assert found.certificate.line.endswith("· L0 · A1 · quick")
    assert found.bundle is not None
    read, result, wrong = bundle.verify(found.bundle)
    assert not wrong and result.exit_code == 0
    assert (read.statement["seed"], read.statement["levels"]) == ("7", ["L0"])
    # The certificate of a later run takes the place of the former, proof and all.
    certify(tmp_path, "reference", "--challenge", "8")
    assert len(list(folder.glob("*.tgz"))) == 1


def test_a_claim_is_of_the_levels_that_are_named_and_those_below() -> None:
    assert with_lower(["L5"]) == ("L0", "L1", "L5")
    assert with_lower(["Q"]) == ("Q",)
    assert with_lower(["L1", "G"]) == ("L0", "L1", "G")
    assert with_lower([]) == ()


def test_a_claim_can_not_be_widened_afterwards(tmp_path: Path) -> None:
    certify(tmp_path, "reference")
    (path,) = (tmp_path / "out").glob("*.tgz")
    files = bundle.unpack(path)
    files["STATEMENT.json"] = files["STATEMENT.json"].replace('"levels": [\n  "L0"\n ]', '"levels": []')
    files[bundle.SUMS] = bundle.sums({name: files[name] for name in bundle.FILES})
    path.write_bytes(bundle.pack(files))
    _, result, wrong = bundle.verify(path)
    assert result.exit_code == 3 and wrong


def test_a_platform_that_fails_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "wild", "octavo_wild", WILD)
    on_path(monkeypatch, tmp_path / "site")
    monkeypatch.setenv("WILD", "scribbles")
    code, text = certify(tmp_path, "wild")
    assert code == 1 and "no certificate is issued: checks failed" in text
    assert not users_folder("wild").exists()


def test_a_single_module_can_not_ship_one_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "wild", "octavo_wild", WILD)
    on_path(monkeypatch, tmp_path / "site")
    code, text = certify(tmp_path, "wild", "--ship")
    assert code == 0 and "make it a package to ship one" in text
    assert (users_folder("wild") / FILE).exists()


def test_an_output_folder_that_cannot_be_made_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    from octavo.errors import OctavoError

    with pytest.raises(OctavoError, match=r"cannot be made: .* \(--out\)"):
        typed("certify", "--platform", "reference", "--out", str(tmp_path / "file" / "out"))
