"""Refusals that name a field of the request."""

from __future__ import annotations

from typing import NoReturn

from octavo.errors import RequestError


def wrong(where: str, what: str, code: str = "invalid_value") -> NoReturn:
    """Refuse a field: ``what`` goes on from its name."""
    raise RequestError(f"'{where}' {what}.", param=where, code=code)
