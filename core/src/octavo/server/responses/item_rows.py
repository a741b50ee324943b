"""Items in the database: written, listed by pages, found. Each function works within a caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sql
from sqlalchemy import Connection

from octavo.errors import RequestError
from octavo.server.responses.items import Item, decode_item, encode_item
from octavo.server.responses.tables import ITEMS, held, named


@dataclass(frozen=True)
class Page:
    """Which part of a list."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def write(connection: Connection, owner: str, holder: str, items: Sequence[tuple[Item, bool]]) -> int:
    """Append items, each with whether it is output. Returns their size in bytes."""
    if not items:
        return 0
    last = connection.scalar(sql.select(sql.func.max(ITEMS.c.position)).where(held(owner, holder)))
    first = 0 if last is None else last + 1
    rows: list[dict[str, Any]] = [
        {
            "owner": owner,
            "holder": holder,
            "position": first + number,
            "id": item.id,
            "output": output,
            "item": encode_item(item),
        }
        for number, (item, output) in enumerate(items)
    ]
    connection.execute(sql.insert(ITEMS), rows)
    return sum(len(row["item"]) for row in rows)


def read(connection: Connection, owner: str, holder: str) -> list[tuple[Item, bool]]:
    """All items in order, each with whether it is output."""
    query = sql.select(ITEMS.c.item, ITEMS.c.output).where(held(owner, holder)).order_by(ITEMS.c.position)
    return [(decode_item(row.item), row.output) for row in connection.execute(query)]


def page(
    connection: Connection, owner: str, holder: str, which: Page, *, inputs_only: bool = False
) -> tuple[list[Item], bool]:
    """A page of items, and whether there are more behind it. Raises RequestError for an ``after`` that is not there."""
    where = [held(owner, holder)]
    if inputs_only:
        where.append(ITEMS.c.output.is_(False))
    rising = which.order == "asc"
    if which.after is not None:
        at = connection.scalar(sql.select(ITEMS.c.position).where(*where, named(ITEMS.c.id, which.after)))
        if at is None:
            raise RequestError(f"'after' is {which.after!r}, which is not in the list.", param="after")
        where.append(ITEMS.c.position > at if rising else ITEMS.c.position < at)
    order = ITEMS.c.position.asc() if rising else ITEMS.c.position.desc()
    query = sql.select(ITEMS.c.item).where(*where).order_by(order).limit(which.limit + 1)
    found = [decode_item(row.item) for row in connection.execute(query)]
    return found[: which.limit], len(found) > which.limit


def find(connection: Connection, owner: str, id: str) -> Item | None:
    """The owner's item of this id, wherever it is held: copies are the same."""
    data = connection.scalar(sql.select(ITEMS.c.item).where(ITEMS.c.owner == owner, named(ITEMS.c.id, id)).limit(1))
    return None if data is None else decode_item(data)


def delete(connection: Connection, owner: str, holder: str) -> None:
    """All items of a response or conversation."""
    connection.execute(sql.delete(ITEMS).where(held(owner, holder)))


def find_in(connection: Connection, owner: str, holder: str, id: str) -> Item | None:
    """The item of this id that a response or conversation holds."""
    data = connection.scalar(sql.select(ITEMS.c.item).where(held(owner, holder), named(ITEMS.c.id, id)))
    return None if data is None else decode_item(data)


def delete_in(connection: Connection, owner: str, holder: str, id: str) -> int | None:
    """Delete one item; its size, or None if it is not there."""
    where = (held(owner, holder), named(ITEMS.c.id, id))
    data = connection.scalar(sql.select(ITEMS.c.item).where(*where))
    if data is None:
        return None
    connection.execute(sql.delete(ITEMS).where(*where))
    return len(data)
