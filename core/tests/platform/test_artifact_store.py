"""The artifact store: work is done once; what happens to files costs time, never the start or the answers."""

from __future__ import annotations

import logging
import mmap
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from artifacts.samples import KEY, PATH, Builder, flip, names, store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ArtifactError, ArtifactMissing
from octavo.platform import ArtifactPolicy, ArtifactStore, ArtifactWriter, Bucket, Verdict
from octavo.platform.artifacts import entry
from octavo.platform.artifacts.entry import PAGE


def warnings_in(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)


def keys(count: int) -> list:
    return [replace(KEY, bucket=Bucket(tokens=2**i)) for i in range(count)]


def path_of(folder: Path, key: object) -> Path:
    return folder / f"{key.id}.artifact"  # type: ignore[attr-defined]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


# -- the plain case ---------------------------------------------------------------------------------------------


def test_the_first_one_makes_and_the_next_one_maps(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder, where = Builder(), store(folder)
    first, second = where.open(KEY, builder), where.open(KEY, builder)
    assert builder.calls == 1
    assert (first.made, second.made) == (True, False)
    assert first.file == second.file == folder / PATH
    assert first.key == second.key == KEY
    assert first.verdict is second.verdict is Verdict.GOOD
    for found in (first, second):
        builder.check(found)
    assert [(key, made) for key, _, made in where.opened] == [(KEY, True), (KEY, False)]
    assert not warnings_in(caplog)
    assert names(folder) == [PATH], "neither locks nor unfinished files stay"


def test_what_comes_back_is_a_read_only_map_whose_arrays_start_on_pages(folder: Path) -> None:
    for found in (store(folder).open(KEY, Builder()), store(folder).open(KEY, Builder())):
        for array in found.arrays.values():
            assert array.size == 0 or array.ctypes.data % PAGE == 0
            assert not array.flags.writeable
            base: object = array
            while isinstance(base, np.ndarray):
                base = base.base
            assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    for part in ("one", "two"):
        store(tmp_path / part).open(KEY, Builder())
    assert (tmp_path / "one" / PATH).read_bytes() == (tmp_path / "two" / PATH).read_bytes()


def test_a_file_is_no_longer_than_what_it_holds(folder: Path) -> None:
    builder = Builder()
    store(folder).open(KEY, builder, nbytes=1 << 20)
    assert builder.nbytes < (folder / PATH).stat().st_size < builder.nbytes + 6 * PAGE


@pytest.mark.parametrize(("private", "folder_mode", "file_mode"), [(True, 0o700, 0o600), (False, 0o755, 0o644)])
def test_a_private_store_is_its_owner_s_and_nobody_else_writes_to_any(
    folder: Path, private: bool, folder_mode: int, file_mode: int
) -> None:
    before = os.umask(0)
    try:
        store(folder, private=private).open(KEY, Builder())
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == folder_mode
    assert (folder / PATH).stat().st_mode & 0o777 == file_mode


def test_without_a_folder_everything_is_made_in_memory() -> None:
    builder = Builder()
    for _ in range(2):
        found = ArtifactStore().open(KEY, builder)
        builder.check(found)
        assert (found.file, found.made) == (None, True)
    assert builder.calls == 2


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shapes=st.lists(st.lists(st.integers(0, 70), min_size=0, max_size=3), max_size=6),
    dtype=st.sampled_from(["u1", "i1", "<u2", "<i4", "<f4", "<f8", "?", "<f2", ">i4"]),
)
def test_any_arrays_come_back_as_they_were(tmp_path: Path, shapes: list[list[int]], dtype: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"w{i}": rng.integers(0, 2, shape).astype(dtype) for i, shape in enumerate(shapes)}

    def build(writer: ArtifactWriter) -> None:
        for name, array in arrays.items():
            writer.add(name, array)

    key = replace(KEY, checkpoint=str(len(names(tmp_path))))
    for _ in range(2):
        found = store(tmp_path).open(key, build)
        assert found.file is not None
        assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in found.arrays.items()} == {
            n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()
        }


