"""What is said of one route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from octavo.server.openapi.errors import ALWAYS, OPENAI, Dialect

JSON = "application/json"
FORM = "multipart/form-data"


@dataclass(frozen=True)
class Parameter:
    """One parameter beside those in the path. It may be left out."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True)
class Route:
    """One route. ``path`` has its parameters in braces, as FastAPI's.

    ``body``, ``reply`` and ``events`` are the models of its JSON, each one or the tuple of those that it may be;
    ``events`` are a stream's, if it can stream. ``errors`` are statuses beside the usual ones. ``media_type`` is that
    of the reply; ``successes`` are empty where there is none.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    body: type[BaseModel] | tuple[type[BaseModel], ...] | None = None
    reply: Any = None
    events: Any = None
    errors: Sequence[int] = ()
    dialect: Dialect = OPENAI
    parameters: Sequence[Parameter] = ()
    body_type: str = JSON
    media_type: str = JSON
    successes: Sequence[int] = (200,)

    @property
    def bodies(self) -> tuple[type[BaseModel], ...]:
        """What its body may be."""
        return () if self.body is None else _several(self.body)

    @property
    def kinds(self) -> list[Any]:
        """All that it sends but failures."""
        return [*_several(self.reply), *_several(self.events)]

    @property
    def failures(self) -> list[int]:
        """The statuses of all answers but the successes."""
        sent = (413,) if self.method == "POST" else ()
        return sorted({*ALWAYS, *sent, *((415,) if self.body else ()), *self.errors})


def _several(one: Any) -> tuple[Any, ...]:
    if one is None:
        return ()
    return one if isinstance(one, tuple) else (one,)


def page(most: int, *, orders: bool = True) -> tuple[Parameter, ...]:
    """The parameters of a list that comes in pages of up to ``most``."""
    order = Parameter("order", "By age; the newest first is the default.", {"type": "string", "enum": ["asc", "desc"]})
    return (
        Parameter("limit", "How many at a time.", {"type": "integer", "minimum": 1, "maximum": most}),
        Parameter("after", "The id of the last that the client has seen."),
        *([order] if orders else []),
    )
