"""Declared routes to an OpenAPI 3.1 document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec
from pydantic.json_schema import models_json_schema

from octavo.server.routing.failures import EITHER, REASONS, RETRIED, AnthropicErrorReply, Dialect, alternatives
from octavo.server.routing.route import Route, several

_SCHEMAS = "#/components/schemas/"
_EVENTS = "text/event-stream"
_SHARED = "generation"

_Schema: TypeAlias = dict[str, Any]


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The document. Raises ValueError for two models that would have the same name in it."""
    routes = _with_shared(routes)
    bodies = [body for route in routes for body in route.bodies]
    _, read = models_json_schema([(body, "validation") for body in bodies], ref_template=_SCHEMAS + "{model}")
    kinds = list(dict.fromkeys([*(kind for route in routes for kind in route.kinds), *EITHER.errors]))
    references, sent = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    of = dict(zip(kinds, references, strict=True))
    of.update(_body_references(bodies))
    schemas = [*read.get("$defs", {}).items(), *sent.items()]
    names = [_short(name) for name, _ in schemas]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two models are called {', '.join(twice)}")
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = _operation(route, of)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "Octavo",
            "version": "1",
            "description": "The OpenAI and Anthropic APIs, and some more, over one model. What is stored (responses, "
            "conversations, files, batches) is seen with the key alone that it was stored with.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(zip(names, (schema for _, schema in schemas), strict=True))),
            "responses": {
                _answer_name(dialect, status): _failure(dialect, status, of) for dialect, status in _failures_of(routes)
            },
        },
    }
    named: dict[str, Any] = _with_short_names(described)
    return named


def _with_shared(routes: Sequence[Route]) -> list[Route]:
    """The routes that are shown; those that stand for several have what these have."""
    by_path = {one.path: one for one in routes if one.method == "POST"}

    def resolved(one: Route) -> Route:
        same = [by_path[path] for path in one.same_as]
        return replace(
            one,
            body=tuple(body for other in same for body in other.bodies),
            reply=_unique(reply for other in same for reply in several(other.reply)),
            events=_unique(event for other in same for event in several(other.events)),
        )

    return [resolved(one) if one.same_as else one for one in routes if not one.hidden]


def _unique(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


def _failures_of(routes: Sequence[Route]) -> list[tuple[Dialect, int]]:
    """Every failure once; what the dialects have in common has one name."""
    found = {
        _answer_name(route.dialect, status): (route.dialect, status) for route in routes for status in route.failures
    }
    return [found[name] for name in sorted(found)]


def _body_references(bodies: Sequence[Any]) -> dict[Any, _Schema]:
    found, _ = models_json_schema([(body, "validation") for body in bodies], ref_template=_SCHEMAS + "{model}")
    return {body: schema for (body, _), schema in found.items()}


def _short(name: str) -> str:
    """A model's name. Those that share theirs come with their modules, of which the API's package tells enough:
    ``octavo.server.messages.replies.Usage`` is ``MessagesUsage``. What the APIs share keeps the bare name.
    """
    *modules, own = re.split(r"\.|__", name)
    return "".join(package.capitalize() for package in modules[2:-1] if package != _SHARED) + own


def _with_short_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_short_names(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_short_names(inner) for inner in value]
    if isinstance(value, str) and value.startswith(_SCHEMAS):
        return _SCHEMAS + _short(value.removeprefix(_SCHEMAS))
    return value


def _any_of(schemas: Sequence[_Schema]) -> _Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _plain(path: str) -> str:
    """The path as OpenAPI writes it: parameters without their kind."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _operation(route: Route, of: Mapping[Any, _Schema]) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": route.summary, "operationId": _operation_id(route)}
    parameters = _parameters(route)
    if parameters:
        operation["parameters"] = parameters
    if route.bodies:
        schema = _any_of([of[body] for body in route.bodies])
        operation["requestBody"] = {"required": True, "content": {route.body_type: {"schema": schema}}}
    content: dict[str, Any] = {route.media_type: {"schema": _replies(route.reply, of)}}
    if route.events is not None:
        content[_EVENTS] = {"schema": _event(route, of)}
    headers = _headers(route.dialect)
    answers: dict[str, Any] = {
        str(status): {"description": "Done.", "headers": headers, "content": content} for status in route.successes
    }
    answers.update(
        (str(status), {"$ref": f"#/components/responses/{_answer_name(route.dialect, status)}"})
        for status in route.failures
    )
    operation["responses"] = answers
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    in_path = (
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, **({} if kind else {"pattern": "^[^/]+$"})},
        }
        for name, kind in re.findall(r"\{(\w+)(:path)?\}", route.path)
    )
    others = (
        {"name": one.name, "in": one.place, "description": one.description, "schema": dict(one.schema)}
        for one in route.parameters
    )
    return [*in_path, *others]


def _replies(reply: Any, of: Mapping[Any, _Schema]) -> _Schema:
    """What is not JSON has no schema."""
    if reply is None:
        return {}
    return _any_of([of[kind] for kind in (several(reply))])


def _event(route: Route, of: Mapping[Any, _Schema]) -> _Schema:
    dialect = route.dialect
    kinds = [*several(route.events)]
    if dialect.event is not None:
        kinds.append(dialect.event)
    data: _Schema = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": _any_of([of[kind] for kind in kinds]),
    }
    return {
        "type": "object",
        "description": "One server-sent event, if `stream` is true.",
        "properties": {
            "event": {"type": "string"},
            "data": {"anyOf": [data, {"const": "[DONE]"}]} if dialect.done else data,
        },
        "required": ["data"] if dialect.done else ["event", "data"],
    }


def _answer_name(dialect: Dialect, status: int) -> str:
    return f"{dialect.prefix}Error{status}"


def _failure(dialect: Dialect, status: int, of: Mapping[Any, _Schema]) -> dict[str, Any]:
    return {
        "description": REASONS[status],
        "headers": _headers(dialect, retried=status in RETRIED),
        "content": {"application/json": {"schema": _any_of([of[kind] for kind in alternatives(dialect, status)])}},
    }


def _operation_id(route: Route) -> str:
    return "_".join([route.method.lower(), *re.findall(r"\w+", _plain(route.path))])


def _headers(dialect: Dialect, *, retried: bool = False) -> dict[str, Any]:
    text = {"type": "string"}
    headers: dict[str, Any] = {
        "x-request-id": {"description": "The id of this request in the server's log.", "schema": text}
    }
    if AnthropicErrorReply in dialect.errors:
        headers["request-id"] = {"description": "The same.", "schema": text}
    if retried:
        headers["retry-after"] = {"description": "Seconds to wait.", "schema": text}
    return headers
