"""The store itself: what survives a restart, what is swept, and what becomes of responses whose server is gone."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import openai
import pytest
import sqlalchemy as sql
from msgspec import structs
from server_fake import HELLO, FakeEngine

from octavo.errors import ConfigError, ObjectNotFound
from octavo.server import ServerSettings
from octavo.server.responses.conversation_store import ConversationStore
from octavo.server.responses.item_rows import Page
from octavo.server.responses.items import InputText, Message, OutputText, new_id
from octavo.server.responses.replies import ReasoningConfig, ResponseObject, TextConfig
from octavo.server.responses.retention import Retention
from octavo.server.responses.store import LEASE_SECONDS, ResponseStore
from octavo.server.responses.tables import CONVERSATIONS, ITEMS, RESPONSES
from octavo.server.transport.database import IN_MEMORY, METADATA, Database

DAY = 86400.0


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


def _store(clock: Clock, url: str = IN_MEMORY, *, size: int = 10**6) -> ResponseStore:
    return ResponseStore(Database(url, METADATA), Retention(30 * DAY, size), clock)


def _user(text: str) -> Message:
    return Message(id=new_id("msg"), role="user", content=[InputText(text)])


def _response(status="completed", text: str = "x") -> ResponseObject:
    return ResponseObject(
        id=new_id("resp"),
        created_at=0,
        status=status,
        background=status == "in_progress",
        metadata={},
        model="fake",
        output=[Message(id=new_id("msg"), role="assistant", content=[OutputText(text)])],
        reasoning=ReasoningConfig(),
        store=True,
        temperature=1.0,
        text=TextConfig({"type": "text"}),
        tool_choice="auto",
        tools=[],
        top_p=1.0,
    )


async def _bytes(store: ResponseStore) -> int:
    def count(connection) -> int:
        return sum(
            connection.scalar(sql.select(sql.func.coalesce(sql.func.sum(table.c.bytes), 0)))
            for table in (RESPONSES, CONVERSATIONS)
        )

    return await store.database.run(count)


async def _rows(store: ResponseStore, table: sql.Table) -> int:
    return await store.database.run(lambda c: c.scalar(sql.select(sql.func.count()).select_from(table)))


def test_a_restart_keeps_everything(serve_with, tmp_path: Path) -> None:
    settings = ServerSettings(database=Database.file(tmp_path / "new" / "server.db"))
    with serve_with(FakeEngine(), settings) as served:
        with openai.OpenAI(base_url=served.url, api_key="k", max_retries=0) as client:
            conversation = client.conversations.create(metadata={"a": "b"})
            made = client.responses.create(model="fake", input="Hi", conversation=conversation.id)
            streamed = list(client.responses.create(model="fake", input="Hi", background=True, stream=True))
    engine = FakeEngine()
    with serve_with(engine, settings) as served:
        with openai.OpenAI(base_url=served.url, api_key="k", max_retries=0) as client:
            assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
            assert client.conversations.retrieve(conversation.id) == conversation
            assert list(client.responses.retrieve(streamed[0].response.id, stream=True)) == streamed
            client.responses.create(model="fake", input="And?", previous_response_id=made.id)
            assert engine.seen[-1].text == "user:Hi|assistant:Hello, world!|user:And?|assistant:"
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "server.db").stat().st_mode & 0o777 == 0o600


def test_a_server_that_stops_fails_what_it_runs(serve_with, tmp_path: Path) -> None:
    settings = ServerSettings(database=Database.file(tmp_path / "server.db"))
    with serve_with(FakeEngine(script=(HELLO,) * 10_000, pause=0.01), settings) as served:
        made = served.respond(background=True, stream=False).json["id"]
        streamed = served.request("POST", "/v1/responses", {"input": "Hi", "background": True, "request_id": "s"})
        assert streamed.status == 200
    with serve_with(FakeEngine(), settings) as served:
        for name in (made, "resp_s"):
            found = served.request("GET", f"/v1/responses/{name}").json
            assert found["status"] == "failed"
            assert found["error"] == {
                "code": "server_error",
                "message": "The server stopped before the response was finished.",
            }


async def test_a_response_whose_server_is_gone_is_found_failed(tmp_path: Path) -> None:
    clock, running = Clock(), _response("in_progress")
    url = Database.file(tmp_path / "server.db")
    store = _store(clock, url)
    await store.insert("me", running, [_user("Hi")], streams=True)
    store.database.close()  # as when the process is killed
    store = _store(clock, url)
    assert (await store.get("me", running.id)).status == "in_progress"  # it may run on another server
    clock.now += LEASE_SECONDS - 1
    assert not await store.renew([("me", running.id)])
    clock.now += LEASE_SECONDS - 1
    assert (await store.get("me", running.id)).status == "in_progress"
    clock.now += 2
    assert (await store.get("me", running.id)).status == "failed"
    assert await store.renew([("me", running.id)]) == {("me", running.id)}
    items, _ = await store.inputs("me", running.id, Page())
    assert len(items) == 1


async def test_a_sweep_fails_those_that_nobody_asks_for() -> None:
    clock, running = Clock(), _response("in_progress")
    store = _store(clock)
    await store.insert("me", running, [])
    clock.now += 100 * DAY
    await store.insert("me", _response(), [])
    assert await _rows(store, RESPONSES) == 1  # failed first, and then too old


async def test_what_is_too_old_goes() -> None:
    clock, old, young = Clock(), _response(), _response()
    store = _store(clock)
    conversations = ConversationStore(store)
    await store.insert("me", old, [_user("Hi")])
    abandoned = await conversations.create("me", {}, [_user("a")])
    used = await conversations.create("me", {}, [_user("b")])
    clock.now += 20 * DAY
    await store.insert("me", young, [_user("Hi")])
    await conversations.add("me", used.id, [_user("c")])
    clock.now += 11 * DAY
    await store.insert("me", _response(), [])
    for gone, name in (
        (store.get("me", old.id), f"Response with id '{old.id}'"),
        (conversations.get("me", abandoned.id), f"Conversation with id '{abandoned.id}'"),
    ):
        with pytest.raises(ObjectNotFound, match=f"{name} not found"):
            await gone
    assert (await store.get("me", young.id)).id == young.id
    assert len(await conversations.items("me", used.id)) == 2
    assert await _rows(store, ITEMS) == 2 + 1 + 2  # of young, the newest, and the used conversation


async def test_the_oldest_goes_where_there_is_too_much() -> None:
    clock = Clock()
    store = _store(clock, size=50_000)
    running = _response("in_progress")
    await store.insert("me", running, [])
    ids = []
    for number in range(60):
        clock.now += 1
        await store.renew([("me", running.id)])
        response = _response(text="x" * 2000)
        ids.append(response.id)
        await store.insert(f"owner {number % 3}", response, [_user("Hi")])
        assert await _bytes(store) <= 50_000
    kept = await store.database.run(lambda c: set(c.scalars(sql.select(RESPONSES.c.id)))) - {running.id}
    assert kept == set(ids[-len(kept) :]) and 10 < len(kept) < 30
    assert (await store.get("me", running.id)).status == "in_progress"


async def test_what_is_deleted_is_served_by_no_name() -> None:
    """Neither a response's input nor its output, and nothing that a conversation held."""
    store, response, said = _store(Clock()), _response(), _user("Hi")
    conversations = ConversationStore(store)
    talk = await conversations.create("me", {}, [_user("a")])
    (held,) = await conversations.items("me", talk.id)
    await store.insert("me", response, [said])
    ids = [said.id, response.output[0].id, held.id]
    assert set(await store.find("me", ids)) == set(ids)
    await store.delete("me", response.id)
    await conversations.delete("me", talk.id)
    for name in ids:
        with pytest.raises(ObjectNotFound, match=f"Item with id '{name}' not found"):
            await store.find("me", [name])
    assert await _rows(store, ITEMS) == 0


