"""The files of clients: what is known of each in the database, its content in a folder.

A content appears under its name whole or not at all. It is there before its row, and goes after it, so that a row
always has its content; what a crash leaves behind is removed when it is old.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

import sqlalchemy as sql
from msgspec import Struct
from sqlalchemy import Connection, RowMapping

from octavo.errors import ConfigError, ObjectNotFound, RequestError
from octavo.server.batch.journal import sync_folder
from octavo.server.batch.pages import page, sane
from octavo.server.batch.tables import BATCHES, FILES
from octavo.server.transport.database import Database

ENDED = ("completed", "failed", "expired", "cancelled")
"""Statuses that a batch does not leave."""

_LEFTOVER_SECONDS = 3600
_PIECE = 1 << 20


class FileObject(Struct):
    """A file, as the API tells of it."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"
    status_details: None = None


class FileList(Struct):
    """A page of files."""

    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"


class DeletedFile(Struct):
    """Answer of DELETE /v1/files/{id}."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


def new_id(prefix: str) -> str:
    """An id that nobody can guess."""
    return f"{prefix}{uuid.uuid4().hex}"


def outputs_of(batch_id: str) -> tuple[str, str]:
    """The ids of a batch's files: its answers, and its errors. The same each time, so that nothing is made twice."""
    name = batch_id.removeprefix("batch_")
    return f"file-{name}-output", f"file-{name}-error"


