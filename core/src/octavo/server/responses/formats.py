"""``text.format`` as a response repeats it; `octavo.server.generation.structured` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def told_format(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The format, with what was left out of it."""
    if given is None:
        return {"type": "text"}
    if given.get("type") != "json_schema":
        return dict(given)
    return {"description": None, "strict": False, **given}
