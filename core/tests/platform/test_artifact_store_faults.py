"""The artifact store among processes that die, disks that fill up and folders that cannot be written to."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from artifacts.samples import KEY, PATH, Builder, names, run, script, store

from octavo.platform.artifacts import files
from octavo.platform.artifacts.entry import PAGE

POINTS = 100  # at which a process is killed


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# -- several processes ------------------------------------------------------------------------------------------


def test_who_waited_for_a_lock_that_was_taken_away_waits_for_the_next_one(tmp_path: Path) -> None:
    """The first holder's file goes with it; another process has made a new one by the time that the wait is over."""
    path, entered = tmp_path / "key.lock", threading.Event()

    def wait_and_enter() -> None:
        with files.lock(tmp_path, "key"):
            entered.set()

    def taken() -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    first = taken()
    waiting = threading.Thread(target=wait_and_enter)
    waiting.start()
    assert not entered.wait(0.3)
    path.unlink()
    second = taken()
    os.close(first)
    assert not entered.wait(0.3), "two hold the lock of one key"
    os.close(second)
    assert entered.wait(30)
    waiting.join()
    assert not path.exists()


def test_of_eight_processes_that_start_at_once_one_makes(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"""
        import time
        class Slow(Builder):
            def __call__(self, writer):
                with open({str(log)!r}, "a") as file:
                    file.write("made\\n")
                time.sleep(0.5)
                super().__call__(writer)
        builder = Slow()
        found = store(Path({str(folder)!r})).open(KEY, builder)
        builder.check(found)
        assert found.file is not None
        print(found.made)
    """
    processes = [subprocess.Popen(script(code), stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = sorted(process.communicate(timeout=120)[0] for process in processes)
    assert said == ["False\n"] * 7 + ["True\n"]
    assert log.read_text() == "made\n"
    assert names(folder) == [PATH]


def test_processes_that_make_and_evict_at_once_see_no_torn_file(folder: Path) -> None:
    """Four processes, four keys, room for two: whatever is evicted under whoever, every answer is right."""
    code = f"""
        import random, sys
        from dataclasses import replace
        rng = random.Random(int(sys.argv[1]))
        for _ in range(40):
            seed = rng.randrange(4)
            builder = Builder(seed)
            where = store(Path({str(folder)!r}), limit=190_000)
            builder.check(where.open(replace(KEY, checkpoint=str(seed)), builder, nbytes=builder.nbytes))
        print("right")
    """
    processes = [
        subprocess.Popen([*script(code), str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert out == "right\n", err
        assert "damaged" not in err


KILLED = """
    import os, signal, sys
    from octavo.platform import artifacts
    mine = os.path.dirname(artifacts.__file__)

    def publish(folder, point):
        left = point

        def line(frame, event, argument):
            nonlocal left
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return line

        def call(frame, event, argument):
            return line if frame.f_code.co_filename.startswith(mine) else None

        sys.settrace(call)
        store(folder).open(KEY, Builder(1))
        sys.settrace(None)
        return point - left

    root, points = Path(sys.argv[1]), int(sys.argv[2])
    lines = publish(root / "whole", 0)
    for n in range(points):
        child = os.fork()
        if child == 0:
            publish(root / str(n), 1 + n * (lines - 1) // (points - 1))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, n
    print(lines)
"""


def test_a_process_killed_at_any_line_leaves_the_old_state_or_the_whole_artifact(tmp_path: Path) -> None:
    """Killed with SIGKILL before one line after another of the store, spread evenly over a whole publication."""
    done = subprocess.run([*script(KILLED), str(tmp_path), str(POINTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > POINTS
    reference = (tmp_path / "whole" / PATH).read_bytes()
    states = set()
    for n in range(POINTS):
        folder = tmp_path / str(n)
        found = names(folder)
        states.add(tuple(name.rpartition(".")[2] for name in found))
        if PATH in found:
            assert (folder / PATH).read_bytes() == reference, f"killed at point {n}"
        builder = Builder(1)
        artifact = store(folder).open(KEY, builder)
        builder.check(artifact)
        assert artifact.made == (PATH not in found)
    assert {("lock", "tmp"), ("artifact", "lock"), ()} <= states, "the points reach into every part of it"


def test_what_a_killed_process_left_of_another_key_is_cleared_away(folder: Path) -> None:
    code = f"""
        import os, signal
        def dies(writer):
            writer.add("half", Builder().arrays["code"])
            os.kill(os.getpid(), signal.SIGKILL)
        store(Path({str(folder)!r})).open(KEY, dies)
    """
    assert run(code).returncode == -signal.SIGKILL
    assert names(folder) == [f"{KEY.id}.lock", f"{KEY.id}.tmp"]
    other = Builder()
    key = replace(KEY, checkpoint="other")
    other.check(store(folder).open(key, other))
    assert names(folder) == [f"{key.id}.artifact"]


def test_the_unfinished_file_of_a_process_at_work_is_left_alone(folder: Path) -> None:
    outer, key = Builder(1), replace(KEY, checkpoint="other")

    def build(writer: object) -> None:
        Builder(2).check(store(folder).open(key, Builder(2)))
        assert f"{KEY.id}.tmp" in names(folder)
        outer(writer)  # type: ignore[arg-type]

    outer.check(store(folder).open(KEY, build))
    assert names(folder) == sorted([PATH, f"{key.id}.artifact"])


# -- places that cannot be written to -----------------------------------------------------------------------------


def in_a_mount(options: str, code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with a file system of its own on ``mount``, which nobody else sees; skips if that is forbidden."""
    mount = tmp_path / "mount"
    mount.mkdir()
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    probe = subprocess.run([*namespace, "mount", "-t", "tmpfs", "none", str(mount)], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {probe.stderr.decode().strip()}")
    shell = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    command = [*namespace, "sh", "-c", shell, str(mount), *script(f"mount = Path({str(mount)!r})\n" + code)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


READ_ONLY_MOUNT = """
import os, subprocess
from dataclasses import replace
folder, made, new = mount / "store", Builder(1), Builder(2)
store(folder).open(KEY, made)
os.utime(folder / PATH, (1000, 1000))
subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
def forbidden(*arguments, **options):
    raise AssertionError(f"a write was tried: {arguments}")
for name in ("mkdir", "utime", "unlink", "replace", "rename", "ftruncate", "posix_fallocate"):
    setattr(os, name, forbidden)
where, real = store(folder), os.open
def read_only(path, flags, *mode, **options):
    assert not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT), path
    return real(path, flags, *mode, **options)
os.open = read_only
made.check(where.open(KEY, made))
for n in range(3):
    found = where.open(replace(KEY, checkpoint=str(n)), new)
    new.check(found)
    assert found.file is None
print(made.calls, new.calls, names(folder) == [PATH])
"""


def test_a_read_only_mount_is_used_and_never_written_to(tmp_path: Path) -> None:
    done = in_a_mount("size=4m", READ_ONLY_MOUNT, tmp_path)
    assert done.stdout == "1 3 True\n", done.stderr
    [line] = done.stderr.splitlines()
    assert "is read-only: what it lacks is made at every start, in memory" in line, "said once"


def test_a_store_that_must_not_be_written_to_is_used_as_it_is(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    store(folder).open(KEY, builder)
    os.utime(folder / PATH, (1000, 1000))
    where = store(folder, writable=False)
    builder.check(where.open(KEY, builder))
    assert not warnings_in(caplog)
    for n in range(2):
        fresh = where.open(replace(KEY, checkpoint=str(n)), builder)
        builder.check(fresh)
        assert fresh.file is None
    [warning] = warnings_in(caplog)
    assert f"{folder} is read-only" in warning
    assert names(folder) == [PATH]
    assert (folder / PATH).stat().st_mtime == 1000
    store(folder / "new", writable=False).open(KEY, builder)
    assert not (folder / "new").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; see the test that drops its rights")
def test_a_folder_without_permission_serves_without_keeping(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    builder = Builder()
    folder.mkdir(mode=0o500)
    builder.check(store(folder).open(KEY, builder))
    assert "read-only" in warnings_in(caplog)[0]
    assert names(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_of_somebody_else_is_used_as_far_as_it_can_be_read() -> None:
    """As nobody, on a folder of root's: what may be read is used, the rest is made in memory."""
    done = run("""
        import os, tempfile
        from dataclasses import replace
        with tempfile.TemporaryDirectory() as root:
            os.chmod(root, 0o755)
            folder, builder, secret = Path(root) / "store", Builder(), replace(KEY, checkpoint="secret")
            store(folder, private=False).open(KEY, builder)
            store(folder, private=True).open(secret, builder)
            os.setegid(65534)
            os.seteuid(65534)
            where = store(folder)
            assert not where.open(KEY, builder).made
            for key in (secret, replace(KEY, checkpoint="new")):
                fresh = where.open(key, builder)
                builder.check(fresh)
                assert fresh.file is None
            os.seteuid(0)
            print(builder.calls, len(names(folder)))
    """)
    assert done.stdout == "4 2\n", done.stderr
    assert "cannot be read: [Errno 13]" in done.stderr
    assert "is read-only" in done.stderr


def test_a_folder_that_cannot_be_made_serves_without_keeping(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    builder = Builder()
    for folder in (tmp_path / "file", tmp_path / "file" / "store"):
        builder.check(store(folder).open(KEY, builder))
    assert builder.calls == 2
    assert all("is not kept in" in warning for warning in warnings_in(caplog))


@pytest.mark.parametrize("call", ["mkdir", "open", "replace", "fsync", "posix_fallocate", "ftruncate", "write"])
def test_whatever_call_fails_costs_the_artifact_its_place_and_nothing_else(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As on a mount that becomes read-only at the worst moment."""
    real = getattr(os, call)

    def fails(*arguments: object, **options: object) -> object:
        if call == "open" and not int(arguments[1]) & os.O_CREAT:  # type: ignore[call-overload]
            return real(*arguments, **options)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    builder = Builder()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        found = store(folder).open(KEY, builder)
    builder.check(found)
    assert found.file is None
    assert any("Read-only file system" in warning for warning in warnings_in(caplog))
    assert names(folder) == []
    assert store(folder).open(KEY, builder).file is not None


# -- full disks ---------------------------------------------------------------------------------------------------


def test_a_full_disk_is_known_before_any_work(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder()

    def full(descriptor: int, start: int, length: int) -> None:
        assert (start, length) == (0, builder.nbytes + 2 * PAGE)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    builder.check(store(folder).open(KEY, builder, nbytes=builder.nbytes))
    assert builder.calls == 1
    assert "No space left on device" in warnings_in(caplog)[0]
    assert names(folder) == []


def test_a_disk_that_fills_up_half_way_leaves_no_part_of_a_file(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The system's own limit on a file's length, met in the middle of the largest array."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    builder = Builder()
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        found = store(folder).open(KEY, builder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    builder.check(found)
    assert found.file is None
    assert builder.calls == 2
    assert "is not kept" in warnings_in(caplog)[0]
    assert names(folder) == []
    assert store(folder).open(KEY, builder).file is not None


FULL_DISK = """
from dataclasses import replace
folder = mount / "store"
kept = 0
for n in range(6):
    builder = Builder(n)
    found = store(folder).open(replace(KEY, checkpoint=str(n)), builder, nbytes=NBYTES)
    builder.check(found)
    kept += found.file is not None
print(kept, len(names(folder)), builder.calls)
"""


@pytest.mark.parametrize(("nbytes", "calls"), [("0", 2), ("builder.nbytes", 1)])
def test_a_disk_that_is_full_keeps_what_fits(tmp_path: Path, nbytes: str, calls: int) -> None:
    """A real file system of 300 KB: three artifacts of 82 KB fit."""
    done = in_a_mount("size=300k", FULL_DISK.replace("NBYTES", nbytes), tmp_path)
    assert done.stdout == f"3 3 {calls}\n", done.stderr
    assert done.stderr.count("No space left on device") == 3
