"""Digests: a file is hashed once, remembered while nobody touches it, and never believed in after that."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.platform import ArtifactStore
from octavo.platform.artifacts import digests
from octavo.platform.artifacts.digests import content_digest, file_digest


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is an hour ahead, so that files just written count as settled."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were really read."""
    found: list[Path] = []
    real = digests._hash_file

    def record(path: Path, size: int, threads: int) -> str:
        found.append(path)
        return real(path, size, threads)

    monkeypatch.setattr(digests, "_hash_file", record)
    return found


@pytest.mark.usefixtures("later")
def test_a_file_is_hashed_once_and_remembered_under_any_name(tmp_path: Path, hashed: list[Path]) -> None:
    path, folder = tmp_path / "model.gguf", tmp_path / "digests"
    path.write_bytes(b"weights" * 1000)
    first = file_digest(path, folder, 2)
    assert file_digest(path, folder, 2) == first
    assert hashed == [path]
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    assert file_digest(copy, folder, 1) == first


@pytest.mark.usefixtures("later")
def test_a_file_that_changed_in_place_is_hashed_again_even_if_its_time_was_set_back(tmp_path: Path) -> None:
    path, folder = tmp_path / "model.gguf", tmp_path / "digests"
    path.write_bytes(b"a" * 5000)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    first = file_digest(path, folder, 2)
    time.sleep(0.02)  # beyond the resolution of the file system's clock
    path.write_bytes(b"a" * 4999 + b"b")
    os.utime(path, ns=times)
    assert file_digest(path, folder, 2) != first


def test_a_file_that_changed_a_moment_ago_is_not_remembered(tmp_path: Path, hashed: list[Path]) -> None:
    path, folder = tmp_path / "model.gguf", tmp_path / "digests"
    path.write_bytes(b"weights")
    assert file_digest(path, folder, 1) == file_digest(path, folder, 1)
    assert hashed == [path, path]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("content", [b"", b"00", b"x" * 64, b"a" * 65])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, hashed: list[Path], content: bytes) -> None:
    path, folder = tmp_path / "model.gguf", tmp_path / "digests"
    path.write_bytes(b"weights")
    first = file_digest(path, folder, 1)
    [remembered] = folder.iterdir()
    remembered.write_bytes(content)
    assert file_digest(path, folder, 1) == first
    assert len(hashed) == 2


@pytest.mark.usefixtures("later")
def test_a_memory_that_cannot_be_written_costs_only_time(tmp_path: Path, hashed: list[Path]) -> None:
    path, in_the_way = tmp_path / "model.gguf", tmp_path / "file"
    path.write_bytes(b"weights")
    in_the_way.write_text("")
    assert file_digest(path, in_the_way / "digests", 1) == file_digest(path, None, 1)
    assert len(hashed) == 2


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(0, 300), at=st.integers(0, 299), chunk=st.integers(1, 64), threads=st.integers(1, 3))
def test_every_byte_and_the_length_count(tmp_path: Path, size: int, at: int, chunk: int, threads: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "_CHUNK", chunk)
        data = bytearray(range(256)) + bytearray(44)
        path = tmp_path / "file"

        def digest(content: bytes, workers: int) -> str:
            path.write_bytes(content)
            return file_digest(path, None, workers)

        found = digest(data[:size], threads)
        assert found == digest(data[:size], 1)
        assert found != digest(data[: size + 1] if size < 300 else data[:-1], threads)
        if at < size:
            data[at] ^= 1
            assert found != digest(data[:size], threads)


def test_the_digest_of_a_checkpoint_depends_on_contents_and_on_nothing_else(tmp_path: Path) -> None:
    one, two, copy = tmp_path / "one", tmp_path / "two", tmp_path / "copy"
    one.write_bytes(b"1")
    two.write_bytes(b"2")
    copy.write_bytes(b"1")
    digest = content_digest([one, two], None, 1)
    assert digest == content_digest([two, copy], None, 2) == ArtifactStore().digest([one, two])
    others = [content_digest(files, None, 1) for files in ([], [one], [two], [one, one], [one, two, two])]
    assert len({digest, *others}) == 6


@pytest.mark.usefixtures("later")
def test_a_store_remembers_digests_beside_itself_and_not_inside(tmp_path: Path, hashed: list[Path]) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    store = ArtifactStore(tmp_path / "store", digests=tmp_path / "digests", writable=False)
    assert store.digest([path]) == store.digest([path], threads=2)
    assert hashed == [path]
    assert not (tmp_path / "store").exists()
