"""Where llguidance takes a JSON schema and does not hold outputs to it exactly. Everything else it enforces or refuses.

All of it was found by walks through its masks that `jsonschema` judged (core/tests/acceptance), and is refused or
mended before it sees the schema:

* exclusive bounds of numbers: digits beyond those of a float64 pass, which whoever reads them rounds to the bound; so
  does the bound itself if it is an integer and another bound is nearer than 1. Such numbers get nine decimals at most;
* bounds beyond 2**53, which it keeps as float64;
* more properties than those required and one: it does not see that a key comes twice;
* a class in a pattern that has all control characters and no quotation mark or backslash: these pass. The class loses
  U+0000, which is not written anyway, and is then right;
* control characters in constants and names, for which no escape is left: see ``_ESCAPES`` of `grammar_source`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from octavo.text.grammar.vacuous import without_vacuous

_EXACT = 2**53
_STEPS = tuple(float(f"1e{exponent}") for exponent in range(-9, 3))
"""What numbers with an exclusive bound are multiples of: the first that float64 tells from the bound."""
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_SCHEMAS = (
    "items",
    "additionalProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "additionalItems",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPPINGS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_UNWRITABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f]")
_ESCAPE = re.compile(r"\\(?:x\{[0-9A-Fa-f]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[pP]\{[^}]*\}|[pP].|.)", re.DOTALL)
_NUL = re.compile(r"\\(?:x00|x\{0+\}|u0000|0)|\x00")


class BadConstraint(ValueError):
    """A constraint that cannot be honoured; the message says why."""


def exact(schema: Any) -> Any:
    """A schema that llguidance enforces exactly where it takes it. Raises BadConstraint."""
    schema = without_vacuous(schema)
    for part in _subschemas(schema):
        _refuse_flaws(part)
    return _mended(schema)


def _subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and all within it."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if not isinstance(part, Mapping):
            continue
        yield part
        todo += [part[key] for key in _SCHEMAS if key in part]
        for key in _LISTS:
            if isinstance(part.get(key), list):
                todo += part[key]
        for key in _MAPPINGS:
            if isinstance(part.get(key), Mapping):
                todo += part[key].values()


def _mended(schema: Any) -> Any:
    """The schema with patterns as `mended_pattern` gives them, and no exclusive bounds of numbers."""
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            made[key] = mended_pattern(value)
        elif key in _MAPPINGS and isinstance(value, Mapping):
            renamed = key == "patternProperties"
            made[key] = {mended_pattern(name) if renamed else name: _mended(one) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            made[key] = [_mended(one) for one in value]
        elif key in _SCHEMAS:
            made[key] = _mended(value)
    _decimal(made)
    return made


def mended_pattern(pattern: str) -> str:
    """The pattern with no class that has U+0000. Raises BadConstraint for classes that dialects read differently."""
    made: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        escape = _ESCAPE.match(pattern, at)
        piece = escape[0] if escape else pattern[at]
        if inside:
            if piece == "[" or pattern[at : at + 2] in ("&&", "--", "~~") or piece.startswith("\\P"):
                raise BadConstraint(
                    f"the pattern {pattern!r:.80} has {piece!r} within [ ]; escape it, or write it differently"
                )
            inside = piece != "]"
            made.append("\\x01" if _NUL.fullmatch(piece) else piece)
        elif piece == "[":
            piece = "[^" if pattern.startswith("[^", at) else piece
            if pattern.startswith("]", at + len(piece)):
                raise BadConstraint(f"the pattern {pattern!r:.80} has {piece}]; escape the ], or write it differently")
            inside = True
            made.append("[^\\x00" if piece == "[^" else piece)
        else:
            made.append(f"[^\\x00\\p{piece[2:]}]" if piece.startswith("\\P") else piece)
        at += len(piece)
    return "".join(made)


def _refuse_flaws(part: Mapping[str, Any]) -> None:
    names = part.get("properties")
    literals = [part.get("const"), part.get("enum"), part.get("required"), list(names) if names else None]
    for text in _strings(literals):
        if found := _UNWRITABLE.search(text):
            raise BadConstraint(f"the control character U+{ord(found[0]):04X} in {text!r:.60} cannot be written")
    least, required = part.get("minProperties", 0), part.get("required", ())
    if _is_number(least) and isinstance(required, list | tuple) and least > len(required) + 1:
        raise BadConstraint(
            f"minProperties {least} with {len(required)} required: at most one more can be enforced, as a key may come "
            "twice; name the properties in required"
        )
    for bound in (part[key] for key in _BOUNDS if _is_number(part.get(key))):
        if abs(bound) > _EXACT:
            raise BadConstraint(f"the bound {bound:g} is beyond 2**53, where it cannot be enforced exactly")


def _decimal(schema: dict[str, Any]) -> None:
    """Make exclusive bounds of numbers hold for what becomes of the digits. Raises BadConstraint."""
    bounds = {key: schema[key] for key in ("exclusiveMinimum", "exclusiveMaximum") if _is_number(schema.get(key))}
    if schema.get("type") == "integer" or not bounds:
        return
    spacing = max(math.ulp(bound) for bound in bounds.values())
    step = next(step for step in _STEPS if step >= 2 * spacing)
    if schema.setdefault("multipleOf", step) < step:
        raise BadConstraint(f"multipleOf {schema['multipleOf']} is too fine beside an exclusive bound; {step:g} is not")
    lower, upper = bounds.get("exclusiveMinimum", -1), bounds.get("exclusiveMaximum", 1)
    if lower >= 0:
        del schema["exclusiveMinimum"]
        schema["minimum"] = max(lower + step, schema.get("minimum", lower))
    if upper <= 0:
        del schema["exclusiveMaximum"]
        schema["maximum"] = min(upper - step, schema.get("maximum", upper))


def _strings(value: Any) -> Iterator[str]:
    """Every string in a value, keys included."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            todo += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            todo += one


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
