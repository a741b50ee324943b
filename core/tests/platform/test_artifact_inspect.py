"""Looking into a store, and pruning it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts.samples import KEY, PATH, Builder, flip, names, store

from octavo.errors import ArtifactError
from octavo.platform import Verdict
from octavo.platform.artifacts.inspect import chosen, listing, look, prune

KEYS = [replace(KEY, checkpoint=str(n)) for n in range(4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four artifacts, used at seconds 0 to 3."""
    for n, key in enumerate(KEYS):
        store(tmp_path / "store").open(key, Builder(n))
        os.utime(path(tmp_path / "store", n), (n, n))
    return tmp_path / "store"


def path(folder: Path, n: int) -> Path:
    return folder / f"{KEYS[n].id}.artifact"


def left(folder: Path) -> set[int]:
    return {n for n in range(4) if path(folder, n).exists()}


def test_a_list_has_what_each_artifact_says_of_itself(folder: Path) -> None:
    found = {entry.id: entry for entry in listing(folder)}
    for n, key in enumerate(KEYS):
        entry = found[key.id]
        assert entry.index is not None
        assert (entry.index.key, entry.verdict, entry.used_ns) == (key, Verdict.GOOD, n * 10**9)
        assert entry.bytes == path(folder, n).stat().st_size
        assert entry.index.notes == {"memory": f"{n} bytes"}
    assert listing(folder / "none") == []


def test_damage_in_the_data_shows_when_every_byte_is_checked(folder: Path) -> None:
    flip(path(folder, 1), 9000)
    assert {entry.verdict for entry in listing(folder)} == {Verdict.GOOD}
    verdicts = {entry.id: entry.verdict for entry in listing(folder, check=True)}
    assert [verdicts[key.id] for key in KEYS] == [Verdict.GOOD, Verdict.DAMAGED, Verdict.GOOD, Verdict.GOOD]


def test_an_artifact_under_another_name_is_incompatible(folder: Path) -> None:
    path(folder, 0).rename(folder / PATH)
    entry = look(folder / PATH, check=False)
    assert (entry.verdict, entry.why) == (Verdict.INCOMPATIBLE, f"holds {KEYS[0].id}")


def test_artifacts_are_chosen_by_the_beginning_of_their_ids(folder: Path) -> None:
    assert chosen(folder, [KEYS[2].id[:12]]) == [path(folder, 2)]
    assert len(chosen(folder, [])) == 4
    with pytest.raises(ArtifactError, match="no artifact whose id begins with 'zz'"):
        chosen(folder, ["zz"])
    with pytest.raises(ArtifactError, match="4 artifacts whose id begins with ''"):
        chosen(folder, [""])


def test_pruning_by_time_takes_what_was_used_before(folder: Path) -> None:
    done = prune(folder, used_before_ns=2 * 10**9)
    assert {entry.id for entry in done.gone} == {KEYS[0].id, KEYS[1].id}
    assert left(folder) == {2, 3}


def test_pruning_by_size_takes_the_least_recently_used(folder: Path) -> None:
    one = path(folder, 0).stat().st_size
    prune(folder, max_bytes=2 * one + 100)
    assert left(folder) == {2, 3}
    prune(folder, max_bytes=10 * one)
    assert left(folder) == {2, 3}
    prune(folder, max_bytes=0)
    assert names(folder) == []


def test_pruning_the_unusable_takes_the_damaged_and_the_foreign(folder: Path) -> None:
    flip(path(folder, 1), 9000)
    flip(path(folder, 2), 3)
    prune(folder, unusable=True)
    assert left(folder) == {0, 3}


def test_pruning_leaves_what_is_in_use_and_counts_it(folder: Path) -> None:
    in_use = store(folder).open(KEYS[0], Builder(0))
    os.utime(path(folder, 0), (0, 0))
    done = prune(folder, max_bytes=0)
    assert [entry.id for entry in done.in_use] == [KEYS[0].id]
    assert left(folder) == {0}
    Builder(0).check(in_use)


def test_pruning_clears_what_killed_processes_left_and_nothing_foreign(folder: Path) -> None:
    (folder / f"{KEY.id}.tmp").write_bytes(b"half")
    (folder / f"{KEY.id}.lock").touch()
    (folder / "notes.tmp").touch()
    prune(folder, max_bytes=0)
    assert names(folder) == ["notes.tmp"]
    assert prune(folder / "none", max_bytes=0).gone == ()


def test_a_folder_that_cannot_be_written_to_is_not_pruned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: Path, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", read_only)
    with pytest.raises(ArtifactError, match=r"cannot be pruned: .*Read-only file system"):
        prune(folder, max_bytes=0)
    assert left(folder) == {0, 1, 2, 3}
