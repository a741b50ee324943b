"""Killable workers: what is asked comes back, and nothing that is asked can hold or harm the process that asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from octavo.sandbox.worker import Worker, WorkerFailed, WorkerTimeout

TARGET = "sandbox.worker_targets:play"
MIB = 2**20


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(TARGET, seconds=20.0, memory_bytes=256 * MIB)
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int) -> None:
    for _ in range(600):
        if not alive(pid):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


@pytest.mark.parametrize("size", [0, 1, 100_000, 5 * MIB])
def test_any_bytes_go_there_and_back(worker: Worker, size: int) -> None:
    payload = os.urandom(size)
    assert worker.call(b"echo " + payload) == payload


def test_one_process_is_kept(worker: Worker) -> None:
    first = worker.call(b"pid")
    assert worker.call(b"pid") == first != str(os.getpid()).encode()
    assert worker.call(b"calls") == b"3"


def test_threads_share_a_worker(worker: Worker) -> None:
    with ThreadPoolExecutor(8) as pool:
        payloads = [f"{i}".encode() * 1000 for i in range(200)]
        assert list(pool.map(lambda p: worker.call(b"echo " + p), payloads)) == payloads


def test_several_processes_work_at_the_same_time(tmp_path: Path) -> None:
    worker = Worker(TARGET, seconds=60.0, memory_bytes=64 * MIB, processes=2)
    begun = tmp_path / "begun"
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(worker.call, b"touch " + os.fsencode(begun))
        assert worker.call(b"echo beside") == b"beside"
        while not begun.exists():  # the second process may start slower than the first one answers
            assert not busy.done()
            time.sleep(0.05)
        assert not busy.done()
        worker.close()  # ends what runs
        with pytest.raises(WorkerFailed, match="its process died"):
            busy.result()


@pytest.mark.parametrize("endless", [b"sleep 60", b"spin"])
def test_endless_work_is_ended_and_the_next_call_works(endless: bytes) -> None:
    worker = Worker(TARGET, seconds=1.0, memory_bytes=64 * MIB)
    pid = int(worker.call(b"pid"))
    with pytest.raises(WorkerTimeout, match="longer than 1 s"):
        worker.call(endless)
    wait_until_gone(pid)
    assert worker.call(b"echo again") == b"again"
    worker.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's address space")
def test_too_much_memory_is_refused_and_the_next_call_works(worker: Worker) -> None:
    assert worker.call(b"grow 100000000") == b"100000000"
    with pytest.raises(WorkerFailed, match="more than 256 MiB"):
        worker.call(b"grow 400000000")
    assert worker.call(b"echo again") == b"again"


def test_a_failure_is_told_in_its_words_and_costs_no_process(worker: Worker) -> None:
    pid = worker.call(b"pid")
    with pytest.raises(WorkerFailed, match="ValueError: the é is wrong"):
        worker.call("fail the é is wrong".encode())
    assert worker.call(b"pid") == pid


def test_a_process_that_dies_is_replaced(worker: Worker) -> None:
    with pytest.raises(WorkerFailed, match="exit code 7"):
        worker.call(b"exit 7")
    pid = int(worker.call(b"pid"))
    os.kill(pid, signal.SIGKILL)  # while idle, as the kernel does when memory is short
    wait_until_dead_child(worker, pid)
    assert worker.call(b"echo still here") == b"still here"


def wait_until_dead_child(worker: Worker, pid: int) -> None:
    """It stays a zombie until its parent asks; its end is what counts here."""
    for _ in range(600):
        if Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"process {pid} was not killed")


def test_what_the_target_prints_is_no_answer(worker: Worker) -> None:
    assert worker.call(b"print noise") == b"printed"
    assert worker.call(b"echo clean") == b"clean"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.such.module:f", "ModuleNotFoundError"),
        ("sandbox.worker_targets:missing", "AttributeError"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_named(target: str, message: str) -> None:
    worker = Worker(target, seconds=1.0, memory_bytes=MIB)
    for _ in range(2):
        with pytest.raises(WorkerFailed, match=message):
            worker.call(b"")


def test_closing_ends_the_process_and_later_calls_fail(worker: Worker) -> None:
    pid = int(worker.call(b"pid"))
    worker.close()
    wait_until_gone(pid)
    with pytest.raises(WorkerFailed, match="closed"):
        worker.call(b"echo")
    worker.close()


def test_a_dropped_worker_leaves_no_process() -> None:
    worker = Worker(TARGET, seconds=5.0, memory_bytes=64 * MIB)
    pid = int(worker.call(b"pid"))
    del worker
    wait_until_gone(pid)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_process_ends_with_its_parent(end: str, busy: bool) -> None:
    script = textwrap.dedent(f"""
        import contextlib, os, signal, sys, threading
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from octavo.sandbox.worker import Worker
        worker = Worker({TARGET!r}, seconds=3.0, memory_bytes={64 * MIB})
        print(worker.call(b"pid").decode(), flush=True)
        def spin():
            with contextlib.suppress(Exception):  # written while the interpreter ends, its traceback could abort it
                worker.call(b"spin")
        if {busy}:
            threading.Thread(target=spin, daemon=True).start()
            threading.Event().wait(0.5)
        if {end == "kill"}:
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False)
    assert parent.returncode == (-signal.SIGKILL if end == "kill" else 0)
    wait_until_gone(int(parent.stdout))


def test_the_child_runs_no_code_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    worker = Worker(TARGET, seconds=5.0, memory_bytes=64 * MIB)
    assert worker.call(b"echo safe") == b"safe"
    worker.close()


def test_the_child_loads_no_more_than_it_needs(worker: Worker) -> None:
    loaded = set(worker.call(b"modules").decode().split())
    assert not loaded & {"torch", "transformers", "numpy", "starlette", "pydantic", "uvicorn"}
