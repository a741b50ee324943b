"""How long and how much is kept: what is too old goes, and the oldest goes when there is too much."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sql
from sqlalchemy import Connection

from octavo.server.responses import item_rows
from octavo.server.responses.replies import RUNNING
from octavo.server.responses.tables import CONVERSATIONS, RESPONSES, belongs

_SLACK = 64
"""Room is made for this part of the bound at a time, so that a full store is not swept at every write."""
_BATCH = 256


@dataclass(frozen=True)
class Retention:
    """``seconds`` since a response was made or a conversation was changed; ``bytes`` of all of them."""

    seconds: float
    bytes: int

    @property
    def slack(self) -> int:
        """So much may be written between two sweeps."""
        return self.bytes // _SLACK

    def sweep(self, connection: Connection, now: float) -> None:
        """Delete what is too old or too much. Running responses stay."""
        self._delete(connection, now - self.seconds)
        excess = self._total(connection) - (self.bytes - self.slack)
        while excess > 0:
            oldest = self._oldest(connection)
            if not oldest:
                return
            for table, owner, name, size in oldest:
                if excess <= 0:
                    return
                _forget(connection, table, owner, name)
                excess -= size

    def _delete(self, connection: Connection, before: float) -> None:
        for table, age in _AGES:
            query = sql.select(table.c.owner, table.c.id).where(age < before, *_idle(table))
            for owner, name in connection.execute(query).all():
                _forget(connection, table, owner, name)

    def _total(self, connection: Connection) -> int:
        return sum(connection.scalar(sql.select(sql.func.sum(table.c.bytes))) or 0 for table, _ in _AGES)

    def _oldest(self, connection: Connection) -> list[tuple[sql.Table, str, str, int]]:
        found = []
        for table, age in _AGES:
            query = sql.select(age, table.c.owner, table.c.id, table.c.bytes).where(*_idle(table))
            rows = connection.execute(query.order_by(age).limit(_BATCH))
            found += [(at, table, owner, name, size) for at, owner, name, size in rows]
        found.sort(key=lambda row: float(row[0]))
        return [(table, owner, name, size) for _, table, owner, name, size in found[:_BATCH]]


_AGES = ((RESPONSES, RESPONSES.c.created), (CONVERSATIONS, CONVERSATIONS.c.updated))


def _idle(table: sql.Table) -> list[sql.ColumnElement[bool]]:
    return [table.c.status.not_in(RUNNING)] if table is RESPONSES else []


def _forget(connection: Connection, table: sql.Table, owner: str, id: str) -> None:
    connection.execute(sql.delete(table).where(belongs(table, owner, id)))
    item_rows.delete(connection, owner, id)
