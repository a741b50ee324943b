"""Values in notations that are nearly JSON, as JSON text."""

from __future__ import annotations

import json
import math
import re

_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9_]*)?([eE][+-]?[0-9]+)?|[+-]?\.[0-9]+([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 400  # characters; more digits than any number that is meant


def quoted(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def inner(text: str) -> str:
    """What stands between the quotes of a JSON string."""
    return quoted(text)[1:-1]


def bare(text: str) -> str:
    """The JSON of a word that stands without quotes: a constant, a number, or else a string."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        return _number(text)
    return quoted(text)


def _number(text: str) -> str:
    try:
        return json.dumps(json.loads(text))  # as it is, where JSON writes it like that
    except ValueError:
        pass
    try:
        if text.lstrip("+-").replace("_", "").isdecimal():
            return str(int(text))
        found = float(text)
    except ValueError:
        return quoted(text)
    return json.dumps(found) if math.isfinite(found) else quoted(text)
