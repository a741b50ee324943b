"""Lines through the app itself: bounded, stopped, and taken up again."""

from __future__ import annotations

import asyncio
import gc
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_fake import FakeEngine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.errors import EngineDead, QueueFull
from octavo.server import create_app
from octavo.server.batch.inside import Inside, endpoints_of
from octavo.server.batch.journal import Journal
from octavo.server.batch.lines import Line, LineReader, Rules
from octavo.server.batch.runner import LineRunner
from octavo.server.transport.owner import owner_of


def _file(count: int, **body: Any) -> bytes:
    lines = (
        {"custom_id": f"c{i}", "url": "/v1/completions", "body": {"prompt": f"p{i}", **body}} for i in range(count)
    )
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


class Watched(FakeEngine):
    """Knows how many ran at most."""

    most = 0

    def _note(self, running: int, ended: str | None = None) -> None:
        super()._note(running, ended)
        self.most = max(self.most, self.running)


async def _until(check: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if check():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never happened")


class Bench:
    """A fake engine, its app, and runs over one journal."""

    def __init__(self, folder: Path, data: bytes) -> None:
        self.engine = Watched()
        self.app = create_app(self.engine)
        self.folder, self.data = folder, data

    def runner(self, slots: int = 4, changed: Callable[[], None] = lambda: None) -> tuple[LineRunner, Journal]:
        journal = Journal(self.folder / "out", self.folder / "err", "run")
        reader = LineReader(io.BytesIO(self.data), Rules(endpoints_of(self.app)))
        return LineRunner(reader, journal, Inside(self.app), asyncio.Semaphore(slots), changed), journal

    def lines(self, name: str = "out") -> list[Any]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_every_line_is_answered_as_a_client_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(20))
    runner, journal = bench.runner()
    assert await runner.run()
    journal.close()
    assert sorted(seen.text for seen in bench.engine.seen) == sorted(f"p{i}" for i in range(20))
    assert {line["custom_id"] for line in bench.lines()} == {f"c{i}" for i in range(20)}
    body = bench.lines()[0]["response"]["body"]
    assert body["choices"][0]["text"] == "Hello, world!" and body["object"] == "text_completion"
    assert bench.lines()[0]["response"]["request_id"] == bench.lines()[0]["id"]
    assert journal.tokens.output == 20 * 5


async def test_no_more_lines_are_in_flight_than_there_are_slots(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(40))
    runner, journal = bench.runner(slots=3)
    await runner.run()
    journal.close()
    assert bench.engine.most == 3


async def test_of_a_long_file_only_the_lines_at_hand_are_held(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(1200))
    bench.engine.script = bench.engine.script[:1]
    most = ended = 0

    def count() -> None:
        nonlocal most, ended
        ended += 1
        if ended % 100 == 0:
            most = max(most, sum(type(thing) is Line for thing in gc.get_objects()))

    runner, journal = bench.runner(changed=count)
    assert await runner.run()
    journal.close()
    assert len(bench.lines()) == ended == 1200
    assert 0 < most <= 256 + 4


async def test_what_the_server_refuses_is_an_error_of_its_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(3) + _file(1, temperature=-1).replace(b"c0", b"bad"))
    runner, journal = bench.runner()
    assert await runner.run()
    journal.close()
    (bad,) = bench.lines("err")
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("bad", 400)
    assert bad["response"]["body"]["error"]["param"] == "temperature"
    assert len(bench.lines()) == 3


async def test_an_engine_that_fails_at_one_line_is_that_lines_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(2))
    bench.engine.fail_at = 1
    runner, journal = bench.runner()
    assert await runner.run()
    journal.close()
    assert [line["response"]["status_code"] for line in bench.lines("err")] == [500, 500]
    assert "secret" not in json.dumps(bench.lines("err"))


async def test_a_dead_engine_ends_the_run_and_no_line_is_taken_for_finished(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(50))
    bench.engine.fail_at, bench.engine.error = 0, EngineDead("gone")
    bench.engine.dead = EngineDead("gone")
    runner, journal = bench.runner()
    with pytest.raises(EngineDead, match="were not run"):
        await runner.run()
    journal.close()
    assert bench.lines() == [] and bench.lines("err") == []
    assert len(bench.engine.seen) <= 5


async def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(2))
    bench.engine.fail_at, bench.engine.error = 0, QueueFull("full")
    runner, journal = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: len(bench.engine.ended) == 2)
    bench.engine.fail_at = None
    assert await running
    journal.close()
    assert len(bench.lines()) == 2 and bench.lines("err") == []
    assert len(bench.engine.seen) == 4


async def test_stopped_it_finishes_what_runs_and_a_later_run_does_the_rest_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(30))
    bench.engine.pause = 0.01
    runner, journal = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: len(bench.engine.seen) >= 10)
    assert runner.running == 4
    runner.stop()
    assert not await running
    journal.close()
    assert len(bench.lines()) == len(bench.engine.seen) < 30
    assert bench.engine.ended == []
    runner, journal = bench.runner()
    assert await runner.run()
    journal.close()
    assert sorted(seen.text for seen in bench.engine.seen) == sorted(f"p{i}" for i in range(30))
    assert sorted(line["custom_id"] for line in bench.lines()) == sorted(f"c{i}" for i in range(30))


async def test_cancelled_it_ends_what_runs_and_those_lines_run_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(10))
    bench.engine.pause = 60
    runner, journal = bench.runner()
    running = asyncio.create_task(runner.run())
    await _until(lambda: bench.engine.running == 4)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    journal.close()
    assert bench.engine.running == 0 and len(bench.engine.ended) == 4
    bench.engine.pause = 0
    runner, journal = bench.runner()
    assert await runner.run()
    journal.close()
    assert len(bench.lines()) == 10


async def test_the_rest_can_be_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, _file(3) + b"nonsense\n")
    runner, journal = bench.runner()
    await runner.refuse_rest("batch_expired", "Too late.")
    journal.close()
    assert [line["error"]["code"] for line in bench.lines("err")] == ["batch_expired"] * 3 + ["invalid_json_line"]
    assert bench.engine.seen == []


async def test_a_line_is_run_for_its_owner(tmp_path: Path) -> None:
    async def whose(request: Request) -> Response:
        return Response(json.dumps({"owner": owner_of(request)}), media_type="application/json")

    app = Starlette(routes=[Route("/v1/completions", whose, methods=["POST"])])
    reply = await Inside(app, "somebody").post("/v1/completions", b"{}", "id")
    assert json.loads(reply.body) == {"owner": "somebody"}
