"""Refusals in the words of the Messages API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from octavo.errors import RequestError


def wrong(where: str, what: str) -> NoReturn:
    """Refuse a field: its path, then ``what`` is the matter."""
    raise RequestError(f"{where}: {what}.", param=where, code="invalid_value")


def known_only(given: Mapping[str, Any], where: str, names: Collection[str]) -> None:
    """Refuse members that are neither null nor among ``names``: nobody would read them."""
    for name, value in given.items():
        if value is not None and name not in names:
            path = f"{where}.{name[:60]}" if where else name[:60]
            wrong(path, f"is not supported; there may be {', '.join(names)}")
