"""The cache of packed weights: work is done once; what happens to files costs time, never the start or the answers."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo_cpu import packed_file
from octavo_cpu.cache import Array, Packed, PackedCache, Writer, default_folder
from octavo_cpu.packed_file import PAGE, file_bytes

KEY = "0123abcd"
SIZE, COUNT = 3 << 16, 3
"""Bytes and number of the arrays that `Builder` makes; more than their true size, as an estimate may be."""


class Builder:
    """Makes three arrays that depend on a seed, and counts how often it does."""

    def __init__(self, seed: int = 0) -> None:
        self.calls = 0
        rng = np.random.default_rng(seed)
        self.arrays: dict[str, Array] = {
            "model.layers.0.q.weight": rng.integers(0, 256, 70_001, dtype=np.uint8),
            "norm.weight": rng.standard_normal((3, 64)).astype(np.float32),
            "empty": np.empty((0, 4), np.uint8),
        }

    def __call__(self, writer: Writer) -> None:
        self.calls += 1
        for name, array in self.arrays.items():
            writer.add(name, array.copy())

    def check(self, packed: Packed) -> None:
        assert list(packed.arrays) == list(self.arrays)
        for name, array in self.arrays.items():
            found = packed.arrays[name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


class Cache:
    """A cache in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(
        self, build: Callable[[Writer], None], key: str = KEY, *, limit: int = 1 << 30, writable: bool = True
    ) -> Packed:
        return PackedCache(self.folder, 2, limit=limit, writable=writable).open(key, SIZE, COUNT, build)

    def names(self) -> list[str]:
        return sorted(p.name for p in self.folder.iterdir() if p.suffix != ".lock") if self.folder.exists() else []


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def warnings_in(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)


# -- the plain case -------------------------------------------------------------------------------


def test_the_first_start_packs_and_the_next_one_maps(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    first = cache.open(builder)
    second = cache.open(builder)
    assert builder.calls == 1
    assert (first.packed, second.packed) == (True, False)
    assert first.file == second.file == cache.folder / f"{KEY}.packed"
    for packed in (first, second):
        builder.check(packed)
    assert not warnings_in(caplog)


def test_what_comes_back_is_a_read_only_map_whose_arrays_start_on_pages(cache: Cache) -> None:
    for packed in (cache.open(Builder()), cache.open(Builder())):
        for array in packed.arrays.values():
            assert array.size == 0 or array.ctypes.data % PAGE == 0
            assert not array.flags.writeable
            base: object = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_another_key_is_another_file(cache: Cache) -> None:
    one, two = Builder(1), Builder(2)
    cache.open(one, "one")
    two.check(cache.open(two, "two"))
    one.check(cache.open(one, "one"))
    assert (one.calls, two.calls) == (1, 1)
    assert cache.names() == ["one.packed", "two.packed"]


def test_the_file_is_no_longer_than_what_it_holds(cache: Cache) -> None:
    builder = Builder()
    cache.open(builder)
    held = sum(array.nbytes for array in builder.arrays.values())
    assert held < (cache.folder / f"{KEY}.packed").stat().st_size <= file_bytes(held, COUNT) < file_bytes(SIZE, COUNT)


def test_nobody_else_may_read_or_plant_weights(cache: Cache) -> None:
    cache.open(Builder())
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert (cache.folder / f"{KEY}.packed").stat().st_mode & 0o077 == 0


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(st.lists(st.integers(0, 70), min_size=0, max_size=3), max_size=6),
    dtype=st.sampled_from(["u1", "i1", "<u2", "<i4", "<f4", "<f8", "?"]),
)
def test_any_arrays_come_back_as_they_were(tmp_path: Path, shapes: list[list[int]], dtype: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"w{i}": rng.integers(0, 2, shape).astype(dtype) for i, shape in enumerate(shapes)}

    def build(writer: Writer) -> None:
        for name, array in arrays.items():
            writer.add(name, array)

    store = PackedCache(tmp_path / "cache", 1)
    key = f"{len(list(tmp_path.glob('cache/*.packed')))}"
    size = sum(a.nbytes for a in arrays.values())
    for packed in (store.open(key, size, len(arrays), build), store.open(key, size, len(arrays), build)):
        assert packed.file is not None
        assert packed.file.stat().st_size <= file_bytes(size, len(arrays))
        assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in packed.arrays.items()} == {
            n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()
        }


