"""The tables of responses and conversations. Everything has an owner; no query leaves it out."""

from __future__ import annotations

import sqlalchemy as sql
from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, LargeBinary, String, Table

from octavo.server.transport.database import METADATA

_BYTES = LargeBinary(2**30)  # the databases that have several sizes of it choose by this
_OWNER = String(64)
_LONGEST = 200
_ID = String(_LONGEST)

RESPONSES = Table(
    "responses",
    METADATA,
    Column("owner", _OWNER, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("created", Double, nullable=False),
    Column("status", String(16), nullable=False),
    Column("lease", Double),  # until when a running one is sure to run; see `store.ResponseStore.renew`
    Column("streams", Boolean, nullable=False),  # whether its events are kept
    Column("previous", _ID),
    Column("answer", _BYTES, nullable=False),  # the response as JSON, without its output
    Column("events", _BYTES),
    Column("bytes", BigInteger, nullable=False),  # of the response, its items and its events
    Index("responses_by_age", "created", "bytes"),
)

CONVERSATIONS = Table(
    "conversations",
    METADATA,
    Column("owner", _OWNER, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Column("metadata", _BYTES, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Index("conversations_by_age", "updated", "bytes"),
)

ITEMS = Table(
    "items",
    METADATA,
    Column("owner", _OWNER, primary_key=True),
    Column("holder", _ID, primary_key=True),  # the response or conversation that it is in
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("id", _ID, nullable=False),
    Column("output", Boolean, nullable=False),
    Column("item", _BYTES, nullable=False),
    Index("items_by_id", "owner", "id"),
)


def named(column: Column[str], name: str) -> sql.ColumnElement[bool]:
    """Whether the column has this name. What no name is made of is asked of no database: some fail on it."""
    return column == name if name.isprintable() and len(name) <= _LONGEST else sql.false()


def belongs(table: Table, owner: str, id: str) -> sql.ColumnElement[bool]:
    """The row of this owner and id."""
    return sql.and_(table.c.owner == owner, named(table.c.id, id))


def held(owner: str, holder: str) -> sql.ColumnElement[bool]:
    """The items of one response or conversation."""
    return sql.and_(ITEMS.c.owner == owner, named(ITEMS.c.holder, holder))