@pytest.mark.parametrize("where", ["input", "output", "later output", "events"])
async def test_a_response_counts_all_that_is_kept_of_it(where: str) -> None:
    store, long = _store(Clock()), "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))
    plain, running = _response(), _response("in_progress")
    await store.insert("me", plain, [_user("Hi")])
    before = await _bytes(store)
    if where in ("input", "output"):
        await store.insert("me", _response(text=long if where == "output" else "x"), [_user(long)])
    else:
        await store.insert("me", running, [])
        output = _response(text=long if where == "later output" else "x").output
        ended = structs.replace(running, status="completed", output=output)
        events = long.encode() if where == "events" else None
        await store.database.run(lambda c: store.settle(c, "me", ended, events))
    assert await _bytes(store) - before > len(long)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_says_whether_there_is_more(order) -> None:
    store, response = _store(Clock()), _response()
    await store.insert("me", response, [_user(str(i)) for i in range(4)])
    talk = await ConversationStore(store).create("me", {}, [_user(str(i)) for i in range(4)])
    for limit, more in ((3, True), (4, False), (5, False)):
        found, has_more = await store.inputs("me", response.id, Page(limit, order))
        assert (len(found), has_more) == (min(limit, 4), more)
        found, has_more = await ConversationStore(store).page("me", talk.id, Page(limit, order))
        assert (len(found), has_more) == (min(limit, 4), more)
    first, _ = await store.inputs("me", response.id, Page(1, order))
    rest, has_more = await store.inputs("me", response.id, Page(3, order, first[0].id))
    assert (len(rest), has_more) == (3, False)


