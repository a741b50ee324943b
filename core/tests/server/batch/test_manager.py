"""Batches through restarts, kills, a dead engine and the passing of time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from server_fake import FakeEngine

from octavo.errors import EngineDead
from octavo.server import ServerSettings, create_app
from octavo.server.batch import manager
from octavo.server.batch.file_store import FileStore, outputs_of
from octavo.server.batch.inside import Inside
from octavo.server.batch.manager import Batches
from octavo.server.batch.store import Batch, BatchObject, BatchStore, RequestCounts
from octavo.server.batch.tables import BATCHES, FILES
from octavo.server.generation.service import Service
from octavo.server.transport.database import Database

OWNER = "me"
WINDOW = 24 * 3600


def _lines(count: int, **body: Any) -> bytes:
    lines = (
        {"custom_id": f"c{i}", "url": "/v1/completions", "body": {"prompt": f"p{i}", **body}} for i in range(count)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


async def _until(check: Callable[[], bool]) -> None:
    for _ in range(5000):
        if check():
            return
        await asyncio.sleep(0.002)
    pytest.fail("it never happened")


class Server:
    """The parts of one server process that batches are made of; another one takes them up."""

    def __init__(self, folder: Path, engine: FakeEngine, priority: int = 0) -> None:
        self.engine = engine
        self.settings = ServerSettings(
            database=Database.file(folder / "server.db"),
            files_dir=folder / "files",
            batch_lines_in_flight=4,
            batch_priority=priority,
        )
        self.app = create_app(engine, self.settings)
        self.service: Service = self.app.state.service
        self.store = BatchStore(self.service.database)
        self.now = 1_000_000.0
        self.files = FileStore(
            self.service.database, folder / "files", self.settings.limits.stored_bytes, lambda: self.now
        )
        self.batches = Batches(self.service, self.files, self.store, lambda: self.now)

    async def begin(self, data: bytes) -> str:
        """Upload a file and make a batch of it."""
        path = self.files.folder / "upload"
        path.write_bytes(data)
        with path.open("rb") as content:
            file = await self.files.add(OWNER, "in", "batch", content, len(data), None)
        now = int(self.now)
        shown = BatchObject(
            id=f"batch_{os.urandom(8).hex()}",
            endpoint="/v1/completions",
            input_file_id=file.id,
            completion_window="24h",
            status="validating",
            created_at=now,
            expires_at=now + WINDOW,
            request_counts=RequestCounts(),
        )
        await self.store.insert(Batch(OWNER, shown, 3600, None), 10)
        self.batches.begin(shown.id)
        return shown.id

    async def ended(self, id: str) -> BatchObject:
        """The batch, when it has ended."""
        for _ in range(5000):
            shown = (await self.store.get(OWNER, id)).shown
            if shown.status in ("completed", "failed", "expired", "cancelled"):
                return shown
            await asyncio.sleep(0.002)
        pytest.fail(f"{id} does not end")

    def content(self, id: str | None) -> list[Any]:
        """The lines of a file."""
        assert id is not None
        return [json.loads(line) for line in self.files.path(id).read_text().splitlines()]

    async def close(self) -> None:
        await self.batches.close()
        await self.service.close()


@asynccontextmanager
async def _server(folder: Path, engine: FakeEngine, **more: Any) -> AsyncIterator[Server]:
    server = Server(folder, engine, **more)
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture(autouse=True)
def _quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(manager, "SWEEP_SECONDS", 0.05)


async def test_a_server_that_stops_leaves_its_batches_to_the_next(tmp_path: Path) -> None:
    engine = FakeEngine(pause=0.01)
    async with _server(tmp_path, engine) as first:
        batch = await first.begin(_lines(40))
        await _until(lambda: len(engine.seen) >= 12)
    assert engine.running == 0
    begun = len(engine.seen)
    journal = tmp_path / "files" / "batches" / f"{batch}.answers"
    finished = journal.read_bytes().count(b"\n")
    assert 8 <= finished < 40 and begun - finished <= 4
    engine.pause = 0
    async with _server(tmp_path, engine) as second:
        await second.batches.start()
        shown = await second.ended(batch)
        assert (shown.status, shown.request_counts) == ("completed", RequestCounts(40, 40, 0))
        answers = second.content(shown.output_file_id)
        assert sorted(answer["custom_id"] for answer in answers) == sorted(f"c{i}" for i in range(40))
        assert shown.usage is not None and shown.usage.output_tokens == 40 * 5
    assert len(engine.seen) == begun + 40 - finished, "no finished line ran again"


@pytest.mark.parametrize("step", ["outcome", "adopted"])
async def test_a_server_that_dies_while_it_finishes_a_batch_makes_nothing_twice(tmp_path: Path, step: str) -> None:
    engine = FakeEngine()
    async with _server(tmp_path, engine) as first:
        batch = await first.begin(_lines(3) + b"nonsense\n")
        shown = await first.ended(batch)
        files = first.files
        output, error = outputs_of(batch)
        # Wind the clock back to what a kill at this step would have left.
        values = {"status": "finalizing", "outcome": "completed", "output_file_id": None, "error_file_id": None}
        await first.store.set(batch, **values)
        await first.service.database.run(lambda db: db.execute(FILES.delete().where(FILES.c.id == output)))
        if step == "outcome":
            await first.service.database.run(lambda db: db.execute(FILES.delete().where(FILES.c.id == error)))
            files.path(output).rename(files.batches / f"{batch}.answers")
            files.path(error).rename(files.batches / f"{batch}.errors")
    async with _server(tmp_path, engine) as second:
        await second.batches.start()
        again = await second.ended(batch)
        assert again.request_counts == shown.request_counts
        assert (again.output_file_id, again.error_file_id) == (output, error)
        assert len(second.content(output)) == 3 and len(second.content(error)) == 1
        assert (await second.files.get(OWNER, output)).purpose == "batch_output"
    assert len(engine.seen) == 3


async def test_a_dead_engine_leaves_a_batch_as_it_stands(tmp_path: Path) -> None:
    engine = FakeEngine(fail_at=0, error=EngineDead("gone"), dead=EngineDead("gone"))
    async with _server(tmp_path, engine) as first:
        batch = await first.begin(_lines(10))
        await _until(lambda: len(engine.seen) >= 1 and not first.batches._running)
        assert (await first.store.get(OWNER, batch)).shown.status == "in_progress"
    engine.fail_at = engine.dead = None
    async with _server(tmp_path, engine) as second:
        await second.batches.start()
        assert (await second.ended(batch)).request_counts == RequestCounts(10, 10, 0)


async def test_a_batch_that_another_process_runs_is_left_to_it_until_it_lets_go(tmp_path: Path) -> None:
    engine, idle = FakeEngine(pause=0.05), FakeEngine()
    async with _server(tmp_path, idle) as second:
        async with _server(tmp_path, engine) as first:
            batch = await first.begin(_lines(30))
            await _until(lambda: len(engine.seen) >= 4)
            await second.batches.start()
            await asyncio.sleep(0.2)  # several sweeps
            assert idle.seen == []
            # It can be cancelled there all the same; here it is only seen to run.
            assert (await second.store.get(OWNER, batch)).shown.status == "in_progress"
        shown = await second.ended(batch)
        assert shown.request_counts == RequestCounts(30, 30, 0)
    assert len(engine.seen) + len(idle.seen) == 30 + len(engine.ended)


async def test_a_cancellation_reaches_the_process_that_runs_the_batch(tmp_path: Path) -> None:
    engine = FakeEngine(pause=0.02)
    async with _server(tmp_path, engine) as first, _server(tmp_path, FakeEngine()) as second:
        batch = await first.begin(_lines(40))
        await _until(lambda: len(engine.seen) >= 4)
        assert await second.store.move(batch, "cancelling", second.batches.now(), only_from=("in_progress",))
        shown = await second.ended(batch)
        assert shown.status == "cancelled"
        assert len(second.content(shown.output_file_id)) == len(engine.seen) < 40


async def test_what_is_not_run_in_time_expires(tmp_path: Path) -> None:
    engine = FakeEngine(pause=0.02)
    async with _server(tmp_path, engine) as server:
        batch = await server.begin(_lines(40))
        await _until(lambda: len(engine.seen) >= 9)
        server.now += WINDOW
        shown = await server.ended(batch)
        assert shown.status == "expired" and shown.expired_at == int(server.now)
        answers, errors = server.content(shown.output_file_id), server.content(shown.error_file_id)
        assert {error["error"]["code"] for error in errors} == {"batch_expired"}
        assert sorted(line["custom_id"] for line in answers + errors) == sorted(f"c{i}" for i in range(40))
        assert shown.request_counts == RequestCounts(40, len(answers), len(errors))
        assert len(answers) == len(engine.seen) - len(engine.ended)


async def test_an_input_that_is_gone_fails_its_batch(tmp_path: Path) -> None:
    async with _server(tmp_path, FakeEngine()) as server:
        server.batches._closed = True  # begins nothing yet
        batch = await server.begin(_lines(1))
        shown = (await server.store.get(OWNER, batch)).shown
        server.files.path(shown.input_file_id).unlink()
        server.batches._closed = False
        server.batches.begin(batch)
        ended = await server.ended(batch)
        assert ended.status == "failed" and ended.errors is not None
        assert ended.errors.data[0].code == "input_file_missing"


async def test_a_fault_of_the_server_fails_the_batch_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(pause=0.005)
    async with _server(tmp_path, engine) as server:
        ask = Inside.post

        async def broken(self: Inside, path: str, body: bytes, request_id: str) -> Any:
            if len(engine.seen) >= 10:
                raise RuntimeError("planted, with a secret")
            return await ask(self, path, body, request_id)

        monkeypatch.setattr(Inside, "post", broken)
        shown = await server.ended(await server.begin(_lines(40)))
        assert shown.status == "failed" and shown.errors is not None
        assert shown.errors.data[0].code == "server_error" and "secret" not in shown.errors.data[0].message
        assert server.content(shown.output_file_id)


async def test_lines_are_less_urgent_than_requests_where_the_engine_knows_of_urgency(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with _server(tmp_path, engine, priority=1000) as server:
        await server.ended(await server.begin(_lines(2) + _lines(1, priority=5).replace(b"c0", b"own")))
    assert sorted(seen.options.priority for seen in engine.seen) == [1000, 1000, 1005]


async def test_expired_files_and_leftovers_go_and_nothing_else(tmp_path: Path) -> None:
    engine = FakeEngine(pause=60)
    async with _server(tmp_path, engine) as server:
        files = server.files
        batch = await server.begin(_lines(3))
        await _until(lambda: engine.running == 3)
        read = (await server.store.get(OWNER, batch)).shown.input_file_id
        await server.service.database.run(
            lambda db: db.execute(FILES.update().where(FILES.c.id == read).values(expires_at=int(server.now) + 10))
        )
        upload = files.folder / "upload"
        with upload.open("rb") as content:
            brief = await files.add(OWNER, "brief", "batch", content, 1, 10)
        with upload.open("rb") as content:
            lasting = await files.add(OWNER, "lasting", "batch", content, 1, None)
        fresh, stale = files.folder / "file-fresh.part", files.folder / "file-stale.part"
        half_done = files.path(outputs_of(batch)[0])
        for path, age in ((fresh, 0), (stale, 7200), (half_done, 7200), (files.folder / "notes", 7200)):
            path.write_bytes(b"x")
            os.utime(path, (server.now - age, server.now - age))
        server.now += 20
        await files.sweep()
        here = {path.name for path in files.folder.iterdir()}
        assert here >= {read, lasting.id, fresh.name, half_done.name, "notes"}
        assert not here & {brief.id, stale.name}
        assert [file.id for file in (await files.list(OWNER, None, 10, None, ascending=True))[0]] == [lasting.id]


async def test_an_owner_may_have_so_many_batches_that_are_not_finished(tmp_path: Path) -> None:
    engine = FakeEngine(pause=60)
    async with _server(tmp_path, engine) as server:
        for _ in range(10):
            await server.begin(_lines(1))
        with pytest.raises(Exception, match="10 batches are not finished"):
            await server.begin(_lines(1))
        await server.service.database.run(lambda db: db.execute(BATCHES.update().values(status="completed")))
        await server.begin(_lines(1))


SERVE = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from server_fake import FakeEngine
from octavo.server import ServerSettings, serve
from octavo.server.transport.database import Database

folder = Path({folder!r})
settings = ServerSettings(
    database=Database.file(folder / "server.db"), files_dir=folder / "files", batch_lines_in_flight=4, drain_seconds=1
)

class Counting(FakeEngine):
    async def generate(self, prompt, params, **more):
        async for item in super().generate(prompt, params, **more):
            yield item
            if item.outputs[0].finish_reason:
                with open(folder / "ran", "a") as ran:
                    ran.write(self.tokenizer.decode(prompt) + "\\n")

serve(Counting(pause={pause}), port=0, settings=settings)
"""