@pytest.mark.parametrize("where", [None, "store"])
@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.zeros((4, 4))[:, ::2], "C-contiguous"),
        (np.array([{"a": 1}], object), "plain numbers"),
        (np.zeros(2, "U5"), "plain numbers"),
        (np.zeros(2, [("a", "i4")]), "plain numbers"),
    ],
)
def test_what_cannot_be_mapped_as_numbers_is_the_builder_s_bug(
    tmp_path: Path, where: str | None, array: np.ndarray, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ArtifactStore(tmp_path / where if where else None).open(KEY, lambda writer: writer.add("x", array))
    assert names(tmp_path / "store") == []


def test_two_arrays_of_one_name_are_the_builder_s_bug(folder: Path) -> None:
    def build(writer: ArtifactWriter) -> None:
        writer.add("x", np.zeros(3, np.uint8))
        writer.add("x", np.zeros(3, np.uint8))

    for where in (store(folder), ArtifactStore()):
        with pytest.raises(ValueError, match="two arrays called x"):
            where.open(KEY, build)


def test_an_error_of_the_builder_is_raised_and_leaves_nothing(folder: Path) -> None:
    def build(writer: ArtifactWriter) -> None:
        writer.add("one", np.zeros(5, np.uint8))
        raise RuntimeError("the compiler crashed")

    with pytest.raises(RuntimeError, match="the compiler crashed"):
        store(folder).open(KEY, build)
    assert names(folder) == []
    assert store(folder).open(KEY, Builder()).file is not None


# -- damaged and foreign files ------------------------------------------------------------------------------------


def test_a_flipped_bit_anywhere_is_found_and_repaired(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    store(folder).open(KEY, builder)
    path = folder / PATH
    length = path.stat().st_size
    used = entry._HEADER.size + entry._CHECKSUM.size
    data = [PAGE, PAGE + 35_000, PAGE + 70_000, PAGE + 18 * PAGE + 100]
    places = [*range(0, used, 5), *data, length - 100, length - 1]
    for repairs, at in enumerate(places, start=1):
        caplog.clear()
        flip(path, at)
        found = store(folder).open(KEY, builder)
        builder.check(found)
        assert found.made, f"the flip at {at} went unseen"
        assert builder.calls == 1 + repairs
        assert f"{path} is damaged" in warnings_in(caplog)
        assert not store(folder).open(KEY, builder).made


@pytest.mark.parametrize("length", [0, 1, 44, PAGE - 1, PAGE, PAGE + 1, 60_000, -1])
def test_a_truncated_file_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture, length: int) -> None:
    builder = Builder()
    store(folder).open(KEY, builder)
    os.truncate(folder / PATH, length if length >= 0 else (folder / PATH).stat().st_size + length)
    found = store(folder).open(KEY, builder)
    builder.check(found)
    assert found.made
    assert f"{folder / PATH} is damaged" in warnings_in(caplog)
    assert not store(folder).open(KEY, builder).made


def other_version(path: Path) -> None:
    """The header as a later Octavo may write it: another version, and a checksum that fits."""
    data = bytearray(path.read_bytes())
    fields = list(entry._HEADER.unpack(data[: entry._HEADER.size]))
    fields[1] += 1
    header = entry._HEADER.pack(*fields)
    data[: entry._HEADER.size] = header
    entry._CHECKSUM.pack_into(data, entry._HEADER.size, entry.zlib.crc32(header))
    path.write_bytes(data)


def test_a_file_of_another_version_of_the_format_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder, where = Builder(), store(folder)
    where.open(KEY, builder)
    other_version(folder / PATH)
    assert where.verdict(KEY) is Verdict.INCOMPATIBLE
    builder.check(where.open(KEY, builder))
    assert f"{folder / PATH} is incompatible: the file is of version 2" in warnings_in(caplog)
    assert where.verdict(KEY) is Verdict.GOOD


def test_a_file_of_another_key_is_never_taken_for_this_one(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name, value in {"device": "A2", "checkpoint": "other", "mesh": (1, 2)}.items():
        other = replace(KEY, **{name: value})
        store(folder).open(other, Builder(1))
        path_of(folder, other).rename(folder / PATH)
        assert store(folder).verdict(KEY) is Verdict.INCOMPATIBLE
        builder = Builder(2)
        builder.check(store(folder).open(KEY, builder))
        assert f"holds another artifact: {name} " in warnings_in(caplog)


@pytest.mark.parametrize("content", [b"GGUF" * 5000, b"\x80\x04K\x01." * 3000])
def test_a_file_of_something_else_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / PATH).write_bytes(content)
    builder = Builder()
    builder.check(store(folder).open(KEY, builder))
    assert "is no artifact" in warnings_in(caplog)


def test_a_file_that_anybody_may_write_to_is_not_trusted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    store(folder).open(KEY, Builder(1))
    (folder / PATH).chmod(0o666)
    builder = Builder(2)
    builder.check(store(folder).open(KEY, builder))
    assert "cannot be trusted" in warnings_in(caplog)
    assert (folder / PATH).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_made_in_memory_and_left_alone(
    folder: Path, caplog: pytest.LogCaptureFixture, make: object
) -> None:
    folder.mkdir(parents=True)
    make(folder / PATH)  # type: ignore[operator]
    builder = Builder()
    builder.check(store(folder).open(KEY, builder))
    assert "damaged" in warnings_in(caplog)


def forge(path: Path, change: dict) -> None:
    """Change what the index says of the first array, with checksums that fit: whoever wrote this knew the format."""
    data = path.read_bytes()
    start = entry._HEADER.unpack(data[: entry._HEADER.size])[2]
    content = entry.json.loads(data[start:])
    content["arrays"][0].update(change)
    index = entry.json.dumps(content).encode()
    header = entry._HEADER.pack(entry._MAGIC, 1, start, len(index), start + len(index), entry.zlib.crc32(index))
    checked = header + entry._CHECKSUM.pack(entry.zlib.crc32(header))
    path.write_bytes(checked + data[len(checked) : start] + index)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 1 << 40},
        {"offset": -PAGE},
        {"offset": 0},
        {"offset": PAGE + 1},
        {"offset": 1.5},
        {"bytes": 1 << 40, "shape": [1 << 40]},
        {"bytes": -1},
        {"shape": [-1, -70_001]},
        {"shape": [70_000]},
        {"shape": "many"},
        {"dtype": "|O"},
        {"dtype": "O"},
        {"dtype": "<U4"},
        {"dtype": "u1,u1"},
        {"dtype": 5},
        {"name": "table"},
        {"extra": 1},
    ],
)
def test_a_forged_index_reads_nothing_outside_the_file_and_makes_no_objects(
    folder: Path, caplog: pytest.LogCaptureFixture, change: dict
) -> None:
    store(folder).open(KEY, Builder(1))
    forge(folder / PATH, change)
    builder = Builder(2)
    builder.check(store(folder).open(KEY, builder))
    assert "makes no sense" in warnings_in(caplog)


