"""The SQL database behind what the server keeps: responses, conversations, files, batches.

Through SQLAlchemy, so that it is a SQLite file by default and any other database by its URL. Work runs in threads: the
event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import sqlalchemy
from sqlalchemy import URL, Connection, MetaData
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from octavo.errors import ConfigError

METADATA = MetaData()
"""The tables of the server's database. Each module that keeps something declares its own on this."""

T = TypeVar("T")

IN_MEMORY = "sqlite://"
"""Lives as long as the server."""


class Database:
    """One database. Raises ConfigError if it cannot be opened."""

    def __init__(self, url: str, tables: MetaData) -> None:
        self._lock: asyncio.Lock | None = None
        shown = url
        try:
            parsed = sqlalchemy.make_url(url)
            shown = parsed.render_as_string()  # without the password
            self._sqlite = parsed.get_backend_name() == "sqlite"
            in_memory = self._sqlite and parsed.database in (None, "", ":memory:")
            shared = {"poolclass": StaticPool} if in_memory else {}
            connect = {"check_same_thread": False, "timeout": 30} if self._sqlite else {}
            self._engine = sqlalchemy.create_engine(parsed, connect_args=connect, **shared)
            if self._sqlite:
                sqlalchemy.event.listen(self._engine, "connect", _prepare_sqlite)
            tables.create_all(self._engine)
        except (SQLAlchemyError, ImportError) as error:
            raise ConfigError(f"the database {shown!r} cannot be opened: {error} (--database)") from error

    async def run(self, work: Callable[[Connection], T]) -> T:
        """``work`` in one transaction, in a thread: committed if it returns, rolled back if it raises."""

        def transaction() -> T:
            with self._engine.begin() as connection:
                return work(connection)

        if not self._sqlite:
            return await _to_the_end(transaction)
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:  # SQLite has one writer at a time; waiting here costs no thread
            return await _to_the_end(transaction)

    @staticmethod
    def file(path: Path) -> str:
        """The URL of a SQLite file, which is made for its user alone, with its folder, if it is not there.
        Raises ConfigError.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        except OSError as error:
            raise ConfigError(
                f"the database {path} cannot be made: {error.strerror}; choose another (--database)"
            ) from error
        return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


async def _to_the_end(work: Callable[[], T]) -> T:
    """``work`` in a thread. Who is cancelled meanwhile waits for its end: a thread cannot be stopped, and the next
    transaction must not begin beside it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        task.exception()  # nobody is left to be told
        raise


def _prepare_sqlite(connection: object, _record: object) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
