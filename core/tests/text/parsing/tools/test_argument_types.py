"""Arguments in formats without types or without quotes: a string stays that string; the schema says what is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from text.parsing.drives import cuts, joined, parse

from octavo.text.parsing.parts import Tool
from octavo.text.parsing.tools.registry import BUILT_IN
from octavo.text.parsing.tools.schema import Schema

KINDS = {kind.name: kind for kind in BUILT_IN}
TEXTS = [
    "02134",
    "+49",
    "3.10",
    "1e5",
    '{"a": 1}',
    "[1]",
    "  leading",
    "trailing ",
    "true",
    "NaN",
    "",
    "None",
    '"x"',
    "12",
]

DEFS = {"Zip": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}, "a/b": {"anyOf": [{"type": "string"}]}}
STRINGS: list[Any] = [
    {"type": "string"},
    {"anyOf": [{"type": "string"}, {"type": "null"}]},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"type": ["string", "null"]},
    {"type": ["number", "string"]},
    {"type": "string", "nullable": True},
    {"allOf": [{"$ref": "#/$defs/Zip"}, {"description": "A code"}]},
    {"$ref": "#/$defs/Zip"},
    {"$ref": "#/$defs/a~1b"},
    {"$ref": "#/$defs/Loop"},
    {"$ref": "#/$defs/Missing"},
    {"$ref": "https://example.com/zip.json"},
    {"anyOf": [{"$ref": "#/$defs/Zip"}, {"type": "object"}]},
    {"not": {"type": "null"}},
    {"description": "A code"},
    {"type": "str"},
    {"type": "text"},
    {},
    True,
]


def parsed(kind: str, schema: dict[str, Any], text: str) -> Any:
    """The arguments of the one call in a text, whatever way it is cut."""
    tool = Tool("f", "", schema)
    found = {tuple(joined(parse(KINDS[kind].open([tool]), pieces))) for pieces in cuts(text)}
    assert len(found) == 1
    (call, (what, arguments)) = found.pop()
    assert (call, what) == (("call", "f"), "arguments")
    return json.loads(arguments)


def root(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, "$defs": DEFS}


def coder(text: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter=x>\n{text}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("schema", STRINGS, ids=json.dumps)
def test_a_parameter_that_may_be_a_string_is_that_string(schema: Any, text: str) -> None:
    tool = Tool("f", "", root(schema))
    for pieces in ([coder(text)], list(coder(text))):
        _, (_, arguments) = joined(parse(KINDS["qwen3_coder"].open([tool]), pieces))
        assert json.loads(arguments) == {"x": text}


@pytest.mark.parametrize("text", TEXTS[:-1])
def test_a_parameter_that_nothing_is_said_of_is_a_string(text: str) -> None:
    for schema in ({}, {"type": "object"}, {"properties": {"y": {"type": "integer"}}}, {"additionalProperties": True}):
        assert parsed("qwen3_coder", schema, coder(text)) == {"x": text}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "02134", 2134),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "3.10", 3.1),
        ({"type": "number"}, "NaN", "NaN"),  # which JSON has no number for
        ({"type": "number"}, "-Infinity", "-Infinity"),
        ({"type": "boolean"}, "True", True),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "int"}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "7", 7),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "null ", "null "),
        ({"type": ["string", "null"]}, "nullify", "nullify"),
        ({"type": "string", "nullable": True}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({}, "null", "null"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": ["1", "2"]}, "3", "3"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": [1, "1"]}, "1", "1"),
        ({"enum": [None, "02134"]}, "02134", "02134"),
        ({"enum": [None, "02134"]}, "null", None),
        ({"enum": [True, "auto"]}, "true", True),
        ({"const": "02134"}, "02134", "02134"),
        ({"const": 5}, "5", 5),
        ({"anyOf": [{"const": "auto"}, {"type": "integer"}]}, "5", 5),
        ({"anyOf": [{"const": "auto"}, {"type": "integer"}]}, "auto", "auto"),
        ({"not": {"type": "string"}}, "5", 5),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, "5", 5),
        (False, "5", 5),
    ],
)
def test_a_parameter_that_cannot_be_that_string_is_what_it_can_be(schema: Any, text: str, value: Any) -> None:
    [(_, found)] = parsed("qwen3_coder", root(schema), coder(text)).items()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/All", "$defs": {"All": {"properties": {"x": {"type": "integer"}}}}},
        {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {"type": "string"}}}]},
        {"anyOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {"type": "string"}}}]},
        {"additionalProperties": {"type": "integer"}},
        {"properties": {"x": {"type": ["integer", "string"]}}, "allOf": [{"properties": {"x": {"type": "integer"}}}]},
    ],
)
def test_a_parameter_is_found_wherever_the_schema_tells_of_it(schema: dict[str, Any]) -> None:
    assert parsed("qwen3_coder", schema, coder("5")) == {"x": 5}


BARE = [
    ({"type": "string"}, "02134", "02134"),
    ({"type": "string"}, "+49", "+49"),
    ({"type": "string"}, "3.10", "3.10"),
    ({"type": "string"}, "true", "true"),
    ({"type": "string"}, "12", "12"),
    ({"type": ["string", "null"]}, "3.10", "3.10"),
    ({"type": ["string", "null"]}, "null", None),
    ({"$ref": "#/$defs/Zip"}, "12", "12"),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"type": ["string", "integer"]}, "12", 12),
    ({"type": ["string", "integer"]}, "02134", "02134"),
    ({"type": "integer"}, "02134", 2134),
    ({"type": "integer"}, "+49", 49),
    ({}, "02134", "02134"),
    ({}, "+49", "+49"),
    ({}, "12", 12),
    ({}, "true", True),
]


@pytest.mark.parametrize(("schema", "text", "value"), BARE)
@pytest.mark.parametrize(
    ("kind", "call"),
    [("gemma", "<start_function_call>call:f{{x:{}}}<end_function_call>"), ("pythonic", "[f(x={})]")],
)
def test_a_word_without_quotes_is_what_the_schema_says(
    kind: str, call: str, schema: Any, text: str, value: Any
) -> None:
    [(_, found)] = parsed(kind, root(schema), call.format(text)).items()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("gemma", "<start_function_call>call:f{x:[02134,12],y:{z:007}}<end_function_call>"),
        ("pythonic", "[f(x=[02134, 12], y={'z': 007})]"),
    ],
)
def test_words_inside_of_lists_and_objects_have_schemas_too(kind: str, text: str) -> None:
    strings = {"type": "array", "items": {"type": "string"}}
    schema = {"properties": {"x": strings, "y": {"properties": {"z": {"type": "string"}}}}}
    assert parsed(kind, schema, text) == {"x": ["02134", "12"], "y": {"z": "007"}}


def test_digits_of_a_number_are_kept_as_they_are_written() -> None:
    tool = Tool("f", "", root({"type": "number"}))
    for kind, text in (
        ("qwen3_coder", coder("3.10")),
        ("gemma", "<start_function_call>call:f{x:3.10}<end_function_call>"),
        ("pythonic", "[f(x=3.10)]"),
    ):
        assert joined(parse(KINDS[kind].open([tool]), [text]))[1] == ("arguments", '{"x": 3.10}')


def test_a_string_is_told_as_it_comes() -> None:
    for schema in ({"type": "string"}, {"type": ["string", "null"]}, {}):
        parser = KINDS["qwen3_coder"].open([Tool("f", "", root(schema))])
        text = coder("Rome, the city")
        told = joined(part for character in text[: text.index(" city")] for part in parser.push(character))
        assert told == [("call", "f"), ("arguments", '{"x": "Rome, the')]


def test_no_schema_is_too_odd() -> None:
    for odd in (
        {"properties": []},
        {"properties": {"x": {"enum": "abc", "type": 5, "anyOf": {}, "allOf": [], "oneOf": "x", "$ref": 5}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}, 5, None]},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"properties": {"x": {"$ref": "#/allOf/7"}}, "allOf": []},
    ):
        assert parsed("qwen3_coder", odd, coder("02134")) == {"x": "02134"}
        assert Schema(odd).property("x").item().property("y").admits("z")
