"""Bundles: what they claim follows from what they hold, and whoever changes either is found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo_conformance import report
from octavo_conformance.proof import bundle
from octavo_conformance.proof.bundle import BundleError
from octavo_conformance.proof.certificate import conclude
from octavo_conformance.suite import lock
from octavo_conformance.suite.record import Record
from octavo_conformance.suite.registry import catalogue
from octavo_conformance.suite.runner import Run, Selection, run
from octavo_conformance.suite.status import Status

CHECKS = catalogue()
Files = dict[str, str]


@pytest.fixture(scope="module")
def done() -> Run:
    """A whole quick run of the reference platform, at its tier."""
    return run("reference", Selection("quick"), tier="A2")


def concluded(done: Run) -> bundle.Result:
    differences = lock.differences(lock.installed(), CHECKS)
    return conclude(
        done.records, CHECKS, tier=done.tier, profile=done.selection.profile, whole=done.selection.whole,
        differences=differences, mutant=done.mutant,
    )  # fmt: skip


@pytest.fixture(scope="module")
def written(done: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle.write(done, concluded(done), tmp_path_factory.mktemp("bundle"))


def test_the_reference_platform_certifies_at_its_tier(done: Run) -> None:
    result = concluded(done)
    bad = [j for j in result.judged.values() if j.status >= Status.FAIL]
    assert not bad
    assert result.exit_code == 0
    assert result.levels[:3] == ("L0", "L1", "L5")
    assert "q8_0" in result.line
    assert result.line.startswith("octavo-conformance 1.0 · L0 L1 L5") and result.line.endswith("· A2 · quick")


def test_a_sound_bundle_verifies_to_what_it_claims(written: Path) -> None:
    read, result, found = bundle.verify(written)
    assert found == []
    assert result.line == read.statement["certificate"]
    assert result.exit_code == 0
    assert read.env["digest"] == read.env["digest_after"]


def test_a_bundle_is_named_by_its_bytes_and_has_no_dates(done: Run, written: Path, tmp_path: Path) -> None:
    again = bundle.write(done, concluded(done), tmp_path)
    assert again.name == written.name
    assert again.read_bytes() == written.read_bytes()


def tampered(written: Path, folder: Path, change: Callable[[Files], None], *, hide: bool = True) -> Path:
    """The bundle with its files changed; with ``hide`` the hashes are made to fit again."""
    files = bundle.unpack(written)
    change(files)
    if hide:
        files[bundle.SUMS] = bundle.sums({name: files.get(name, "") for name in bundle.FILES})
    path = folder / "tampered.tgz"
    path.write_bytes(bundle.pack(files))
    return path


def edit_line(files: Files, check: str, change: Callable[[dict[str, object]], None]) -> None:
    lines = files["results.jsonl"].splitlines()
    at = next(i for i, line in enumerate(lines) if json.loads(line)["id"] == check)
    raw = json.loads(lines[at])
    change(raw)
    lines[at] = json.dumps(raw, sort_keys=True)
    files["results.jsonl"] = "\n".join(lines) + "\n"


def edit_json(files: Files, name: str, **changes: object) -> None:
    files[name] = json.dumps({**json.loads(files[name]), **changes}, sort_keys=True, indent=1) + "\n"


def worse(raw: dict[str, object]) -> None:
    raw["verdicts"][0]["metrics"]["rms"] = (1e3).hex()  # type: ignore[index]


def vacuous(raw: dict[str, object]) -> None:
    raw["verdicts"][0]["plants"] = {}  # type: ignore[index]


def drop_line(files: Files) -> None:
    files["results.jsonl"] = "\n".join(files["results.jsonl"].splitlines()[1:]) + "\n"


def swap_manifest(files: Files) -> None:
    manifest = json.loads(files["manifest.json"])
    manifest["capabilities"]["attention"] = []
    files["manifest.json"] = json.dumps(manifest)


def rename(files: Files) -> None:
    manifest = json.loads(files["manifest.json"])
    manifest["info"]["name"] = "acme"
    files["manifest.json"] = json.dumps(manifest)


TAMPERING: dict[str, Callable[[Files], None]] = {
    "a worse measurement": lambda files: edit_line(files, "norm.rms", worse),
    "no plants": lambda files: edit_line(files, "norm.rms", vacuous),
    "no verdicts": lambda files: edit_line(files, "norm.rms", lambda raw: raw.update(verdicts=[])),
    "another rule": lambda files: edit_line(
        files, "norm.rms", lambda raw: raw["verdicts"][0].update(rule="C", metrics={"value": 1, "low": 1, "high": 1})  # type: ignore[index]
    ),
    "a check that did not run": lambda files: edit_line(files, "norm.rms", lambda raw: raw.update(mode="not run")),
    "a refusal for a run": lambda files: edit_line(
        files, "att.sliding_window_edge",
        lambda raw: raw.update(mode="refusal", verdicts=[{
            "case": "c", "rule": "E", "metrics": {"raised": 1, "typed": 1, "named": 1}, "plants": {}, "note": "",
        }]),
    ),
    "a line less": drop_line,
    "a line twice": lambda files: files.update({
        "results.jsonl": files["results.jsonl"] + files["results.jsonl"].splitlines()[0] + "\n"
    }),
    "a narrower manifest": swap_manifest,
    "another platform's name": rename,
    "a shorter list": lambda files: files.update({"suite.txt": "\n".join(files["suite.txt"].splitlines()[:-1]) + "\n"}),
    "a stricter tier": lambda files: edit_json(files, "STATEMENT.json", tier="A1"),
    "fewer levels": lambda files: edit_json(files, "STATEMENT.json", levels=["L0"]),
    "more levels": lambda files: edit_json(files, "STATEMENT.json", certificate="octavo-conformance 1.0 · L0 L1 L5 G"),
    "a planted fault hidden": lambda files: edit_json(files, "STATEMENT.json", mutant="M01"),
    "a plugin that changed": lambda files: edit_json(files, "env.json", digest_after="0" * 64),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_found_even_where_the_hashes_fit(written: Path, tmp_path: Path, how: str) -> None:
    _, result, found = bundle.verify(tampered(written, tmp_path, TAMPERING[how]))
    assert found or result.exit_code, how


@pytest.mark.parametrize("name", bundle.FILES)
def test_a_changed_byte_is_found_by_the_hashes(written: Path, tmp_path: Path, name: str) -> None:
    path = tampered(written, tmp_path, lambda files: files.update({name: files[name] + " "}), hide=False)
    with pytest.raises(BundleError, match="SHA256SUMS does not fit"):
        bundle.verify(path)


def test_the_set_of_files_is_exact(written: Path, tmp_path: Path) -> None:
    for change in (lambda files: files.pop("env.json"), lambda files: files.update({"more.txt": "x"})):
        with pytest.raises(BundleError, match="not exactly the files"):
            bundle.read(tampered(written, tmp_path, change))  # type: ignore[arg-type]


def test_what_is_no_bundle_is_told(tmp_path: Path) -> None:
    for name, content in (("text.tgz", b"not an archive"), ("empty.tgz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BundleError, match="is no bundle"):
            bundle.read(tmp_path / name)
    with pytest.raises(BundleError, match="is no bundle"):
        bundle.read(tmp_path / "absent.tgz")


def test_malformed_results_are_told(written: Path, tmp_path: Path) -> None:
    for change in (
        lambda files: files.update({"results.jsonl": "{}\n"}),
        lambda files: files.update({"results.jsonl": "[]\n"}),
        lambda files: edit_line(files, "norm.rms", lambda raw: raw.update(mode="skipped")),
        lambda files: edit_json(files, "STATEMENT.json", tier="A9"),
    ):
        with pytest.raises(BundleError, match="cannot be read"):
            bundle.read(tampered(written, tmp_path, change))  # type: ignore[arg-type]


def test_a_partial_run_does_not_certify(done: Run) -> None:
    fewer = [r if r.id != "norm.rms" else Record(r.id, "not run", message="left out") for r in done.records]
    result = conclude(fewer, CHECKS, tier="A2", profile="quick", whole=True)
    assert result.exit_code == 3 and "L1" not in result.levels
    assert "norm.rms did not run" in result.gaps
    assert conclude(done.records, CHECKS, tier="A2", profile="quick", whole=False).exit_code == 3
    assert conclude(done.records[1:], CHECKS, tier="A2", profile="quick", whole=True).exit_code == 3


def test_levels_build_on_one_another(done: Run) -> None:
    """A failure on the lowest takes the core levels above with it."""
    broken = [Record(r.id, "run", (), "raised", "boom") if r.id == "kv.copy_blocks" else r for r in done.records]
    result = conclude(broken, CHECKS, tier="A2", profile="quick", whole=True)
    assert result.exit_code == 1
    assert not {"L0", "L1", "L5"} & set(result.levels)


# -- reports ----------------------------------------------------------------------------------------


def test_reports_tell_what_the_bundle_holds(written: Path) -> None:
    from xml.etree import ElementTree as ET

    read, result, _ = bundle.verify(written)
    page = report.markdown(read, result, CHECKS)
    assert result.line in page and "| norm.rms | ✔ PASS |" in page and "Narrowest margins" in page
    suites = ET.fromstring(report.junit(result, CHECKS, "quick"))
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    assert set(cases) == set(CHECKS)
    assert not list(cases["norm.rms"])


def test_a_report_of_a_failure_says_what_is_wrong(done: Run) -> None:
    from xml.etree import ElementTree as ET

    broken = [
        Record(r.id, "run", r.verdicts, "raised", "submit raised ValueError: <b>no</b>") if r.id == "norm.rms"
        else Record(r.id, "not run", message="left out") if r.id == "act.gated" else r
        for r in done.records
    ]  # fmt: skip
    result = conclude(broken, CHECKS, tier="A2", profile="quick", whole=True)
    suites = ET.fromstring(report.junit(result, CHECKS, "quick"))
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    assert [child.tag for child in cases["norm.rms"]] == ["failure"]
    assert [child.tag for child in cases["act.gated"]] == ["error"]
    l1 = next(suite for suite in suites if suite.get("name") == "L1")
    assert (l1.get("failures"), l1.get("errors")) == ("1", "1")


def test_a_difference_names_what_moved(written: Path, tmp_path: Path) -> None:
    read, result, _ = bundle.verify(written)
    assert "None changed." in report.differences((read, result), (read, result))
    other, after, _ = bundle.verify(tampered(written, tmp_path, TAMPERING["no verdicts"]))
    text = report.differences((read, result), (other, after))
    assert "* norm.rms: PASS → ERROR" in text
