"""One route: declared once, at its handler, with its request and its answer.

An API is a class whose methods are its handlers. `route` declares a handler's route; the app and the OpenAPI document
are both made from what is declared, so neither can know a route that the other does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Mounted

from octavo.server.routing.failures import ALWAYS, OPENAI, Dialect

Handler = Callable[..., Awaitable[Response]]
"""A handler, bound to its API: takes the request, and the parameters of the path by name."""
HandlerT = TypeVar("HandlerT", bound=Handler)

JSON = "application/json"
FORM = "multipart/form-data"
_DECLARED = "_declared_routes"


@dataclass(frozen=True)
class Parameter:
    """One parameter beside those in the path. It may be left out."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    place: Literal["query", "header"] = "query"


@dataclass(frozen=True)
class Route:
    """One route. ``path`` has its parameters in braces, as Starlette's.

    ``body``, ``reply`` and ``events`` are the models of its JSON, each one or the tuple of those that it may be;
    ``events`` are a stream's, if it can stream. ``errors`` are statuses beside the usual ones. ``media_type`` is that
    of the reply; ``successes`` are empty where there is none. ``same_as`` are paths of routes whose bodies, replies and
    events this one has, too. ``head``: the route answers HEAD as well. ``hidden``: the document leaves it out.
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
    same_as: Sequence[str] = ()
    head: bool = False
    hidden: bool = False

    @property
    def bodies(self) -> tuple[type[BaseModel], ...]:
        """What its body may be."""
        return () if self.body is None else several(self.body)

    @property
    def kinds(self) -> list[Any]:
        """All that it sends but failures."""
        return [*several(self.reply), *several(self.events)]

    @property
    def failures(self) -> list[int]:
        """The statuses of all answers but the successes."""
        sent = (413,) if self.method == "POST" else ()
        return sorted({*ALWAYS, *sent, *((415,) if self.body or self.same_as else ()), *self.errors})


def route(
    method: Literal["GET", "POST", "DELETE"], path: str, summary: str, **declared: Any
) -> Callable[[HandlerT], HandlerT]:
    """Declares that the decorated method serves ``path``; ``declared`` are further fields of `Route`. A handler with
    several paths is decorated for each.
    """
    one = Route(method, path, summary, **declared)

    def declare(handler: HandlerT) -> HandlerT:
        setattr(handler, _DECLARED, (one, *getattr(handler, _DECLARED, ())))
        return handler

    return declare


def declared_routes(api: type) -> Iterator[tuple[Route, str]]:
    """Every route of an API, in the order of its class body, with the name of its handler."""
    for name, member in vars(api).items():
        for one in getattr(member, _DECLARED, ()):
            yield one, name


def mounted_routes(api: object, before: Callable[[], None] | None = None) -> Iterator[Mounted]:
    """The routes of an API as Starlette serves them. ``before`` is called ahead of each handler and may raise."""
    for one, name in declared_routes(type(api)):
        served = Mounted(one.path, _endpoint(getattr(api, name), before), methods=[one.method])
        if not one.head and served.methods:
            served.methods.discard("HEAD")  # Starlette adds it to every GET
        yield served


def _endpoint(handler: Handler, before: Callable[[], None] | None) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if before is not None:
            before()
        return await handler(request, **request.path_params)

    return endpoint


def several(one: Any) -> tuple[Any, ...]:
    """None, one value or a tuple of them, as a tuple."""
    if one is None:
        return ()
    return one if isinstance(one, tuple) else (one,)


def page_parameters(most: int, *, orders: bool = True) -> tuple[Parameter, ...]:
    """The parameters of a list that comes in pages of up to ``most``."""
    order = Parameter("order", "By age; the newest first is the default.", {"type": "string", "enum": ["asc", "desc"]})
    return (
        Parameter("limit", "How many at a time.", {"type": "integer", "minimum": 1, "maximum": most}),
        Parameter("after", "The id of the last that the client has seen."),
        *([order] if orders else []),
    )
