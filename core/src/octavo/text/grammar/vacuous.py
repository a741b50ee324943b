"""Keywords of a JSON schema that ask nothing, or what another keyword asks: they are taken out, or become that.

llguidance refuses keywords that it cannot enforce, whatever their values. Generators of schemas write many that ask
nothing, such as ``"uniqueItems": false``. What is done here changes no verdict of a validator
(core/tests/text/test_schema_vacuous.py asks one). Source: JSON Schema draft 2020-12, core and validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_ANNOTATIONS = frozenset(
    {
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "deprecated",
        "description",
        "example",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    }
)
"""Those that JSON Schema defines: they are enforced, or refused. Any other is an annotation, like OpenAPI's int32."""
_COUNTS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
_IN_PLACE = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "not")
"""What may evaluate properties and items elsewhere than beside ``unevaluated…``."""
_ONE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "contains")
_ONE_MORE = ("propertyNames", "not", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def without_vacuous(schema: Any) -> Any:
    """The schema less what asks nothing in it; equal in what it allows. Values that are no schemas stay as they are."""
    dynamic = _refers_dynamically(schema)

    def simplified(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        made = {key: _inner(key, value, simplified) for key, value in part.items()}
        _counts(made)
        _conditions(made)
        _objects(made)
        _arrays(made)
        constraint = made.get("format")
        if isinstance(constraint, str) and constraint not in _FORMATS:
            del made["format"]
        if not dynamic:
            for anchor in ("$dynamicAnchor", "$recursiveAnchor"):
                made.pop(anchor, None)
        return made

    return simplified(schema)


def _inner(key: str, value: Any, simplified: Callable[[Any], Any]) -> Any:
    if key in _LISTS and isinstance(value, list):
        return [simplified(one) for one in value]
    if key in _MAPPINGS and isinstance(value, Mapping):
        return {name: simplified(one) for name, one in value.items()}
    return simplified(value) if key in (*_ONE, *_ONE_MORE) else value


def _refers_dynamically(schema: Any) -> bool:
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, Mapping):
            if "$dynamicRef" in one or "$recursiveRef" in one:
                return True
            todo += one.values()
        elif isinstance(one, list):
            todo += one
    return False


def _allows_all(schema: Any) -> bool:
    return schema is True or (isinstance(schema, Mapping) and schema.keys() <= _ANNOTATIONS)


def _counts(part: dict[str, Any]) -> None:
    """5.0 is an integer in JSON Schema."""
    for key in _COUNTS:
        value = part.get(key)
        if isinstance(value, float) and value.is_integer():
            part[key] = int(value)


def _conditions(part: dict[str, Any]) -> None:
    if part.get("not") is False:
        del part["not"]
    if "if" not in part or all(_allows_all(part.get(branch, True)) for branch in ("then", "else")):
        for key in ("if", "then", "else"):
            part.pop(key, None)


def _objects(part: dict[str, Any]) -> None:
    names = part.get("propertyNames")
    if names is not None and (_allows_all(names) or _only_asks(names, {"type": "string"})):
        del part["propertyNames"]
    required = part.get("required")
    known = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        given = part.get(key)
        if isinstance(given, Mapping):
            left = {name: one for name, one in given.items() if not _is_met(one, known)}
            part[key] = left
            if not left:
                del part[key]
    _unevaluated(part, "unevaluatedProperties", "additionalProperties", ())


def _is_met(dependency: Any, required: set[str]) -> bool:
    """Whether a property's dependency asks for nothing that is not asked for anyway."""
    if isinstance(dependency, list):
        return all(isinstance(name, str) and name in required for name in dependency)
    return _allows_all(dependency)


def _only_asks(schema: Any, what: Mapping[str, Any]) -> bool:
    return isinstance(schema, Mapping) and {k: v for k, v in schema.items() if k not in _ANNOTATIONS} == what


def _arrays(part: dict[str, Any]) -> None:
    most = part.get("maxItems")
    if part.get("uniqueItems") is False or (part.get("uniqueItems") is True and type(most) is int and most <= 1):
        del part["uniqueItems"]
    _contains(part)
    _unevaluated(part, "unevaluatedItems", "items", ("contains", "additionalItems"))


def _contains(part: dict[str, Any]) -> None:
    if "contains" not in part:  # without it the two others mean nothing
        part.pop("minContains", None)
        part.pop("maxContains", None)
        return
    least, most = part.get("minContains", 1), part.get("maxContains")
    if not _allows_all(part["contains"]) and not _allows_all(part.get("unevaluatedItems", True)):
        return  # the items that it matches count as evaluated
    if _allows_all(part["contains"]) and type(least) is int and (most is None or type(most) is int):
        part["minItems"] = max(least, part.get("minItems", 0))  # each item counts
        if most is not None:
            part["maxItems"] = min(most, part.get("maxItems", most))
        part.pop("unevaluatedItems", None)  # it has evaluated every item
    elif least != 0 or most is not None:
        return
    for key in ("contains", "minContains", "maxContains"):
        part.pop(key, None)


def _unevaluated(part: dict[str, Any], key: str, beside: str, others: tuple[str, ...]) -> None:
    """Where nothing but ``beside`` could have evaluated anything, the two are one."""
    if key not in part:
        return
    if _allows_all(part[key]) or (beside in part and not isinstance(part[beside], list)):
        del part[key]
    elif beside not in part and not any(other in part for other in (*_IN_PLACE, *others)):
        part[beside] = part.pop(key)
