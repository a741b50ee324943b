"""The store of responses, over the server's database; conversations are in ``conversation_store.py``.

A background response is stored when it is accepted and runs under a lease, which the process that runs it renews. A
lease that has run out means that this process is no more, so whoever reads the response next finds it failed.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import msgspec
import sqlalchemy as sql
from msgspec import structs
from sqlalchemy import Connection

from octavo.errors import ObjectNotFound, RequestError
from octavo.server.responses import item_rows
from octavo.server.responses.item_rows import Page
from octavo.server.responses.items import Item
from octavo.server.responses.replies import RUNNING, ResponseError, ResponseObject
from octavo.server.responses.retention import Retention
from octavo.server.responses.tables import RESPONSES, belongs
from octavo.server.transport.database import Database

T = TypeVar("T")

Key: TypeAlias = tuple[str, str]
"""Owner and id."""

LEASE_SECONDS = 15.0
SWEEP_SECONDS = 60.0

INTERRUPTED = ResponseError("server_error", "The server stopped before the response was finished.")

_decode = msgspec.json.Decoder(ResponseObject).decode
_encode = msgspec.json.Encoder().encode


def not_found(id: str) -> ObjectNotFound:
    """For a response that is not kept, or is another owner's: one does not learn which."""
    return ObjectNotFound(f"Response with id {id[:200]!r} not found.")


@dataclass(frozen=True)
class _Kept:
    """A row. ``answer`` has no output: that is among the items."""

    status: str
    previous: str | None
    answer: ResponseObject


