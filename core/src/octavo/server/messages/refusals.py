"""Refusals in the words of the Messages API."""

from __future__ import annotations

from typing import NoReturn

from octavo.errors import RequestError


def wrong(where: str, what: str) -> NoReturn:
    """Refuse a field: its path, then ``what`` is the matter."""
    raise RequestError(f"{where}: {what}.", param=where, code="invalid_value")