# -- damaged and foreign files ----------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_flipped_bit_anywhere_is_found_and_repaired(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    cache.open(builder)
    path = cache.folder / f"{KEY}.packed"
    length = path.stat().st_size
    used = packed_file._HEADER.size + packed_file._CHECKSUM.size
    data = [PAGE, PAGE + 35_000, PAGE + 70_000, PAGE + 18 * PAGE + 100]
    places = [*range(0, used, 5), *data, length - 100, length - 1]
    for repairs, at in enumerate(places, start=1):
        caplog.clear()
        flip(path, at)
        found = cache.open(builder)
        builder.check(found)
        assert found.packed, f"the flip at {at} went unseen"
        assert builder.calls == 1 + repairs
        assert str(path) in warnings_in(caplog)
        assert "packed again" in warnings_in(caplog)
        assert not cache.open(builder).packed


@pytest.mark.parametrize("length", [0, 1, 44, PAGE - 1, PAGE, PAGE + 1, 60_000, -1])
def test_a_truncated_file_is_replaced(cache: Cache, caplog: pytest.LogCaptureFixture, length: int) -> None:
    builder = Builder()
    cache.open(builder)
    path = cache.folder / f"{KEY}.packed"
    os.truncate(path, length if length >= 0 else path.stat().st_size + length)
    found = cache.open(builder)
    builder.check(found)
    assert found.packed
    assert str(path) in warnings_in(caplog)
    assert not cache.open(builder).packed


