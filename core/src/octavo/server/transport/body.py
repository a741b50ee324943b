"""A request's bytes to a request model, with an error that names the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from octavo.errors import RequestError
from octavo.server.transport.body_limits import check_body, check_depth, check_size, check_text
from octavo.server.transport.errors import LIMITS, ClientGone
from octavo.server.transport.fields import UnsupportedField, refuse_unsupported
from octavo.server.transport.limits import Limits

ModelT = TypeVar("ModelT", bound=BaseModel)

_DEFAULTS = Limits()

_JSON_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


async def read_body(request: Request, model: type[ModelT], unsupported: Mapping[str, UnsupportedField]) -> ModelT:
    """Read, parse and validate the body of a request.

    Raises RequestError naming the field, HTTPException 413 or 415, ClientGone.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        # A web page may send any other type to a server on localhost without asking it first.
        raise HTTPException(415, f"The content type must be application/json, not {content_type[:100] or 'absent'}.")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding != "identity":
        raise HTTPException(415, f"The body must come as it is, without the content encoding {coding[:100]!r}.")
    try:
        data = await request.body()
    except ClientDisconnect as error:
        raise ClientGone from error
    return parse(data, model, unsupported, request.scope[LIMITS])


def parse(
    data: bytes, model: type[ModelT], unsupported: Mapping[str, UnsupportedField], limits: Limits = _DEFAULTS
) -> ModelT:
    """Bytes of JSON to a request model. Raises RequestError."""
    check_size(data, limits)
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from error
    except RecursionError as error:
        raise RequestError("The body is JSON that is nested too deeply.", code="invalid_json") from error
    if not isinstance(body, dict):
        raise RequestError(f"The body must be a JSON object, not {_json_name(body)}.", code="invalid_json")
    check_body(body, limits)
    check_depth(data, body, limits)
    check_text(data, body, limits)
    refuse_unsupported(body, unsupported)
    # Left are values of those fields that ask for nothing; a model that knows no other fields need not know these.
    asked = {name: value for name, value in body.items() if name not in unsupported or name in model.model_fields}
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        raise _request_error(error) from error


def _json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _request_error(error: ValidationError) -> RequestError:
    """The first thing pydantic found, in the words and codes of the OpenAI API."""
    first = error.errors(include_url=False)[0]
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")[:200]
    reason = first["msg"][:1].lower() + first["msg"][1:]
    if first["type"] == "missing":
        return RequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    if first["type"] == "extra_forbidden":
        return RequestError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")
    value = first["input"]
    if first["type"].endswith("_type"):
        message = f"Invalid type for '{param}': {reason}, but got {_json_name(value)} instead."
        return RequestError(message, param=param, code="invalid_type")
    shown = f", not {value!r}" if isinstance(value, (int, float)) else ""
    return RequestError(f"Invalid value for '{param}': {reason}{shown}.", param=param, code="invalid_value")