def _started(folder: Path, pause: float) -> tuple[subprocess.Popen[str], openai.OpenAI]:
    tests = str(Path(__file__).parents[1])
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(tests=tests, folder=str(folder), pause=pause)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    url = next(line.split()[-1] for line in child.stdout if "ready at" in line)
    return child, openai.OpenAI(base_url=url, api_key="k", max_retries=0)


def test_a_server_that_is_killed_goes_on_with_its_batch_when_it_is_started_again(tmp_path: Path) -> None:
    child, client = _started(tmp_path, 0.01)
    try:
        file = client.files.create(file=("in.jsonl", _lines(60)), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        journal = tmp_path / "files" / "batches" / f"{batch.id}.answers"
        deadline = time.monotonic() + 30
        while not journal.exists() or journal.read_bytes().count(b"\n") < 20:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        client.close()
        child.send_signal(signal.SIGKILL)
        child.wait()
    kept = {json.loads(line)["custom_id"] for line in journal.read_bytes().split(b"\n")[:-1]}
    assert 20 <= len(kept) < 60
    (tmp_path / "ran").rename(tmp_path / "ran-first")

    child, client = _started(tmp_path, 0)
    try:
        deadline = time.monotonic() + 30
        while (now := client.batches.retrieve(batch.id)).status != "completed":
            assert now.status in ("in_progress", "finalizing") and time.monotonic() < deadline
            time.sleep(0.01)
        answers = [json.loads(line) for line in client.files.content(now.output_file_id or "").text.splitlines()]
    finally:
        client.close()
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(60)
        finally:
            child.kill()
    assert sorted(answer["custom_id"] for answer in answers) == sorted(f"c{i}" for i in range(60))
    again = (tmp_path / "ran").read_text().split()
    assert sorted(again) == sorted(f"p{i}" for i in range(60) if f"c{i}" not in kept)