def test_a_file_of_something_else_is_replaced(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    cache.folder.mkdir()
    path = cache.folder / f"{KEY}.packed"
    path.write_bytes(b"GGUF" * 5000)
    builder.check(cache.open(builder))
    assert "no file of packed weights" in warnings_in(caplog)


def test_a_file_of_another_checkpoint_is_replaced(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    cache.open(Builder(1), "one")
    (cache.folder / "one.packed").rename(cache.folder / f"{KEY}.packed")
    builder = Builder(2)
    builder.check(cache.open(builder))
    assert "another checkpoint" in warnings_in(caplog)


def test_arrays_that_are_mapped_survive_the_replacement_of_their_file(cache: Cache) -> None:
    builder = Builder()
    mapped = cache.open(builder)
    path = cache.folder / f"{KEY}.packed"
    damaged = path.with_suffix(".copy")
    damaged.write_bytes(path.read_bytes())
    flip(damaged, PAGE)
    damaged.replace(path)
    cache.open(builder)
    assert builder.calls == 2
    builder.check(mapped)


# -- places that cannot be written to ---------------------------------------------------------------


def test_a_read_only_cache_uses_what_is_there_and_writes_nothing(cache: Cache) -> None:
    builder = Builder()
    cache.open(builder, "one")
    before = cache.names()
    assert not cache.open(builder, "one", writable=False).packed
    fresh = cache.open(builder, "two", writable=False)
    builder.check(fresh)
    assert (fresh.file, cache.names()) == (None, before)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; see the test that drops its rights")
def test_a_folder_without_permission_serves_without_a_cache(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    cache.folder.mkdir(mode=0o500)
    builder.check(cache.open(builder))
    assert "not cached" in warnings_in(caplog)
    assert cache.names() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_of_somebody_else_serves_without_a_cache() -> None:
    """As nobody, on a folder of root's that may be read: what is there is used, the rest is packed into memory."""
    done = run_script("""
        import os, tempfile
        from test_cache import *
        with tempfile.TemporaryDirectory() as root:
            os.chmod(root, 0o755)
            cache, builder = Cache(Path(root) / "cache"), Builder()
            cache.open(builder, "one")
            os.chmod(cache.folder, 0o755)
            os.chmod(cache.folder / "one.packed", 0o644)
            os.seteuid(65534)
            assert not cache.open(builder, "one").packed
            fresh = cache.open(builder, "two")
            builder.check(fresh)
            assert fresh.file is None and builder.calls == 2
            os.seteuid(0)
            print(cache.names())
    """)
    assert done.stdout == "['one.packed']\n", done.stderr
    assert "not cached" in done.stderr


def test_a_folder_that_cannot_be_made_serves_without_a_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    builder = Builder()
    builder.check(Cache(tmp_path / "file" / "cache").open(builder))
    assert builder.calls == 1
    assert "not cached" in warnings_in(caplog)


def test_a_full_disk_is_known_before_any_work(
    cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, start: int, length: int) -> None:
        assert (start, length) == (0, file_bytes(SIZE, COUNT))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    builder = Builder()
    builder.check(cache.open(builder))
    assert builder.calls == 1
    assert "No space left on device" in warnings_in(caplog)
    assert cache.names() == []


def test_a_disk_that_fills_up_half_way_leaves_no_part_of_a_file(
    cache: Cache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's own limit on a file's length, met in the middle of the largest array."""
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    builder = Builder()
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        found = cache.open(builder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    builder.check(found)
    assert found.file is None
    assert builder.calls == 2
    assert "not cached" in warnings_in(caplog)
    assert cache.names() == []
    assert cache.open(builder).file is not None


def test_an_error_of_the_builder_is_raised_and_leaves_nothing(cache: Cache) -> None:
    def build(writer: Writer) -> None:
        writer.add("one", np.zeros(5, np.uint8))
        raise ValueError("no such format")

    with pytest.raises(ValueError, match="no such format"):
        cache.open(build)
    assert cache.names() == []
    builder = Builder()
    assert cache.open(builder).file is not None


# -- the limit --------------------------------------------------------------------------------------


def test_the_least_recently_used_files_make_room(cache: Cache) -> None:
    length = file_bytes(SIZE, COUNT)
    for age, key in enumerate(["new", "middle", "old"]):
        cache.open(Builder(), key)
        used = time.time() - 1000 * (age + 1)
        os.utime(cache.folder / f"{key}.packed", (used, used))
    cache.open(Builder(), "old")  # used again: now the newest
    cache.open(Builder(), "next", limit=length + 2 * actual_length())
    assert cache.names() == ["new.packed", "next.packed", "old.packed"]


def actual_length() -> int:
    return file_bytes(sum(a.nbytes for a in Builder().arrays.values()), COUNT)


def test_a_file_in_use_is_never_deleted(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder(1)
    in_use = cache.open(builder, "one")
    os.utime(cache.folder / "one.packed", (0, 0))
    cache.open(Builder(2), "two")
    tight = file_bytes(SIZE, COUNT) + actual_length()
    assert cache.open(Builder(3), "three", limit=tight).file is not None
    assert cache.names() == ["one.packed", "three.packed"]

    nothing = cache.open(Builder(4), "four", limit=tight - actual_length())
    assert nothing.file is None
    assert "limit" in warnings_in(caplog)
    builder.check(in_use)
    del in_use
    assert cache.open(Builder(5), "five", limit=file_bytes(SIZE, COUNT)).file is not None
    assert cache.names() == ["five.packed"], "a file that nobody maps any more can go"


def test_a_model_above_the_limit_is_not_cached_and_drives_nobody_out(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.open(Builder(1), "one")
    builder = Builder(2)
    builder.check(cache.open(builder, "two", limit=1000))
    assert builder.calls == 1
    assert cache.names() == ["one.packed"]
    assert "limit" in warnings_in(caplog)


# -- several processes ------------------------------------------------------------------------------


def run_script(code: str, *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(code), cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def script(code: str) -> list[str]:
    here = Path(__file__).parent
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(here)!r})\n" + textwrap.dedent(code)]


def test_of_many_processes_that_start_at_once_one_packs(cache: Cache, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"""
        import os, time
        from test_cache import *
        class Slow(Builder):
            def __call__(self, writer):
                with open({str(log)!r}, "a") as file:
                    file.write("packed\\n")
                time.sleep(0.3)
                super().__call__(writer)
        builder = Slow()
        found = Cache(Path({str(cache.folder)!r})).open(builder)
        builder.check(found)
        assert found.file is not None
        print(found.packed)
    """
    processes = [subprocess.Popen(script(code), stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(process.communicate(timeout=60)[0] for process in processes)
    assert said == ["False\n", "False\n", "False\n", "True\n"]
    assert log.read_text() == "packed\n"
    assert cache.names() == [f"{KEY}.packed"]


def test_a_process_that_is_killed_while_it_packs_leaves_nothing_that_counts(cache: Cache) -> None:
    code = f"""
        import os, signal
        from test_cache import *
        class Dies(Builder):
            def __call__(self, writer):
                writer.add("half", self.arrays["model.layers.0.q.weight"])
                os.kill(os.getpid(), signal.SIGKILL)
        Cache(Path({str(cache.folder)!r})).open(Dies(), KEY)
    """
    assert run_script(code).returncode == -signal.SIGKILL
    assert cache.names() == [f"{KEY}.tmp"]
    builder = Builder()
    builder.check(cache.open(builder, "another"))
    assert cache.names() == ["another.packed"], "what it left of its own key is cleared away by the next one"

    assert run_script(code).returncode == -signal.SIGKILL
    builder.check(cache.open(builder, KEY))
    assert cache.names() == [f"{KEY}.packed", "another.packed"]


def test_the_unfinished_file_of_a_process_at_work_is_left_alone(cache: Cache) -> None:
    outer = Builder(1)

    def build(writer: Writer) -> None:
        Builder(2).check(cache.open(Builder(2), "another"))
        assert f"{KEY}.tmp" in cache.names()
        outer(writer)

    outer.check(cache.open(build))
    assert cache.names() == [f"{KEY}.packed", "another.packed"]


# -- the folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [("/xdg", "/xdg/octavo"), ("", "/home/me/.cache/octavo"), ("relative", "/home/me/.cache/octavo")],
)
def test_the_folder_is_the_user_s_cache_folder(monkeypatch: pytest.MonkeyPatch, value: str, expected: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path(expected)
