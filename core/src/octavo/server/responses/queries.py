"""Query parameters of this API."""

from __future__ import annotations

from starlette.requests import Request

from octavo.server.responses.item_rows import Page
from octavo.server.routing.route import page_parameters
from octavo.server.transport.queries import number, order

MAX_PAGE = 100
PAGE = page_parameters(MAX_PAGE)


def page_of(request: Request) -> Page:
    """``limit``, ``order`` and ``after``. Raises RequestError."""
    limit = number(request, "limit", 20, 1, MAX_PAGE)
    return Page(limit, order(request), request.query_params.get("after") or None)


def starting_after(request: Request) -> int:
    """The number of the last event that the client has; -1 for none. Raises RequestError."""
    return number(request, "starting_after", -1, 0, 2**53)
