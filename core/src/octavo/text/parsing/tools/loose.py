"""Values in notations that are nearly JSON, as JSON text. Where a word could be a string as well as something else, the
schema of the parameter decides.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from octavo.text.parsing.tools.schema import ANYTHING, Schema

_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9_]*)?([eE][+-]?[0-9]+)?|[+-]?\.[0-9]+([eE][+-]?[0-9]+)?")
_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 400  # characters; more digits than any number that is meant


def quoted(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def inner(text: str) -> str:
    """What stands between the quotes of a JSON string."""
    return quoted(text)[1:-1]


def bare(text: str, schema: Schema = ANYTHING) -> str:
    """The JSON of a word that stands without quotes, in a notation whose strings have quotes: a constant or a number
    where the schema admits one, else a string where it admits that. ``02134`` and ``+49`` are no numbers of JSON, and
    so they are strings unless the schema wants a number; digits are kept as they are written.
    """
    text = text.strip()
    if text in _WORDS:
        word = _WORDS[text]
        return quoted(text) if not schema.admits(_CONSTANTS[word]) and schema.some_text else word
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return quoted(text)
    if _JSON_NUMBER.fullmatch(text):
        return quoted(text) if not schema.admits(json.loads(text)) and schema.some_text else text
    return quoted(text) if schema.some_text else _number(text)


def from_text(text: str, schema: Schema) -> str:
    """The JSON of a text that stands for a string, or for anything else as JSON: a string where the schema admits this
    string, to the character. ``null`` is null where the schema names null, for it could not be written otherwise.
    """
    if schema.admits(text) and not (text == "null" and schema.names_null):
        return quoted(text)
    stripped = text.strip()
    try:
        value = json.loads(stripped, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return bare(stripped, schema)
    return quoted(text) if schema.some_text and not schema.admits(value) else stripped


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity: Python's json reads them, others do not


def _number(text: str) -> str:
    try:
        if text.lstrip("+-").replace("_", "").isdecimal():
            return str(int(text))
        found = float(text)
    except ValueError:
        return quoted(text)
    return json.dumps(found) if math.isfinite(found) else quoted(text)
