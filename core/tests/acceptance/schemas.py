"""JSON schemas to hold outputs to: some written by hand, and as many as wanted from a seed.

All of them use features of draft 2020-12 that are supported; every one must be honoured.
"""

from __future__ import annotations

import random
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

PERSON: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE: Schema = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer", "minimum": -9, "maximum": 9},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
LIST: Schema = {
    "type": "object",
    "properties": {"head": {"type": "boolean"}, "tail": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["head", "tail"],
    "additionalProperties": False,
}


def _closed(**properties: Any) -> Schema:
    """An object that has just these."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_SHAPE: Schema = {
    "oneOf": [
        _closed(kind={"const": "circle"}, radius={"type": "number", "exclusiveMinimum": 0, "maximum": 100}),
        _closed(kind={"const": "square"}, side={"type": "integer", "minimum": 1, "maximum": 50}),
    ]
}

BY_HAND: tuple[Schema, ...] = (
    PERSON,
    TREE,
    LIST,
    _SHAPE,
    {"type": "boolean"},
    {"type": "null"},
    {"enum": ["red", "green", "blue"]},
    {"enum": ["a", 1, None, True, 2.5]},
    {"enum": ["ünïcode", "日本語", "emoji 😀", 'quote " and \\ backslash', "line\nbreak", "tab\t", ""]},
    {"const": {"fixed": [1, "two", None]}},
    {"const": "été"},
    {"type": "integer"},
    {"type": "integer", "minimum": 10, "maximum": 20},
    {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    {"type": "integer", "minimum": 1000000, "maximum": 1000999},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 2.25},
    {"type": "number", "minimum": 99.5, "maximum": 99.75},
    {"type": ["string", "null"], "maxLength": 5},
    {"type": ["integer", "boolean"], "minimum": 3, "maximum": 5},
    {"type": "string", "minLength": 3, "maxLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 12},
    {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$"},
    {"type": "string", "pattern": "^(foo|bar)+$", "maxLength": 9},
    {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
    {"type": "string", "pattern": "^\\d{2}:\\d{2}$"},
    {"type": "string", "pattern": "^[äöü]{1,4}$"},
    {"type": "string", "pattern": '^["\\\\/]{2}$'},
    {"type": "string", "pattern": "needle", "maxLength": 14},
    *({"type": "string", "format": form} for form in ("date", "time", "date-time", "uuid", "ipv4", "email")),
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 3, "maxItems": 3},
    {"type": "array", "prefixItems": [{"const": "point"}, {"type": "integer"}, {"type": "integer"}],
     "items": False, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "boolean"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "maxItems": 0},
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "maxItems": 2},
    _closed(a=_closed(b=_closed(c=_closed(d={"type": "boolean"})))),
    _closed(**{"näme": {"type": "boolean"}, "with space": {"type": "null"}, 'q"uote': {"const": 1}}),
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}, "maxProperties": 3},
    {"type": "object", "patternProperties": {"^n_[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": False,
     "maxProperties": 3},
    {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a", "b"],
     "additionalProperties": {"type": "null"}, "maxProperties": 3},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 4}, _closed(x={"type": "null"})]},
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 5}, {"type": "integer", "minimum": 50, "maximum": 55}]},
    {"oneOf": [{"type": "boolean"}, {"type": "null"}, {"type": "array", "maxItems": 0}]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 8}]},
    {"allOf": [
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"], "maxProperties": 2},
    ]},
    {"$defs": {"flag": {"type": "boolean"}}, **_closed(x={"$ref": "#/$defs/flag"}, y={"$ref": "#/$defs/flag"})},
    {"title": "annotated", "description": "what it says", "default": 3, "examples": [1],
     "$comment": "none of it constrains", "type": "integer", "minimum": 1, "maximum": 3},
    {"type": "object", "properties": {"shapes": {"type": "array", "items": _SHAPE, "minItems": 1, "maxItems": 2}},
     "required": ["shapes"], "additionalProperties": False},
)  # fmt: skip

_NAMES = ("id", "name", "größe", "x y", "日付", "a-b", "items", "n1", "flag", "Ω")
_STRINGS = ("yes", "no", "naïve", "日本", "😀!", "a/b", 'say "hi"', "back\\slash", "")
_PATTERNS = (
    "^[a-z]{1,6}$",
    "^[A-Z][a-z]{0,4}$",
    "^v[0-9]{1,2}\\.[0-9]$",
    "^(ab|cd){1,3}$",
    "^#[0-9a-f]{6}$",
    "^é{1,3}$",
)
_FORMATS = ("date", "uuid", "ipv4", "time")


def generated(count: int, seed: int = 0) -> list[Schema]:
    """``count`` schemas; the first ones are the same whatever the count."""
    made = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        maker = _Maker(rng)
        schema = maker.schema(3)
        if maker.definitions:
            schema = {"$defs": maker.definitions, **schema}
        made.append(schema)
    return made


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.definitions: dict[str, Schema] = {}

    def schema(self, depth: int) -> Schema:
        leaves = (self.string, self.integer, self.number, self.enumeration, self.constant, self.plain)
        branches = (self.object, self.object, self.array, self.tuple, self.any_of, self.one_of, self.reference)
        return self.rng.choice(branches if depth == 3 or (depth and self.rng.random() < 0.5) else leaves)(depth)

    def string(self, _depth: int) -> Schema:
        match self.rng.randrange(4):
            case 0:
                return {"type": "string", "pattern": self.rng.choice(_PATTERNS)}
            case 1:
                return {"type": "string", "format": self.rng.choice(_FORMATS)}
            case 2:
                least = self.rng.randrange(4)
                return {"type": "string", "minLength": least, "maxLength": least + self.rng.randrange(6)}
        return {"type": ["string", "null"], "maxLength": self.rng.randrange(1, 9)}

    def integer(self, _depth: int) -> Schema:
        low = self.rng.randrange(-1000, 1000)
        made: Schema = {"type": "integer", "minimum": low, "maximum": low + self.rng.randrange(5, 10_000)}
        if self.rng.random() < 0.3:
            made["multipleOf"] = self.rng.choice([2, 3, 5])
        return made

    def number(self, _depth: int) -> Schema:
        low = self.rng.randrange(-400, 400) / 4
        kinds = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
        return {
            "type": "number",
            self.rng.choice(kinds[0]): low,
            self.rng.choice(kinds[1]): low + self.rng.randrange(4, 400) / 4,
        }

    def enumeration(self, _depth: int) -> Schema:
        values = [*self.rng.sample(_STRINGS, 3), *self.rng.sample([1, -2, 3.5, None, False], 2)]
        return {"enum": values[self.rng.randrange(3) :]}

    def constant(self, _depth: int) -> Schema:
        return {"const": self.rng.choice([*_STRINGS, 7, None, True, [1, "a"], {"k": None}])}

    def plain(self, _depth: int) -> Schema:
        return {"type": self.rng.choice(["boolean", "null"])}

    def object(self, depth: int) -> Schema:
        names = self.rng.sample(_NAMES, self.rng.randrange(1, 5))
        made: Schema = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        made["required"] = [name for name in names if self.rng.random() < 0.6]
        match self.rng.randrange(4):
            case 0:
                made |= {"required": names, "additionalProperties": self.schema(0), "maxProperties": len(names) + 1}
            case 1:
                made |= {"required": names, "additionalProperties": False, "maxProperties": len(names) + 1}
                made["patternProperties"] = {"^x_[a-z]{1,3}$": self.schema(0)}
            case _:
                made["additionalProperties"] = False
        return made

    def array(self, depth: int) -> Schema:
        least = self.rng.randrange(3)
        return {
            "type": "array",
            "items": self.schema(depth - 1),
            "minItems": least,
            "maxItems": least + self.rng.randrange(3),
        }

    def tuple(self, depth: int) -> Schema:
        prefix = [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]
        made: Schema = {"type": "array", "prefixItems": prefix, "items": False, "minItems": self.rng.randrange(4)}
        made["minItems"] = min(made["minItems"], len(prefix))
        if self.rng.random() < 0.3:
            made["items"] = self.schema(0)
            made["maxItems"] = len(prefix) + 1
        return made

    def any_of(self, depth: int) -> Schema:
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randrange(2, 4))]}

    def one_of(self, depth: int) -> Schema:
        """Of types that exclude each other."""
        kinds = [
            self.integer(0),
            {"type": "string", "maxLength": 6},
            {"type": "boolean"},
            {"type": "null"},
            {**self.array(depth), "items": {"type": "boolean"}},
        ]
        return {"oneOf": self.rng.sample(kinds, 3)}

    def reference(self, depth: int) -> Schema:
        name = f"d{len(self.definitions)}"
        if self.rng.random() < 0.3:
            again = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "maxItems": 2}
            self.definitions[name] = _closed(v=self.schema(0), more={"anyOf": [{"type": "null"}, again]})
        else:
            self.definitions[name] = {}
            self.definitions[name] = self.schema(max(0, depth - 1))
        return {"$ref": f"#/$defs/{name}"}