class ResponseStore:
    """What owners have stored. ``clock`` is Unix time."""

    def __init__(self, database: Database, retention: Retention, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self.clock = clock
        self._retention = retention
        self._swept = float("-inf")
        self._written = 0

    async def write(self, work: Callable[[Connection], tuple[T, int]]) -> T:
        """``work`` in a transaction; it returns a result and how many bytes it has added. Sweeps where it is time."""
        now = self.clock()

        def with_sweep(connection: Connection) -> T:
            result, added = work(connection)
            self._written += added
            if now - self._swept >= SWEEP_SECONDS or self._written > self._retention.slack:
                self._settle_all(connection)
                self._retention.sweep(connection, now)
                self._swept, self._written = now, 0
            return result

        return await self.database.run(with_sweep)

    # Writing

    async def insert(
        self, owner: str, response: ResponseObject, inputs: Sequence[Item], *, streams: bool = False
    ) -> None:
        """Store a response. Raises RequestError if its id is taken."""
        await self.write(lambda connection: (None, self.add(connection, owner, response, inputs, streams=streams)))

    def add(
        self,
        connection: Connection,
        owner: str,
        response: ResponseObject,
        inputs: Sequence[Item],
        *,
        streams: bool = False,
    ) -> int:
        """`insert` within a transaction; returns the size."""
        if connection.scalar(sql.select(RESPONSES.c.id).where(belongs(RESPONSES, owner, response.id))) is not None:
            raise RequestError(f"There is a response with id {response.id!r} already.", param="request_id")
        answer = _encode(structs.replace(response, output=[]))
        items = [(item, False) for item in inputs] + [(item, True) for item in response.output]
        size = len(answer) + item_rows.write(connection, owner, response.id, items)
        connection.execute(
            sql.insert(RESPONSES).values(
                owner=owner,
                id=response.id,
                created=self.clock(),
                status=response.status,
                lease=self.clock() + LEASE_SECONDS if response.status in RUNNING else None,
                streams=streams,
                previous=response.previous_response_id,
                answer=answer,
                bytes=size,
            )
        )
        return size

    def settle(self, connection: Connection, owner: str, response: ResponseObject, events: bytes | None) -> int | None:
        """The end of a running response; returns the size added, None if it runs no more: cancelled, or deleted."""
        size = connection.scalar(
            sql.select(RESPONSES.c.bytes).where(belongs(RESPONSES, owner, response.id), RESPONSES.c.status.in_(RUNNING))
        )
        if size is None:
            return None
        answer = _encode(structs.replace(response, output=[]))
        kept = None if events is None else zlib.compress(events)
        added = item_rows.write(connection, owner, response.id, [(item, True) for item in response.output])
        added += len(answer) + len(kept or b"")
        connection.execute(
            sql.update(RESPONSES)
            .where(belongs(RESPONSES, owner, response.id))
            .values(status=response.status, lease=None, answer=answer, events=kept, bytes=size + added)
        )
        return added

    async def begin(self, owner: str, response: ResponseObject) -> None:
        """A queued response is in progress."""

        def work(connection: Connection) -> None:
            connection.execute(
                sql.update(RESPONSES)
                .where(belongs(RESPONSES, owner, response.id), RESPONSES.c.status.in_(RUNNING))
                .values(status=response.status, answer=_encode(structs.replace(response, output=[])))
            )

        await self.database.run(work)

    async def renew(self, keys: Iterable[Key]) -> set[Key]:
        """Renew the leases of running responses; returns those that run no more: cancelled or deleted elsewhere."""
        keys = list(keys)

        def work(connection: Connection) -> set[Key]:
            return {
                (owner, name)
                for owner, name in keys
                if not connection.execute(
                    sql.update(RESPONSES)
                    .where(belongs(RESPONSES, owner, name), RESPONSES.c.status.in_(RUNNING))
                    .values(lease=self.clock() + LEASE_SECONDS)
                ).rowcount
            }

        return await self.database.run(work)

    async def cancel(self, owner: str, id: str) -> ResponseObject:
        """Cancel a background response; one that has ended stays as it is. Raises ObjectNotFound, RequestError."""

        def work(connection: Connection) -> ResponseObject:
            response = self._get(connection, owner, id)
            if not response.background:
                raise RequestError(
                    f"The response {id!r} cannot be cancelled: it was not made with 'background': true.",
                    code="invalid_value",
                )
            if response.status in RUNNING:
                response = structs.replace(response, status="cancelled")
                self.settle(connection, owner, response, None)
            return response

        return await self.database.run(work)

    async def delete(self, owner: str, id: str) -> None:
        """Forget a response. Raises ObjectNotFound."""

        def work(connection: Connection) -> None:
            if not connection.execute(sql.delete(RESPONSES).where(belongs(RESPONSES, owner, id))).rowcount:
                raise not_found(id)
            item_rows.delete(connection, owner, id)

        await self.database.run(work)

    # Reading

    async def get(self, owner: str, id: str) -> ResponseObject:
        """A stored response. Raises ObjectNotFound."""
        return await self.database.run(lambda connection: self._get(connection, owner, id))

    def _get(self, connection: Connection, owner: str, id: str) -> ResponseObject:
        row = self._row(connection, owner, id)
        if row is None:
            raise not_found(id)
        output = [item for item, is_output in item_rows.read(connection, owner, id) if is_output]
        return structs.replace(row.answer, output=output)

    async def events(self, owner: str, id: str) -> tuple[ResponseObject, bytes]:
        """A stored response with its events; without, if it was ended by others than who ran it. Raises
        ObjectNotFound, and RequestError if its events were not to be kept.
        """

        def work(connection: Connection) -> tuple[ResponseObject, bytes]:
            response = self._get(connection, owner, id)
            row = connection.execute(
                sql.select(RESPONSES.c.streams, RESPONSES.c.events).where(belongs(RESPONSES, owner, id))
            ).one()
            if not row.streams:
                raise RequestError(
                    f"The response {id!r} cannot be streamed: it was not made with 'background': true and "
                    "'stream': true.",
                    param="stream",
                    code="invalid_value",
                )
            return response, b"" if row.events is None else zlib.decompress(row.events)

        return await self.database.run(work)

    async def inputs(self, owner: str, id: str, page: Page) -> tuple[list[Item], bool]:
        """A page of a response's input, and whether there is more. Raises ObjectNotFound."""

        def work(connection: Connection) -> tuple[list[Item], bool]:
            if self._row(connection, owner, id) is None:
                raise not_found(id)
            return item_rows.page(connection, owner, id, page, inputs_only=True)

        return await self.database.run(work)

    async def history(self, owner: str, id: str) -> list[Item]:
        """All items that a response stands on, and its own. Raises RequestError if one of its chain is not kept."""

        def work(connection: Connection) -> list[Item]:
            chain: list[list[Item]] = []
            at: str | None = id
            while at is not None:
                row = self._row(connection, owner, at)
                if row is None:
                    before = "" if at == id else f", on which {id!r} stands"
                    raise RequestError(
                        f"Previous response with id {at[:200]!r}{before} not found.",
                        param="previous_response_id",
                        code="previous_response_not_found",
                    )
                if at == id and row.status not in ("completed", "incomplete"):
                    raise RequestError(
                        f"The response {id!r} is {row.status}; only one that is completed or incomplete can be "
                        "continued.",
                        param="previous_response_id",
                        code="invalid_value",
                    )
                items = item_rows.read(connection, owner, at)
                chain.append([i for i, out in items if not out] + [i for i, out in items if out])
                at = row.previous
            return [item for items in reversed(chain) for item in items]

        return await self.database.run(work)

    async def find(self, owner: str, ids: Sequence[str]) -> dict[str, Item]:
        """The owner's items of these ids. Raises ObjectNotFound for one that is not kept."""

        def work(connection: Connection) -> dict[str, Item]:
            found: dict[str, Item] = {}
            for name in ids:
                item = item_rows.find(connection, owner, name)
                if item is None:
                    raise ObjectNotFound(
                        f"Item with id {name!r} not found; items of responses that are not stored must be sent whole.",
                        param="input",
                    )
                found[name] = item
            return found

        return await self.database.run(work)

    # Leases

    def _row(self, connection: Connection, owner: str, id: str) -> _Kept | None:
        """A response, which fails if its lease has run out."""
        query = sql.select(RESPONSES.c.status, RESPONSES.c.previous, RESPONSES.c.answer, RESPONSES.c.lease)
        row = connection.execute(query.where(belongs(RESPONSES, owner, id))).one_or_none()
        if row is None:
            return None
        kept = _Kept(row.status, row.previous, _decode(row.answer))
        if kept.status in RUNNING and row.lease < self.clock():
            kept = _Kept("failed", kept.previous, self.fail(connection, owner, kept.answer))
        return kept

    def fail(self, connection: Connection, owner: str, response: ResponseObject) -> ResponseObject:
        """A running response was interrupted."""
        failed = structs.replace(response, status="failed", error=INTERRUPTED, output=[])
        self.settle(connection, owner, failed, None)
        return failed

    def _settle_all(self, connection: Connection) -> None:
        query = sql.select(RESPONSES.c.owner, RESPONSES.c.answer)
        expired = query.where(RESPONSES.c.status.in_(RUNNING), RESPONSES.c.lease < self.clock())
        for row in connection.execute(expired).all():
            self.fail(connection, row.owner, _decode(row.answer))
