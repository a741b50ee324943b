"""Query parameters, checked. Each function raises RequestError naming the parameter."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request

from octavo.errors import RequestError


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``."""
    value = request.query_params.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdecimal() and len(value) < 17 and low <= int(value) <= high):
        raise RequestError(
            f"'{name}' is {value[:40]!r}; it must be an integer from {low} to {high}.", param=name, code="invalid_value"
        )
    return int(value)


def order(request: Request) -> Literal["asc", "desc"]:
    """``order``; the newest first is the default."""
    value = request.query_params.get("order", "desc")
    if value not in ("asc", "desc"):
        raise RequestError(f"'order' is {value[:40]!r}; it must be asc or desc.", param="order", code="invalid_value")
    return "asc" if value == "asc" else "desc"


def flag(request: Request, name: str) -> bool:
    """A boolean; absent is false."""
    value = request.query_params.get(name, "false").lower()
    if value not in ("true", "false"):
        raise RequestError(f"'{name}' is {value[:40]!r}; it must be true or false.", param=name, code="invalid_value")
    return value == "true"