async def test_a_conversation_counts_what_it_holds() -> None:
    store = _store(Clock())
    conversations = ConversationStore(store)
    empty = await conversations.create("me", {}, [])
    before = await _bytes(store)
    [item] = await conversations.add("me", empty.id, [_user("x" * 1000)])
    assert await _bytes(store) - before > 1000
    await conversations.delete_item("me", empty.id, item.id)
    assert await _bytes(store) == before


async def test_a_cancelled_response_takes_no_end() -> None:
    store, running = _store(Clock()), _response("in_progress")
    await store.insert("me", running, [])
    assert (await store.cancel("me", running.id)).status == "cancelled"
    late = structs.replace(running, status="completed")
    assert await store.database.run(lambda c: store.settle(c, "me", late, None)) is None
    assert (await store.get("me", running.id)).status == "cancelled"


def test_a_database_that_cannot_be_opened_is_told_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--database") as caught:
        Database("postgresql+nobody://me:secret@host/db", METADATA)
    assert "secret" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--database"):
        Database.file(tmp_path / "file" / "server.db")
    (tmp_path / "damaged.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match="cannot be opened"):
        Database(Database.file(tmp_path / "damaged.db"), METADATA)


async def test_a_transaction_that_is_abandoned_runs_to_its_end(tmp_path: Path) -> None:
    database = Database(Database.file(tmp_path / "server.db"), METADATA)
    loop, begun, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    order: list[str] = []

    def slow(connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(10)
        order.append("slow")

    task = asyncio.create_task(database.run(slow))
    await begun.wait()
    task.cancel()
    other = asyncio.create_task(database.run(lambda connection: order.append("other")))
    await asyncio.sleep(0.05)
    assert not task.done() and not order
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await other
    assert order == ["slow", "other"]


def test_the_file_is_a_plain_sqlite_database(tmp_path: Path) -> None:
    Database(Database.file(tmp_path / "server.db"), METADATA).close()
    with sqlite3.connect(tmp_path / "server.db") as connection:
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    assert {"responses", "conversations", "items"} <= tables


@pytest.mark.parametrize(
    "setting", [{"responses_max_age": 0}, {"responses_max_age": float("nan")}, {"responses_max_bytes": 0}]
)
def test_bounds_that_cannot_be_are_refused(setting) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        ServerSettings(**setting)
