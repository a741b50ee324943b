"""``text.format`` of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import RequestError

PLAIN: Mapping[str, Any] = {"type": "text"}


def response_format(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The format as the chat API writes it: there a schema stands in an object of its own. None for plain text."""
    if given is None or given.get("type") == "text":
        return None
    if given.get("type") == "json_schema":
        described = {key: given[key] for key in ("name", "description", "schema", "strict") if key in given}
        return {"type": "json_schema", "json_schema": described}
    return dict(given)


def told_format(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The format as the response repeats it."""
    if given is None:
        return dict(PLAIN)
    if given.get("type") != "json_schema":
        return dict(given)
    return {"description": None, "strict": False, **given}


def refuse_format(given: Mapping[str, Any] | None) -> None:
    """Raise RequestError for all but plain text."""
    if response_format(given) is not None:
        raise RequestError(
            "'text.format' is not supported by this server with the value given. "
            'Output cannot be constrained yet; only {"type": "text"} is supported.',
            param="text.format",
            code="unsupported_parameter",
        )