class FileStore:
    """All files of all owners. ``folder`` None: a temporary one. ``clock`` is Unix time."""

    def __init__(
        self, database: Database, folder: Path | None, most: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._most = most
        self._clock = clock
        self._given = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @cached_property
    def folder(self) -> Path:
        """Where the contents are. Raises ConfigError if it cannot be made."""
        if self._given is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="octavo-files-")
            return Path(self._temporary.name)
        return _made(self._given)

    @cached_property
    def batches(self) -> Path:
        """Where batches write what they have finished."""
        return _made(self.folder / "batches")

    def path(self, id: str) -> Path:
        """Where the content of a file is. Only for ids that a row has."""
        return self.folder / id

    async def add(
        self, owner: str, filename: str, purpose: str, content: BinaryIO, size: int, seconds: int | None
    ) -> FileObject:
        """Keep a file for ``seconds``. Raises RequestError if the owner has no room for it."""
        await self._database.run(lambda connection: self._check_room(connection, owner, size))
        file_id = new_id("file-")

        def write() -> int:
            part = self.folder / f"{file_id}.part"
            try:
                with part.open("xb") as file:
                    shutil.copyfileobj(content, file, _PIECE)
                    file.flush()
                    os.fsync(file.fileno())
                    written = file.tell()
                part.replace(self.path(file_id))
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            sync_folder(self.folder)
            return written

        written = await asyncio.to_thread(write)
        return await self._register(file_id, owner, filename, purpose, written, seconds)

    async def adopt(self, id: str, owner: str, filename: str, source: Path, seconds: int | None) -> str | None:
        """Make ``source``, an output of a batch, a file with this id. ``None`` if it holds nothing.

        A second call after a crash does what the first did not.
        """

        def move() -> int:
            if source.exists() and source.stat().st_size == 0:
                source.unlink()
            if source.exists():
                source.replace(self.path(id))
                sync_folder(self.folder)
            return self.path(id).stat().st_size if self.path(id).exists() else 0

        size = await asyncio.to_thread(move)
        if not size:
            return None
        if await self._database.run(lambda connection: _row(connection, owner, id)) is None:
            await self._register(id, owner, filename, "batch_output", size, seconds)
        return id

    async def get(self, owner: str, id: str, param: str | None = None) -> FileObject:
        """What is known of a file. Raises ObjectNotFound."""
        row = await self._database.run(lambda connection: _row(connection, owner, id)) if sane(id) else None
        if row is None or (row["expires_at"] is not None and row["expires_at"] <= self._clock()):
            raise ObjectNotFound(f"There is no file with the id {id[:100]!r}.", param=param)
        return _object(row)

    async def list(
        self, owner: str, after: str | None, limit: int, purpose: str | None, *, ascending: bool
    ) -> tuple[list[FileObject], bool]:
        """Files of an owner, and whether there are more."""
        where = [sql.or_(FILES.c.expires_at.is_(None), FILES.c.expires_at > self._clock())]
        if purpose is not None:
            where.append(FILES.c.purpose == purpose if sane(purpose) else sql.false())
        rows, more = await self._database.run(
            lambda connection: page(connection, FILES, owner, after, limit, *where, ascending=ascending)
        )
        return [_object(row) for row in rows], more

    async def delete(self, owner: str, id: str) -> None:
        """Remove a file. Raises ObjectNotFound, and RequestError while a batch reads it."""
        await self.get(owner, id)

        def remove(connection: Connection) -> None:
            reading = sql.select(BATCHES.c.id).where(BATCHES.c.input_file_id == id, BATCHES.c.status.not_in(ENDED))
            batch = connection.execute(reading).scalar()
            if batch is not None:
                raise RequestError(
                    f"The file {id} is the input of {batch}, which is not finished; cancel that first.",
                    code="file_in_use",
                )
            connection.execute(sql.delete(FILES).where(FILES.c.owner == owner, FILES.c.id == id))

        await self._database.run(remove)
        await asyncio.to_thread(self.path(id).unlink, missing_ok=True)

    async def sweep(self) -> None:
        """Remove what has expired, unless a batch still reads it, and what crashes have left."""
        now = self._clock()

        def expired(connection: Connection) -> list[str]:
            reading = sql.select(BATCHES.c.input_file_id).where(BATCHES.c.status.not_in(ENDED))
            old = sql.select(FILES.c.id).where(FILES.c.expires_at <= now, FILES.c.id.not_in(reading))
            ids = list(connection.execute(old).scalars())
            for file_id in ids:
                connection.execute(sql.delete(FILES).where(FILES.c.id == file_id))
            return ids

        def unknown(connection: Connection) -> list[Path]:
            old = [path for path in self.folder.iterdir() if path.is_file() and _age(path, now) > _LEFTOVER_SECONDS]
            known: set[str] = set()
            for path in old:
                known |= set(connection.execute(sql.select(FILES.c.id).where(FILES.c.id == path.name)).scalars())
            running = connection.execute(sql.select(BATCHES.c.id).where(BATCHES.c.status.not_in(ENDED))).scalars()
            known |= {name for batch in running for name in outputs_of(batch)}
            return [path for path in old if path.name.startswith("file-") and path.name not in known]

        gone = [self.path(file_id) for file_id in await self._database.run(expired)]
        gone += await self._database.run(unknown)
        for path in gone:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def close(self) -> None:
        """Remove what was temporary."""
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _register(
        self, id: str, owner: str, filename: str, purpose: str, size: int, seconds: int | None
    ) -> FileObject:
        created = int(self._clock())
        expires = None if seconds is None else created + seconds
        made = FileObject(id, size, created, filename, purpose, expires)
        values = {name: getattr(made, name) for name in ("id", "bytes", "created_at", "filename", "purpose")}
        insert = sql.insert(FILES).values(owner=owner, expires_at=expires, **values)
        await self._database.run(lambda connection: connection.execute(insert))
        return made

    def _check_room(self, connection: Connection, owner: str, size: int) -> None:
        total = sql.select(sql.func.coalesce(sql.func.sum(FILES.c.bytes), 0)).where(FILES.c.owner == owner)
        stored = int(connection.execute(total).scalar_one())
        if stored + size > self._most:
            raise RequestError(
                f"The file has {size} bytes, {stored} are stored, and {self._most} may be; delete files first.",
                param="file",
                code="storage_full",
            )


def _row(connection: Connection, owner: str, id: str) -> RowMapping | None:
    query = sql.select(FILES).where(FILES.c.owner == owner, FILES.c.id == id)
    return connection.execute(query).mappings().first()


def _object(row: RowMapping) -> FileObject:
    return FileObject(row["id"], row["bytes"], row["created_at"], row["filename"], row["purpose"], row["expires_at"])


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder {folder} cannot be made: {error.strerror} (--files-dir)") from error
    return folder
