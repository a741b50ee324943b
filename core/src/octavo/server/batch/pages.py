"""Lists in pages, as the API has them: newest first, after an object that the client has seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sql
from sqlalchemy import Connection, RowMapping, Table

from octavo.errors import RequestError


class _Shown(Protocol):
    @property
    def id(self) -> str: ...


_SANE = re.compile(r"[A-Za-z0-9_-]{1,80}")


def sane(text: str) -> bool:
    """Whether a client's word can be an id of ours; only such words are put to the database."""
    return _SANE.fullmatch(text) is not None


def page(
    connection: Connection,
    table: Table,
    owner: str,
    after: str | None,
    limit: int,
    *where: sql.ColumnElement[bool],
    ascending: bool = False,
) -> tuple[list[RowMapping], bool]:
    """Up to ``limit`` rows of an owner, and whether there are more. Raises RequestError for an unknown ``after``."""
    number: Any = table.c.number
    query = sql.select(table).where(table.c.owner == owner, *where)
    if after is not None:
        own = sql.and_(table.c.owner == owner, table.c.id == after)
        at = connection.execute(sql.select(number).where(own)).scalar() if sane(after) else None
        if at is None:
            raise RequestError(f"'after' is {after[:100]!r}, which is not there.", param="after", code="invalid_value")
        query = query.where(number > at if ascending else number < at)
    rows = connection.execute(query.order_by(number.asc() if ascending else number.desc()).limit(limit + 1))
    found = list(rows.mappings())
    return found[:limit], len(found) > limit


def ends(objects: Sequence[_Shown]) -> tuple[str | None, str | None]:
    """The ids of a page's first and last object."""
    return (objects[0].id, objects[-1].id) if objects else (None, None)
