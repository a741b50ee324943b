"""`octavo run-batch` over a fake engine: its files, its outcome, what it prints."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from octavo.cli.main import app
from octavo.cli.run_batch.job import Files, Job
from octavo.cli.run_batch.places import Place, beside
from octavo.cli.run_batch.progress import PLAIN_SECONDS, Standing, batch_progress
from octavo.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
from server_fake import FakeEngine


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield
    fsspec.filesystem("memory").store.clear()


def _lines(count: int, **body: Any) -> bytes:
    lines = (
        {"custom_id": f"c{i}", "url": "/v1/completions", "body": {"prompt": f"p{i}", **body}} for i in range(count)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _job(input: str | Path, output: str | Path, *, overwrite: bool = False) -> Job:
    return Job(Files(Place(str(input)), Place(str(output)), Place(beside(str(output)))), overwrite=overwrite)


def _run(job: Job, engine: FakeEngine) -> bool:
    try:
        return asyncio.run(job.run(engine, 4, lambda standing: None, lambda text: None))
    finally:
        job.close()


def _ids(data: bytes) -> list[str]:
    return sorted(json.loads(line)["custom_id"] for line in data.splitlines())


def test_a_run_that_was_interrupted_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(_lines(20))
    engine = FakeEngine(pause=0.01)
    job = _job(source, out)
    said: list[str] = []

    async def interrupted() -> bool:
        running = asyncio.create_task(job.run(engine, 4, lambda standing: None, said.append))
        for _ in range(10_000):
            if len(engine.seen) >= 6:
                break
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        return await running

    assert not asyncio.run(interrupted())
    job.close()
    assert said == ["Stopping: 4 lines run to their end; again to end them now."]
    finished = _ids(out.read_bytes())
    assert 6 <= len(finished) < 20 and engine.ended == []

    again = _job(source, out)
    assert again.standing.done == len(finished)
    assert _run(again, engine)
    assert _ids(out.read_bytes()) == sorted(f"c{i}" for i in range(20))
    assert sorted(seen.text for seen in engine.seen) == sorted(f"p{i}" for i in range(20))


def test_a_second_signal_ends_the_lines_that_run(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(_lines(20))
    engine = FakeEngine(pause=60)
    job = _job(source, tmp_path / "out.jsonl")

    async def interrupted() -> bool:
        running = asyncio.create_task(job.run(engine, 4, lambda standing: None, lambda text: None))
        for _ in range(10_000):
            if engine.running == 4:
                break
            await asyncio.sleep(0.001)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.01)
        return await running

    assert not asyncio.run(interrupted())
    job.close()
    assert engine.running == 0 and len(engine.ended) == 4
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_an_output_of_another_input_is_refused_and_overwrite_begins_anew(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(_lines(3))
    assert _run(_job(source, out), FakeEngine())
    source.write_bytes(_lines(4))
    with pytest.raises(ConfigError, match=r"out.jsonl is there and is no output of this input.*--overwrite"):
        _job(source, out)
    assert _run(_job(source, out, overwrite=True), FakeEngine())
    assert _ids(out.read_bytes()) == ["c0", "c1", "c2", "c3"]


def test_failed_lines_run_again_once_the_file_of_errors_is_gone(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(_lines(3))
    assert _run(_job(source, out), FakeEngine(fail_at=0))
    errors = tmp_path / "out.errors.jsonl"
    assert _ids(errors.read_bytes()) == ["c0", "c1", "c2"]
    job = _job(source, out)
    assert job.standing == Standing(3, 3, 3, 0, 0)
    job.close()
    errors.unlink()
    assert _run(_job(source, out), FakeEngine())
    assert _ids(out.read_bytes()) == ["c0", "c1", "c2"] and not errors.exists()


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_files_may_be_anywhere(scheme: str, tmp_path: Path) -> None:
    base = f"memory://bucket{tmp_path}" if scheme == "memory" else f"file://{tmp_path}"
    with fsspec.open(f"{base}/in.jsonl", "wb") as file:
        file.write(_lines(5) + b"nonsense\n")
    assert _run(_job(f"{base}/in.jsonl", f"{base}/out.jsonl"), FakeEngine())
    with fsspec.open(f"{base}/out.jsonl", "rb") as file:
        assert _ids(file.read()) == ["c0", "c1", "c2", "c3", "c4"]
    with fsspec.open(f"{base}/out.errors.jsonl", "rb") as file:
        assert json.loads(file.read())["error"]["code"] == "invalid_json_line"
    assert not list((tmp_path / "data").rglob("*.jsonl"))


def test_a_remote_output_is_kept_here_until_it_is_whole_and_taken_up_from_either_side(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(_lines(5))
    job = _job(tmp_path / "in.jsonl", "memory://out.jsonl")
    kept = job.files.answers.written
    engine = FakeEngine()
    assert _run(job, engine)
    memory = fsspec.filesystem("memory")
    assert not kept.exists()
    whole = memory.cat("/out.jsonl")

    lines = whole.splitlines(keepends=True)  # another machine has uploaded part of it
    memory.pipe("/out.jsonl", b"".join(lines[:2]))
    job = _job(tmp_path / "in.jsonl", "memory://out.jsonl")
    assert job.standing.done == 2
    job.close()  # interrupted: uploaded, and kept
    assert kept.read_bytes() == b"".join(lines[:2])
    kept.write_bytes(b"".join(lines[:3]))  # killed later, before an upload
    job = _job(tmp_path / "in.jsonl", "memory://out.jsonl")
    assert job.standing.done == 3
    assert _run(job, engine)
    assert _ids(memory.cat("/out.jsonl")) == ["c0", "c1", "c2", "c3", "c4"]


def test_a_compressed_input_is_unpacked(tmp_path: Path) -> None:
    with fsspec.open(str(tmp_path / "in.jsonl.gz"), "wb", compression="gzip") as file:
        file.write(_lines(2))
    assert _run(_job(tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl"), FakeEngine())
    assert _ids((tmp_path / "out.jsonl").read_bytes()) == ["c0", "c1"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://bucket/in.jsonl", r"s3://bucket/in.jsonl .*pip install s3fs"),
        ("nope://x", "nope"),
        ("missing.jsonl", "no such file"),
    ],
)
def test_a_place_that_cannot_be_reached_says_what_to_do(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        _job(url, tmp_path / "out.jsonl")


def test_one_file_has_one_part(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(_lines(1))
    with pytest.raises(ConfigError, match="is the input and the output"):
        _job(tmp_path / "in.jsonl", f"file://{tmp_path}/in.jsonl")
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    with pytest.raises(ConfigError, match="has no lines"):
        _job(tmp_path / "empty.jsonl", tmp_path / "out.jsonl")


def _typed(*words: str) -> None:
    CliRunner().invoke(app, ["run-batch", *words], catch_exceptions=False)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a file of requests"):
        _typed("-o", "x", "--model", "m")
    with pytest.raises(ConfigError, match="needs a model"):
        _typed("in", "-o", "x")
    with pytest.raises(ConfigError, match="needs a file for the answers"):
        _typed("-i", "in", "--model", "m")
    with pytest.raises(ConfigError, match="one file of requests; what is 'b'"):
        _typed("a", "b", "-o", "x", "--model", "m")
    with pytest.raises(ConfigError, match="no option --bananas"):
        _typed("a", "--bananas", "-o", "x", "--model", "m")
    with pytest.raises(ConfigError, match="--swap-space is not supported"):
        _typed("a", "--swap-space=4", "-o", "x", "--model", "m")


def test_a_run_with_nothing_left_starts_no_engine(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(_lines(2))
    assert _run(_job(source, out), FakeEngine())
    result = CliRunner().invoke(app, ["run-batch", str(source), "-o", str(out), "--model", "no/such/model"])
    assert result.exit_code == 0
    assert f"2 of 2 lines were answered: {out}" in result.output


def test_the_progress_of_a_run_is_a_line_now_and_then_where_nobody_looks() -> None:
    now = 0.0
    console = Console(file=open(os.devnull, "w"), record=True, width=100)  # noqa: SIM115, PTH123
    with batch_progress(Standing(10, 110, 0, 5, 5), console, lambda: now) as show:
        for second in range(1, 21):
            now = second * PLAIN_SECONDS / 10
            show(Standing(10 + second, 110, 1, 5 + 30 * second, 5 + 20 * second))
    lines = console.export_text().splitlines()
    assert lines == [
        "20 of 110 lines, in 30 tok/s, out 20 tok/s, 1 failed, about 90 s left",
        "30 of 110 lines, in 30 tok/s, out 20 tok/s, 1 failed, about 80 s left",
    ]
