"""Background responses: they run whether or not anybody listens, and who listens may come late and come again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from octavo.server.generation.logprobs import TokenNames
from octavo.server.responses.job import ResponseJob, Stores
from octavo.server.responses.making import converse, encoded, made, writer_of
from octavo.server.responses.replies import RUNNING, Event, ResponseObject, response_usage
from octavo.server.responses.store import LEASE_SECONDS, Key
from octavo.server.responses.writer import Writer
from octavo.server.transport.errors import failure_of
from octavo.server.transport.sse import event

logger = logging.getLogger("octavo.server")

_POLL_SECONDS = 0.5
CANCELLED = ("response_cancelled", "The response was cancelled.")
DELETED = ("response_deleted", "The response was deleted.")
STOPPED = ("server_stopped", "The server is stopping.")


class Live:
    """A response that runs here. ``events`` are numbered by their place."""

    def __init__(self, job: ResponseJob, writer: Writer) -> None:
        self.job = job
        self.writer = writer
        self.events: list[bytes] = []
        self.over = False
        self.task: asyncio.Task[None] | None = None
        self.verdict = STOPPED
        """Why it is being cancelled, if it is."""
        self._changed = asyncio.Event()

    def add(self, events: list[Event]) -> None:
        """What has happened."""
        if self.job.stream and events:
            self.events += [event(one, one.type) for one in events]
            self._wake()

    def end(self) -> None:
        """Nothing more will happen."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self, after: int) -> AsyncGenerator[bytes, None]:
        """Events with numbers above ``after``, those that have come and those to come."""
        at = after + 1
        while True:
            changed = self._changed
            if at < len(self.events):
                data, at = b"".join(self.events[at:]), len(self.events)
                yield data
            elif self.over:
                return
            else:
                await changed.wait()


class Background:
    """All that run in this process."""

    def __init__(self, stores: Stores, names: TokenNames) -> None:
        self._stores = stores
        self._names = names
        self._live: dict[Key, Live] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def start(self, job: ResponseJob, request_id: str) -> Live:
        """Store the response as queued, and let it run. Raises RequestError if its id is taken."""
        live = Live(job, writer_of(job, self._names))
        events = live.writer.lifecycle("created", "queued", status="queued")
        await self._stores.responses.insert(job.owner, job.response, job.inputs, streams=job.stream)
        live.add(events)
        key = (job.owner, job.response.id)
        self._live[key] = live
        live.task = asyncio.create_task(self._run(key, live, request_id))
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())
        return live

    def find(self, owner: str, id: str) -> Live | None:
        """The response, if it runs here."""
        return self._live.get((owner, id))

    async def cancel(self, owner: str, id: str) -> ResponseObject:
        """Cancel a response, wherever it runs. Raises ObjectNotFound, and RequestError if it is no background one."""
        response = await self._stores.responses.cancel(owner, id)
        if response.status == "cancelled":
            await self._stop((owner, id), CANCELLED)
        return response

    async def delete(self, owner: str, id: str) -> None:
        """Delete a response, which ends it. Raises ObjectNotFound."""
        await self._stores.responses.delete(owner, id)
        await self._stop((owner, id), DELETED)

    async def close(self) -> None:
        """End all that run, as interrupted."""
        if self._renewing is not None:
            self._renewing.cancel()
        lives = dict(self._live)
        for key in lives:
            await self._stop(key, STOPPED)

        def work(connection: Connection) -> None:
            for (owner, _), live in lives.items():
                self._stores.responses.fail(connection, owner, live.writer.response)

        if lives:
            await self._stores.responses.database.run(work)

    async def _stop(self, key: Key, verdict: tuple[str, str]) -> None:
        live = self._live.get(key)
        if live is None or live.task is None:
            return
        live.verdict = verdict
        live.task.cancel()
        await asyncio.wait([live.task])

    async def _run(self, key: Key, live: Live, request_id: str) -> None:
        try:
            await self._make(live, request_id)
        except asyncio.CancelledError:
            live.add([live.writer.error(*live.verdict)])
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: the log and the listeners learn of it
            failure = failure_of(error, request_id)
            live.add([live.writer.error(failure.code, failure.message, failure.param)])
        finally:
            del self._live[key]
            live.end()

    async def _make(self, live: Live, request_id: str) -> None:
        job, writer = live.job, live.writer
        begun = False
        try:
            async with aclosing(made(job, writer)) as stream:
                async for events in stream:
                    if not begun:
                        begun = True
                        live.add(writer.lifecycle("in_progress", status="in_progress"))
                        await self._stores.responses.begin(job.owner, writer.response)
                    live.add(events)
        except Exception as error:  # noqa: BLE001 - the client learns of it from the response
            writer.fail(failure_of(error, request_id), response_usage(job.turn.usage))
        last = writer.end()
        if await self._settle(live, last):
            live.add([last])
        else:
            live.add([writer.error(*CANCELLED)])

    async def _settle(self, live: Live, last: Event) -> bool:
        """Store the end of a response; False if it was cancelled or deleted meanwhile."""
        job, response, stores = live.job, live.writer.response, self._stores
        events = b"".join(live.events) + encoded([last]) if job.stream else None

        def work(connection: Connection) -> tuple[bool, int]:
            added = stores.responses.settle(connection, job.owner, response, events)
            if added is None:
                return False, 0
            return True, added + converse(connection, job, response, stores)

        return await stores.responses.write(work)

    async def _renew(self) -> None:
        """Renew the leases while anything runs, and end what was cancelled through another server."""
        while self._live:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                ended = await self._stores.responses.renew(list(self._live))
            except SQLAlchemyError:  # the next time may be in time; if not, readers find the responses failed
                logger.exception("the leases of background responses could not be renewed")
                continue
            for key in ended:
                await self._stop(key, CANCELLED)


async def replayed(
    background: Background, stores: Stores, owner: str, id: str, after: int
) -> AsyncGenerator[bytes, None]:
    """The events of a background response with numbers above ``after``. Raises ObjectNotFound, and RequestError if
    it was not made to be streamed.
    """
    response, events = await stores.responses.events(owner, id)
    live = background.find(owner, id)
    while live is None and response.status in RUNNING:  # on another server, over the same database
        await asyncio.sleep(_POLL_SECONDS)
        response, events = await stores.responses.events(owner, id)
        live = background.find(owner, id)
    if live is not None:
        async with aclosing(live.follow(after)) as stream:
            async for data in stream:
                yield data
        return
    kept = [one + b"\n\n" for one in events.split(b"\n\n")[:-1]]
    if kept:
        yield b"".join(kept[after + 1 :])
        return
    # Whoever ran it is gone, or it was cancelled: how it ended is all that is known.
    first = [Event(type="response.created", sequence_number=0, response=response)] if after < 0 else []
    number = after + 1 + len(first)
    code, message = CANCELLED
    ended = Event(type="error", sequence_number=number, code=code, message=message, param=None)
    if response.status != "cancelled":
        ended = Event(type=f"response.{response.status}", sequence_number=number, response=response)
    yield encoded([*first, ended])
