"""Query parameters, checked."""

from __future__ import annotations

from fastapi import Request

from octavo.errors import RequestError
from octavo.server.responses.item_rows import Page

MAX_PAGE = 100


def page_of(request: Request) -> Page:
    """``limit``, ``order`` and ``after``. Raises RequestError."""
    query = request.query_params
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"'order' is {order[:40]!r}; it must be asc or desc.", param="order", code="invalid_value")
    limit = _number(query.get("limit", "20"), "limit", 1, MAX_PAGE)
    return Page(limit, "asc" if order == "asc" else "desc", query.get("after") or None)


def flag(request: Request, name: str) -> bool:
    """A boolean; absent is false. Raises RequestError."""
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "false"):
        raise RequestError(f"'{name}' is {value[:40]!r}; it must be true or false.", param=name, code="invalid_value")
    return value == "true"


def starting_after(request: Request) -> int:
    """The number of the last event that the client has; -1 for none. Raises RequestError."""
    value = request.query_params.get("starting_after")
    return -1 if value is None else _number(value, "starting_after", 0, 2**53)


def _number(value: str, name: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 17 and low <= int(value) <= high):
        raise RequestError(
            f"'{name}' is {value[:40]!r}; it must be an integer from {low} to {high}.", param=name, code="invalid_value"
        )
    return int(value)