def test_arrays_that_are_mapped_survive_the_replacement_of_their_file(folder: Path) -> None:
    builder = Builder()
    mapped = store(folder).open(KEY, builder)
    damaged = (folder / PATH).with_suffix(".copy")
    damaged.write_bytes((folder / PATH).read_bytes())
    flip(damaged, PAGE)
    damaged.replace(folder / PATH)
    store(folder).open(KEY, builder)
    assert builder.calls == 2
    builder.check(mapped)


# -- policies and verdicts ----------------------------------------------------------------------------------------

NEWER = replace(KEY, compiler="acme-cc 4.2")


def test_a_stale_artifact_serves_with_a_warning_and_is_made_again_ahead_of_time(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Builder(1), Builder(2)
    store(folder).open(KEY, old)
    for policy in (ArtifactPolicy.USE, ArtifactPolicy.REQUIRE):
        caplog.clear()
        where = store(folder, policy)
        assert where.verdict(NEWER) is Verdict.STALE
        found = where.open(NEWER, new)
        old.check(found)
        assert (found.verdict, found.key, found.made) == (Verdict.STALE, KEY, False)
        assert "stale: it was made by acme-cc 4.1, and this is acme-cc 4.2" in warnings_in(caplog)
    new.check(store(folder, ArtifactPolicy.MAKE).open(NEWER, new))
    found = store(folder).open(NEWER, new)
    assert (found.verdict, new.calls, old.calls) == (Verdict.GOOD, 1, 1)


def test_a_stale_artifact_that_is_damaged_is_not_used(folder: Path) -> None:
    store(folder).open(KEY, Builder(1))
    flip(folder / PATH, PAGE + 5)
    builder = Builder(2)
    found = store(folder).open(NEWER, builder)
    builder.check(found)
    assert (found.verdict, found.made) == (Verdict.GOOD, True)


def test_of_two_stale_artifacts_the_later_used_one_serves(folder: Path) -> None:
    versions = [replace(KEY, compiler=version) for version in ("3", "1", "2")]
    for version in versions:
        store(folder, ArtifactPolicy.MAKE).open(version, Builder(int(version.compiler)))
    for age, version in enumerate(versions):
        os.utime(path_of(folder, version), (age, age))
    Builder(2).check(store(folder).open(KEY, Builder(9)))


def test_where_artifacts_are_required_nothing_is_made(folder: Path) -> None:
    builder = Builder()
    where = store(folder, ArtifactPolicy.REQUIRE)
    with pytest.raises(ArtifactMissing, match=f"program of acme .*there is none in {folder}") as caught:
        where.open(KEY, builder)
    assert (caught.value.key, caught.value.device) == (KEY.id, "A1")
    assert (builder.calls, names(folder), where.opened) == (0, [], [])
    store(folder).open(KEY, Builder())
    builder.check(where.open(KEY, builder))
    flip(folder / PATH, PAGE)
    with pytest.raises(ArtifactMissing, match="is damaged: the file does not hold what was written for code"):
        where.open(KEY, builder)
    assert builder.calls == 0
    with pytest.raises(ArtifactMissing, match="no folder"):
        ArtifactStore(policy=ArtifactPolicy.REQUIRE).open(KEY, builder)


def test_what_cannot_be_kept_ahead_of_time_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match=r"cannot be kept in .*--out"):
        store(tmp_path / "file", ArtifactPolicy.MAKE).open(KEY, Builder())
    with pytest.raises(ArtifactError, match="read-only"):
        store(tmp_path / "new", ArtifactPolicy.MAKE, writable=False).open(KEY, Builder())
    with pytest.raises(ArtifactError, match="limit"):
        store(tmp_path / "new", ArtifactPolicy.MAKE, limit=100).open(KEY, Builder())
    assert names(tmp_path / "new") == []


