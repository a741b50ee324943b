"""Batches in the database, and as the API tells of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec
import sqlalchemy as sql
from msgspec import Struct
from sqlalchemy import Connection, RowMapping

from octavo.errors import ObjectNotFound, RequestError
from octavo.server.batch.file_store import ENDED
from octavo.server.batch.lines import BadLine
from octavo.server.batch.pages import page, sane
from octavo.server.batch.tables import BATCHES, FILES
from octavo.server.transport.database import Database


class BatchError(Struct):
    """What is wrong with a batch or one of its lines."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None

    @classmethod
    def of(cls, line: BadLine) -> BatchError:
        """A line's."""
        return cls(line.code, line.message, line.param, line.number)


class BatchErrors(Struct):
    """The first of them."""

    data: list[BatchError]
    object: Literal["list"] = "list"


class RequestCounts(Struct):
    """Lines that are not blank."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class CachedTokens(Struct):
    """Of the prompts' tokens."""

    cached_tokens: int = 0


class ReasoningTokens(Struct):
    """Of the output's tokens."""

    reasoning_tokens: int = 0


class BatchUsage(Struct):
    """Tokens of all answers."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class BatchObject(Struct, kw_only=True):
    """A batch, as the API tells of it."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts
    usage: BatchUsage | None = None
    metadata: dict[str, str] | None = None


class BatchList(Struct):
    """A page of batches."""

    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


class Batch(Struct):
    """A batch, as it is run."""

    owner: str
    shown: BatchObject
    output_seconds: int | None
    outcome: str | None
    """Its last status, once no line will run any more."""


class BatchStore:
    """All batches of all owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def insert(self, batch: Batch, most: int) -> None:
        """Store a new one. Raises RequestError if its owner has ``most`` that are not finished."""
        shown = batch.shown
        values = {
            "id": shown.id,
            "owner": batch.owner,
            "endpoint": shown.endpoint,
            "input_file_id": shown.input_file_id,
            "completion_window": shown.completion_window,
            "metadata": None if shown.metadata is None else _text(shown.metadata),
            "output_seconds": batch.output_seconds,
            "status": shown.status,
            "created_at": shown.created_at,
            "expires_at": shown.expires_at,
        }

        def work(connection: Connection) -> None:
            open_ones = sql.select(sql.func.count()).where(
                BATCHES.c.owner == batch.owner, BATCHES.c.status.not_in(ENDED)
            )
            if connection.execute(open_ones).scalar_one() >= most:
                raise RequestError(
                    f"{most} batches are not finished, and no more may be; wait for one, or cancel one.",
                    code="too_many_batches",
                )
            file = sql.select(FILES.c.id).where(FILES.c.owner == batch.owner, FILES.c.id == shown.input_file_id)
            if connection.execute(file).scalar() is None:  # deleted a moment ago
                raise ObjectNotFound(f"There is no file with the id {shown.input_file_id}.", param="input_file_id")
            connection.execute(sql.insert(BATCHES).values(**values))

        await self._database.run(work)

    async def get(self, owner: str, id: str) -> Batch:
        """One of an owner's. Raises ObjectNotFound."""
        query = sql.select(BATCHES).where(BATCHES.c.owner == owner, BATCHES.c.id == id)
        row = None
        if sane(id):
            row = await self._database.run(lambda connection: connection.execute(query).mappings().first())
        if row is None:
            raise ObjectNotFound(f"There is no batch with the id {id[:100]!r}.")
        return _batch(row)

    async def find(self, id: str) -> Batch:
        """One that is known to be there."""
        query = sql.select(BATCHES).where(BATCHES.c.id == id)
        return _batch(await self._database.run(lambda connection: connection.execute(query).mappings().one()))

    async def list(self, owner: str, after: str | None, limit: int) -> tuple[Sequence[Batch], bool]:
        """An owner's, newest first, and whether there are more."""
        rows, more = await self._database.run(lambda connection: page(connection, BATCHES, owner, after, limit))
        return [_batch(row) for row in rows], more

    async def unfinished(self) -> Sequence[str]:
        """Ids of those that are not, oldest first."""
        query = sql.select(BATCHES.c.id).where(BATCHES.c.status.not_in(ENDED)).order_by(BATCHES.c.number)
        return await self._database.run(lambda connection: connection.execute(query).scalars().all())

    async def move(self, id: str, status: str, now: int, *, only_from: Collection[str], **values: Any) -> bool:
        """Give a batch a status, at ``now``, if it has one of ``only_from``. Whether it had."""
        update = (
            sql.update(BATCHES)
            .where(BATCHES.c.id == id, BATCHES.c.status.in_(list(only_from)))
            .values(status=status, **{f"{status}_at": now}, **values)
        )
        return bool(await self._database.run(lambda connection: connection.execute(update).rowcount))

    async def set(self, id: str, **values: Any) -> str:
        """Change what is kept of a batch; returns its status."""
        update = sql.update(BATCHES).where(BATCHES.c.id == id).values(**values)
        query = sql.select(BATCHES.c.status).where(BATCHES.c.id == id)

        def work(connection: Connection) -> str:
            connection.execute(update)
            return str(connection.execute(query).scalar_one())

        return await self._database.run(work)


def errors_text(errors: Sequence[BatchError]) -> str | None:
    """Errors as a row keeps them."""
    return _text(BatchErrors(list(errors))) if errors else None


def usage_text(input: int, cached: int, output: int, reasoning: int) -> str:
    """Usage as a row keeps it."""
    return _text(BatchUsage(input, CachedTokens(cached), output, ReasoningTokens(reasoning), input + output))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_SAME = (
    "id", "endpoint", "input_file_id", "completion_window", "status", "output_file_id", "error_file_id", "created_at",
    "in_progress_at", "expires_at", "finalizing_at", "completed_at", "failed_at", "expired_at", "cancelling_at",
    "cancelled_at",
)  # fmt: skip


def _batch(row: RowMapping) -> Batch:
    shown = BatchObject(
        **{name: row[name] for name in _SAME},
        request_counts=RequestCounts(row["total"], row["completed"], row["failed"]),
        errors=row["errors"] and msgspec.json.decode(row["errors"], type=BatchErrors),
        usage=row["usage"] and msgspec.json.decode(row["usage"], type=BatchUsage),
        metadata=row["metadata"] and msgspec.json.decode(row["metadata"]),
    )
    return Batch(row["owner"], shown, row["output_seconds"], row["outcome"])
