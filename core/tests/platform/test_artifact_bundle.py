"""Bundles: artifacts carried to another machine, with nothing believed that a tar may claim."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import resource
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts.samples import KEY, PATH, Builder, flip, names, store

from octavo.errors import ArtifactError
from octavo.platform.artifacts.bundle import export_bundle, import_bundle
from octavo.platform.artifacts.files import entries

OTHER = replace(KEY, checkpoint="other")
Change = Callable[[list[tuple[tarfile.TarInfo, bytes]]], list[tuple[tarfile.TarInfo, bytes]]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Two artifacts, in a tar."""
    folder, out = tmp_path / "from", tmp_path / "bundle.tar"
    for seed, key in enumerate((KEY, OTHER)):
        store(folder).open(key, Builder(seed))
    export_bundle(entries(folder), out)
    return out


def test_what_is_exported_can_be_imported_and_used(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "to"
    new, there = import_bundle(bundle, folder)
    assert ([p.name for p in new], there) == (sorted([PATH, f"{OTHER.id}.artifact"]), [])
    assert names(folder) == sorted([PATH, f"{OTHER.id}.artifact"])
    for seed, key in enumerate((KEY, OTHER)):
        builder = Builder(seed)
        builder.check(store(folder).open(key, builder))
        assert builder.calls == 0
    assert names(tmp_path) == ["bundle.tar", "from", "to"]


def test_what_is_there_already_stays_and_what_is_damaged_is_replaced(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "to"
    import_bundle(bundle, folder)
    flip(folder / PATH, 5000)
    inode = (folder / f"{OTHER.id}.artifact").stat().st_ino
    new, there = import_bundle(bundle, folder)
    assert ([p.name for p in new], [p.name for p in there]) == ([PATH], [f"{OTHER.id}.artifact"])
    assert (folder / f"{OTHER.id}.artifact").stat().st_ino == inode
    assert not store(folder).open(KEY, Builder()).made


def test_the_same_artifacts_make_the_same_bundle_and_tell_nothing_of_the_machine(bundle: Path, tmp_path: Path) -> None:
    os.utime(tmp_path / "from" / PATH, (1000, 1000))
    (tmp_path / "from" / PATH).chmod(0o640)
    again = tmp_path / "again.tar"
    found = export_bundle(entries(tmp_path / "from"), again)
    assert again.read_bytes() == bundle.read_bytes()
    with tarfile.open(bundle) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        assert hashlib.sha256(manifest.read()).hexdigest() == found
        assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in tar} == {(0, 0, "", "", 0)}


def test_only_the_bundle_of_the_expected_id_is_taken(bundle: Path, tmp_path: Path) -> None:
    found = export_bundle(entries(tmp_path / "from"), tmp_path / "again.tar")
    with pytest.raises(ArtifactError, match=f"has the id {found}, not {'0' * 64}"):
        import_bundle(bundle, tmp_path / "to", expected="0" * 64)
    assert names(tmp_path / "to") == []
    import_bundle(bundle, tmp_path / "to", expected=found.upper())


def test_a_damaged_artifact_is_not_exported(tmp_path: Path) -> None:
    store(tmp_path / "from").open(KEY, Builder())
    flip(tmp_path / "from" / PATH, 5000)
    with pytest.raises(ArtifactError, match=f"{PATH} is damaged"):
        export_bundle(entries(tmp_path / "from"), tmp_path / "bundle.tar")
    assert names(tmp_path) == ["from"]


@pytest.mark.parametrize("private", [True, False])
def test_neither_owners_nor_permissions_are_taken_over(bundle: Path, tmp_path: Path, private: bool) -> None:
    def claim(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
        for header, _ in members:
            header.mode, header.uid, header.gid, header.uname = 0o6777, 12345, 12345, "somebody"
        return members

    repack(bundle, claim)
    before = os.umask(0)
    try:
        import_bundle(bundle, tmp_path / "to", private=private)
    finally:
        os.umask(before)
    facts = (tmp_path / "to" / PATH).stat()
    assert (facts.st_mode & 0o7777, facts.st_uid) == (0o600 if private else 0o644, os.geteuid())


# -- tampering ----------------------------------------------------------------------------------------------------


def repack(bundle: Path, change: Change) -> None:
    with tarfile.open(bundle) as tar:
        members = []
        for header in tar:
            content = tar.extractfile(header)
            assert content is not None
            members.append((header, content.read()))
    with tarfile.open(bundle, "w") as tar:
        for header, data in change(members):
            if header.isreg():
                header.size = len(data)
            tar.addfile(header, io.BytesIO(data))


def header(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def manifest(change: Callable[[dict], object]) -> Change:
    """Change the manifest, and nothing else."""

    def apply(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
        content = json.loads(members[0][1])
        change(content)
        return [(members[0][0], json.dumps(content).encode()), *members[1:]]

    return apply


def renamed(name: str) -> Change:
    """An artifact under another name, in the tar and in the manifest."""

    def apply(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
        content = json.loads(members[0][1])
        content["artifacts"][0]["name"] = members[1][0].name = name
        return [(members[0][0], json.dumps(content).encode()), *members[1:]]

    return apply


def flipped(member: int, at: int) -> Change:
    def apply(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
        data = bytearray(members[member][1])
        data[at] ^= 1
        members[member] = (members[member][0], bytes(data))
        return members

    return apply


def consistent_lie(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
    """A damaged artifact, with a manifest that has its true sum."""
    _, data = flipped(2, 9000)(members)[2]
    content = json.loads(members[0][1])
    content["artifacts"][1]["sha256"] = hashlib.sha256(data).hexdigest()
    return [(members[0][0], json.dumps(content).encode()), *members[1:]]


def foreign_artifact(members: list[tuple[tarfile.TarInfo, bytes]]) -> list[tuple[tarfile.TarInfo, bytes]]:
    """A whole artifact under the other's name."""
    content = json.loads(members[0][1])
    content["artifacts"][0].update({name: content["artifacts"][1][name] for name in ("bytes", "sha256")})
    return [(members[0][0], json.dumps(content).encode()), (members[1][0], members[2][1]), members[2]]


SPECIAL = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
OUTSIDE = ["../evil.artifact", f"../{PATH}", f"/tmp/{PATH}", f"a/{PATH}", "evil", PATH.upper(), f"{PATH}\n", "", ".."]


@pytest.mark.parametrize(
    "change",
    [
        *(renamed(name) for name in OUTSIDE),
        *(flipped(member, at) for member in (1, 2) for at in (0, 100, 5000)),
        *(lambda m, kind=kind: [m[0], (header(m[1][0].name, kind, "/etc/passwd"), b""), m[2]] for kind in SPECIAL),
        *(lambda m, kind=kind: [*m, (header("extra", kind, "/etc"), b"")] for kind in SPECIAL),
        lambda m: [*m, (header("../evil"), b"x")],
        lambda m: [*m, m[1]],
        lambda m: [m[0], m[1]],
        lambda m: [m[0]],
        lambda m: m[1:],
        lambda m: [m[1], m[0], m[2]],
        lambda m: [(m[0][0], pickle.dumps({"artifacts": []})), *m[1:]],
        lambda m: [(m[0][0], b"[]"), *m[1:]],
        lambda m: [(m[0][0], b"{"), *m[1:]],
        lambda m: [(header("manifest.json", tarfile.SYMTYPE, "/etc/passwd"), b""), *m[1:]],
        manifest(lambda c: c.update(version=2)),
        manifest(lambda c: c.update(format="other")),
        manifest(lambda c: c["artifacts"][0].update(bytes=5)),
        manifest(lambda c: c["artifacts"][0].update(bytes="many")),
        manifest(lambda c: c["artifacts"][0].update(sha256="0" * 64)),
        manifest(lambda c: c["artifacts"][0].update(sha256=None)),
        manifest(lambda c: c["artifacts"][0].update(name=None)),
        manifest(lambda c: c["artifacts"].append(c["artifacts"][0])),
        manifest(lambda c: c["artifacts"].pop()),
        manifest(lambda c: c["artifacts"][0].update(mode=511)),
        consistent_lie,
        foreign_artifact,
    ],
)
def test_a_bundle_that_was_tampered_with_is_refused_whole(bundle: Path, tmp_path: Path, change: Change) -> None:
    repack(bundle, change)
    before = names(tmp_path)
    with pytest.raises(ArtifactError, match="bundle"):
        import_bundle(bundle, tmp_path / "to")
    imported = [name for name in names(tmp_path / "to") if name.endswith(".artifact")]
    assert imported == []
    assert set(names(tmp_path)) - {"to"} == set(before), "nothing was written elsewhere"


@pytest.mark.parametrize("content", [b"", b"x" * 20000, pickle.dumps([1] * 1000)])
def test_what_is_no_tar_is_no_bundle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bundle.tar").write_bytes(content)
    with pytest.raises(ArtifactError, match="no bundle of artifacts"):
        import_bundle(tmp_path / "bundle.tar", tmp_path / "to")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_a_truncated_bundle_is_refused(bundle: Path, tmp_path: Path, keep: float) -> None:
    os.truncate(bundle, int(bundle.stat().st_size * keep))
    with pytest.raises(
        ArtifactError, match=r"bundle\.tar is damaged: \S+\.artifact does not hold what its manifest says"
    ):
        import_bundle(bundle, tmp_path / "to")
    assert names(tmp_path / "to") == []


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.tar cannot be imported"):
        import_bundle(tmp_path / "none.tar", tmp_path / "to")


# -- disks that fill up -------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_no_part_of_a_bundle_and_none_of_an_artifact(bundle: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(ArtifactError, match=r"other\.tar cannot be written"):
            export_bundle(entries(tmp_path / "from"), tmp_path / "other.tar")
        with pytest.raises(ArtifactError, match="cannot be imported"):
            import_bundle(bundle, tmp_path / "to")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(tmp_path) == ["bundle.tar", "from", "to"]
    assert names(tmp_path / "to") == []