# -- places -------------------------------------------------------------------------------------------------------


def test_a_store_may_be_moved_and_reached_through_links(tmp_path: Path) -> None:
    builder = Builder()
    store(tmp_path / "one").open(KEY, builder)
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "link").symlink_to(tmp_path / "two", target_is_directory=True)
    assert not store(tmp_path / "link").open(KEY, builder).made
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / PATH).symlink_to(tmp_path / "two" / PATH)
    found = store(tmp_path / "three").open(KEY, builder)
    builder.check(found)
    assert builder.calls == 1


def test_an_unfinished_file_that_is_a_link_is_not_written_through(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    (tmp_path / "victim").write_text("precious")
    (folder / f"{KEY.id}.tmp").symlink_to(tmp_path / "victim")
    builder = Builder()
    builder.check(store(folder).open(KEY, builder))
    assert (tmp_path / "victim").read_text() == "precious"


# -- the limit ----------------------------------------------------------------------------------------------------


def length() -> int:
    """Bytes of a file of `Builder`'s."""
    return sum(-(-size // PAGE) * PAGE for size in (1, 70_001, 768)) + 1500


def test_the_least_recently_used_artifacts_make_room(folder: Path) -> None:
    new, middle, old, other = keys(4)
    for age, key in enumerate([new, middle, old]):
        store(folder).open(key, Builder())
        used = time.time() - 1000 * (age + 1)
        os.utime(path_of(folder, key), (used, used))
    store(folder).open(old, Builder())  # used again: now the newest
    assert store(folder, limit=3 * length() + 3000).open(other, Builder(), nbytes=Builder().nbytes).file is not None
    assert set(names(folder)) == {path_of(folder, key).name for key in (new, old, other)}


@pytest.mark.parametrize("nbytes", [0, Builder().nbytes])
def test_an_artifact_in_use_is_never_deleted(folder: Path, caplog: pytest.LogCaptureFixture, nbytes: int) -> None:
    one, two, three, four, five = keys(5)
    builder = Builder(1)
    in_use = store(folder).open(one, builder)
    os.utime(path_of(folder, one), (0, 0))
    store(folder).open(two, Builder(2))
    tight = 2 * length() + 3000
    assert store(folder, limit=tight).open(three, Builder(3), nbytes=nbytes).file is not None
    assert set(names(folder)) == {path_of(folder, one).name, path_of(folder, three).name}

    nothing = store(folder, limit=tight - length()).open(four, Builder(4), nbytes=nbytes)
    assert nothing.file is None
    assert "limit" in warnings_in(caplog)
    builder.check(in_use)
    del in_use
    assert store(folder, limit=length() + 3000).open(five, Builder(5), nbytes=nbytes).file is not None
    assert names(folder) == [path_of(folder, five).name], "what nobody maps any more can go"


def test_an_artifact_above_the_limit_is_not_kept_and_drives_nobody_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = keys(3)
    store(folder).open(one, Builder(1))
    builder = Builder(2)
    builder.check(store(folder, limit=1000).open(two, builder, nbytes=builder.nbytes))
    assert builder.calls == 1, "known before the work"
    assert store(folder, limit=1000).open(three, Builder(3)).file is None, "known after it, if the size was not"
    assert names(folder) == [path_of(folder, one).name]
    assert "limit" in warnings_in(caplog)


def test_only_artifacts_are_ever_deleted(folder: Path) -> None:
    folder.mkdir(parents=True)
    foreign = ["notes.txt", "model.artifact", "x.tmp", "x.lock", "model.safetensors"]
    for name in foreign:
        (folder / name).write_bytes(bytes(1 << 20))
    store(folder, limit=length() + 3000).open(KEY, Builder())
    assert set(names(folder)) == {*foreign, PATH}
