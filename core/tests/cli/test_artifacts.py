"""``octavo artifacts``, as typed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts.samples import KEY, PATH, Builder, flip, names, store
from click.testing import Result
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.errors import ArtifactError, ConfigError

OTHER = replace(KEY, checkpoint="other")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for key in (KEY, OTHER):
        store(tmp_path / "store").open(key, Builder())
    return tmp_path / "store"


def artifacts(*words: object, folder: Path) -> Result:
    command = ["artifacts", *map(str, words), "--artifacts", str(folder)]
    return CliRunner().invoke(app, command, env={"COLUMNS": "200"}, catch_exceptions=False)


def test_the_list_has_each_artifact_with_what_it_is_for(folder: Path) -> None:
    done = artifacts("list", folder=folder)
    assert done.exit_code == 0
    [line] = [line for line in done.stdout.splitlines() if line.startswith(KEY.id[:12])]
    for part in ("good", "program of acme (A1) for 8 tokens", "acme-cc 4.1", "KiB"):
        assert part in line
    assert f"2 artifacts, 161.4 KiB, in {folder}" in done.stdout.replace("161.3", "161.4")
    assert "0 artifacts" in artifacts("list", folder=folder / "none").stdout


def test_show_tells_all_that_an_artifact_depends_on(folder: Path) -> None:
    content = json.loads(artifacts("show", KEY.id[:12], folder=folder).stdout)
    assert content["key"] == KEY.to_dict()
    assert (content["verdict"], content["notes"]) == ("good", {"memory": "0 bytes"})
    assert content["arrays"]["code"] == "|u1 [70001]"
    flip(folder / PATH, 9000)
    content = json.loads(artifacts("show", KEY.id[:12], folder=folder).stdout)
    assert (content["verdict"], content["why"]) == ("damaged", "the file does not hold what was written for code")


def test_verify_fails_where_anything_is_damaged(folder: Path) -> None:
    assert artifacts("verify", folder=folder).exit_code == 0
    flip(folder / PATH, 9000)
    done = artifacts("verify", folder=folder)
    assert done.exit_code == 1
    assert "1 of 2 artifacts are good" in done.stdout
    assert artifacts("verify", OTHER.id, folder=folder).exit_code == 0


def test_what_was_exported_is_imported_elsewhere_under_its_id(folder: Path, tmp_path: Path) -> None:
    done = artifacts("export", tmp_path / "b.tar", folder=folder)
    found = done.stdout.rpartition("id ")[2].strip()
    assert "2 artifacts in" in done.stdout and len(found) == 64
    done = artifacts("import", tmp_path / "b.tar", "--id", found, folder=tmp_path / "to")
    assert "2 artifacts imported" in done.stdout
    assert names(tmp_path / "to") == names(folder)
    with pytest.raises(ArtifactError, match="it is another bundle"):
        artifacts("import", tmp_path / "b.tar", "--id", "00", folder=tmp_path / "third")
    artifacts("export", tmp_path / "one.tar", KEY.id[:10], folder=folder)
    artifacts("import", tmp_path / "one.tar", folder=tmp_path / "third")
    assert names(tmp_path / "third") == [PATH]
    with pytest.raises(ConfigError, match="no artifacts"):
        artifacts("export", tmp_path / "none.tar", folder=tmp_path / "none")


def test_prune_deletes_by_size_by_time_and_by_use(folder: Path) -> None:
    os.utime(folder / PATH, (1000, 1000))
    assert "1 artifacts deleted" in artifacts("prune", "--unused-for", "1", folder=folder).stdout
    assert names(folder) == [f"{OTHER.id}.artifact"]
    artifacts("prune", "--max-size", "1M", folder=folder)
    assert names(folder) == [f"{OTHER.id}.artifact"]
    artifacts("prune", "--max-size", "80KiB", folder=folder)
    assert names(folder) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "say what to delete"),
        (("--max-size", "much"), "max_size 'much' is no size"),
        (("--max-size", "-5G"), "is no size"),
        (("--unused-for", "-1"), "at least 0 days"),
    ],
)
def test_prune_wants_to_know_what(folder: Path, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        artifacts("prune", *words, folder=folder)
    assert len(names(folder)) == 2
