"""Where llguidance takes a JSON schema and does not hold outputs to it exactly. Everything else it enforces or refuses.

All of it was found by walks through its masks that `jsonschema` judged (core/tests/acceptance), and is refused or
mended before it sees the schema:

* a number's exclusive bound that is an integer, where another bound is nearer than 1: the bound itself passes;
* bounds beyond 2**53, which it keeps as float64;
* more properties than those required and one: it does not see that a key comes twice;
* a class in a pattern that has all control characters and no quotation mark or backslash: these pass. The class loses
  U+0000, which is not written anyway, and is then right;
* control characters in constants and names, for which no escape is left: see ``_ESCAPES`` of `grammar_source`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

_EXACT = 2**53
_LOWER, _UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
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
_TOGETHER = ("allOf", "anyOf", "oneOf")
"""What these hold is about the same value as the schema that has them."""
_UNWRITABLE = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f]")
_ESCAPE = re.compile(r"\\(?:x\{[0-9A-Fa-f]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[pP]\{[^}]*\}|[pP].|.)", re.DOTALL)
_NUL = re.compile(r"\\(?:x00|x\{0+\}|u0000|0)|\x00")


class BadForm(ValueError):
    """A form that cannot be honoured; the message says why."""


def exact(schema: Any) -> Any:
    """A schema that llguidance enforces exactly where it takes it. Raises BadForm."""
    for part in _subschemas(schema):
        _refuse_flaws(part, schema)
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
    """The schema with patterns as `mended_pattern` gives them."""
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
    return made


def mended_pattern(pattern: str) -> str:
    """The pattern with no class that has U+0000. Raises BadForm for classes that dialects read differently."""
    made: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        escape = _ESCAPE.match(pattern, at)
        piece = escape[0] if escape else pattern[at]
        if inside:
            if piece == "[" or pattern[at : at + 2] in ("&&", "--", "~~") or piece.startswith("\\P"):
                raise BadForm(
                    f"the pattern {pattern!r:.80} has {piece!r} within [ ]; escape it, or write it differently"
                )
            inside = piece != "]"
            made.append("\\x01" if _NUL.fullmatch(piece) else piece)
        elif piece == "[":
            piece = "[^" if pattern.startswith("[^", at) else piece
            if pattern.startswith("]", at + len(piece)):
                raise BadForm(f"the pattern {pattern!r:.80} has {piece}]; escape the ], or write it differently")
            inside = True
            made.append("[^\\x00" if piece == "[^" else piece)
        else:
            made.append(f"[^\\x00\\p{piece[2:]}]" if piece.startswith("\\P") else piece)
        at += len(piece)
    return "".join(made)


@dataclass
class _Said:
    """What is said of one value, here and by what is referred to."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    open_lower: list[float] = field(default_factory=list)
    open_upper: list[float] = field(default_factory=list)
    types: set[str] = field(default_factory=set)


def _refuse_flaws(part: Mapping[str, Any], root: Any) -> None:
    names = part.get("properties")
    literals = [part.get("const"), part.get("enum"), part.get("required"), list(names) if names else None]
    for text in _strings(literals):
        if found := _UNWRITABLE.search(text):
            raise BadForm(f"the control character U+{ord(found[0]):04X} in {text!r:.60} cannot be written")
    least, required = part.get("minProperties", 0), part.get("required", ())
    if _is_number(least) and isinstance(required, list | tuple) and least > len(required) + 1:
        raise BadForm(
            f"minProperties {least} with {len(required)} required: at most one more can be enforced, as a key may come "
            "twice; name the properties in required"
        )
    _refuse_bounds(_said(part, root, _Said(), []))


def _refuse_bounds(said: _Said) -> None:
    for bound in (*said.lower, *said.upper):
        if abs(bound) > _EXACT:
            raise BadForm(f"the bound {bound:g} is beyond 2**53, where it cannot be enforced exactly")
    if said.types and "number" not in said.types:
        return
    for bound in said.open_lower:
        if bound == int(bound) and any(0 <= other - bound < 1 for other in said.upper):
            raise BadForm(f"exclusiveMinimum {bound:g} with a maximum less than 1 above it cannot be enforced")
    for bound in said.open_upper:
        if bound == int(bound) and any(0 <= bound - other < 1 for other in said.lower):
            raise BadForm(f"exclusiveMaximum {bound:g} with a minimum less than 1 below it cannot be enforced")


def _said(part: Any, root: Any, said: _Said, seen: list[int]) -> _Said:
    if not isinstance(part, Mapping) or id(part) in seen:
        return said
    seen.append(id(part))
    for keys, every, exclusive in ((_LOWER, said.lower, said.open_lower), (_UPPER, said.upper, said.open_upper)):
        every += [part[key] for key in keys if _is_number(part.get(key))]
        exclusive += [part[keys[1]]] if _is_number(part.get(keys[1])) else []
    types = part.get("type", [])
    said.types.update([types] if isinstance(types, str) else [t for t in types if isinstance(t, str)])
    for key in _TOGETHER:
        members = part.get(key)
        for member in members if isinstance(members, list) else ():
            _said(member, root, said, seen)
    return _said(_referred(part.get("$ref"), root), root, said, seen)


def _referred(reference: Any, root: Any) -> Any:
    """What a reference within the schema points to; others are llguidance's to refuse."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    at = root
    for name in filter(None, reference[1:].split("/")):
        key = name.replace("~1", "/").replace("~0", "~")
        at = at.get(key) if isinstance(at, Mapping) else None
    return at


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
