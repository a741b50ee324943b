"""Structured output as requests ask for it: ``response_format`` of the OpenAI API, ``structured_outputs`` of vLLM's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import RequestError
from octavo.structured_output import KINDS, StructuredOutput

_DESCRIPTION: Mapping[str, type] = {"name": str, "description": str, "strict": bool}
"""What stands beside a schema. It tells of the schema; all of them are enforced."""
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "disable_fallback": (True, False),  # there is nothing to fall back to
    "disable_any_whitespace": (False,),
    "disable_additional_properties": (False,),
}
"""Other fields of ``structured_outputs``, with the values that ask for nothing."""


def structured_output(
    response_format: Mapping[str, Any] | None,
    structured_outputs: Mapping[str, Any] | None,
    *,
    param: str = "response_format",
    flat: bool = False,
) -> StructuredOutput | None:
    """The constraint that a request asks of its output, ``None`` if it asks for free text.

    ``param`` is what errors call ``response_format``. ``flat``: as in the Responses API, which has it as
    ``text.format``, the members of ``json_schema`` stand beside the type. Raises RequestError for what is unknown,
    malformed, or asked twice.
    """
    by_format = _of_format(response_format, param, flat) if response_format is not None else None
    by_fields = _of_fields(structured_outputs) if structured_outputs is not None else None
    if by_format is not None and by_fields is not None:
        raise _error(f"'{param}' and 'structured_outputs' both constrain the output; send one of them.", param)
    return by_format or by_fields


def _error(message: str, param: str, code: str = "invalid_value") -> RequestError:
    return RequestError(message, param=param, code=code)


def _of_format(asked: Mapping[str, Any], param: str, flat: bool) -> StructuredOutput | None:
    given = {name: value for name, value in asked.items() if value is not None}
    match given.get("type"):
        case "text":
            _refuse_others(given, ("type",), param)
            return None
        case "json_object":
            _refuse_others(given, ("type", "schema"), param)  # llama.cpp has the schema there
            if "schema" in given:
                return StructuredOutput(json=_schema_in(given, param), param=f"{param}.schema")
            return StructuredOutput(json_object=True, param=param)
        case "json_schema":
            return StructuredOutput(json=_schema(given, param, flat), param=param)
        case "structural_tag":
            return StructuredOutput(structural_tag=asked, param=param)
        case None:
            raise _error(f"Missing required parameter: '{param}.type'.", f"{param}.type", "missing_required_parameter")
        case other:
            raise _error(
                f"'{param}.type' is {str(other)[:40]!r}; it must be text, json_object, json_schema or structural_tag.",
                f"{param}.type",
            )


def _refuse_others(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    """Members that nobody reads would be promises that nobody keeps."""
    for name in given:
        if name not in known:
            raise _error(
                f"'{where}.{name[:60]}' is not supported; it takes {', '.join(known)}.", f"{where}.{name[:60]}"
            )


def _schema(given: Mapping[str, Any], param: str, flat: bool) -> Mapping[str, Any] | bool:
    described: Any = given
    where, beside = param, ["type"]
    if "json_schema" in given or not (flat or "schema" in given):
        _refuse_others(given, ("type", "json_schema"), param)
        described, where, beside = given.get("json_schema", {}), f"{param}.json_schema", []
    if not isinstance(described, Mapping):
        raise _error(f"'{where}' must be an object.", where, "invalid_type")
    described = {name: value for name, value in described.items() if value is not None}
    _refuse_others(described, (*beside, *_DESCRIPTION, "schema"), where)
    for name, kind in _DESCRIPTION.items():
        if not isinstance(described.get(name), kind | None):
            what = "a boolean" if kind is bool else "a string"
            raise _error(f"'{where}.{name}' must be {what}.", f"{where}.{name}", "invalid_type")
    return _schema_in(described, where)


def _schema_in(described: Mapping[str, Any], where: str) -> Mapping[str, Any] | bool:
    if "schema" not in described:
        raise _error(f"Missing required parameter: '{where}.schema'.", f"{where}.schema", "missing_required_parameter")
    schema = described["schema"]
    if not isinstance(schema, Mapping | bool):
        raise _error(f"'{where}.schema' must be a JSON schema, which is an object.", f"{where}.schema", "invalid_type")
    return schema


def _of_fields(asked: Mapping[str, Any]) -> StructuredOutput | None:
    param = "structured_outputs"
    given = {name: value for name, value in asked.items() if value is not None}
    for name, value in given.items():
        if name not in KINDS and value not in _HARMLESS.get(name, ()):
            known = ", ".join(KINDS)
            raise _error(f"'{param}.{name}' is not supported; {param} takes {known}.", f"{param}.{name}")
    constraints = {
        name: value for name, value in given.items() if name in KINDS and (name, value) != ("json_object", False)
    }
    if not constraints:
        return None
    if len(constraints) > 1:
        raise _error(f"'{param}' has {' and '.join(constraints)}; it takes one of them.", param)
    return StructuredOutput(**constraints, param=f"{param}.{next(iter(constraints))}")
