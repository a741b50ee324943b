"""Keywords that ask nothing are taken out of a schema, and a validator sees no difference."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from octavo.text.grammar.source import ll_grammar
from octavo.text.grammar.vacuous import without_vacuous

EVERYWHERE = {
    "title": "t",
    "description": "d",
    "default": {"uniqueItems": True},
    "examples": [{"not": {}}],
    "$comment": "c",
    "deprecated": True,
    "readOnly": True,
    "writeOnly": False,
    "contentEncoding": "base64",
    "contentMediaType": "application/json",
    "contentSchema": {"not": {}},
    "format": "int32",
    "minLength": 0,
    "maxLength": 5.0,
    "minItems": 0,
    "minProperties": 0,
    "uniqueItems": False,
    "minContains": 3,
    "maxContains": 1,
    "unevaluatedProperties": True,
    "unevaluatedItems": {},
    "additionalProperties": True,
    "propertyNames": {"type": "string", "description": "a name"},
    "patternProperties": {},
    "dependentRequired": {"a": []},
    "dependentSchemas": {"a": True},
    "dependencies": {"a": [], "b": {}},
    "allOf": [],
    "not": False,
    "if": {"type": "string"},
    "$dynamicAnchor": "here",
}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}, "b": True}, "required": ["a", "b"]}
LIST = {"type": "array", "items": {"type": "integer"}}
PART = [
    *({key: value} for key, value in EVERYWHERE.items()),
    {"uniqueItems": True, "maxItems": 1},
    {"uniqueItems": True, "maxItems": 2},
    {"contains": True, "minContains": 2},
    {"contains": {}, "maxContains": 1, "minItems": 1},
    {"contains": {"type": "string"}, "minContains": 0},
    {"contains": {"type": "string"}},
    {"unevaluatedProperties": False, "properties": {"a": True}},
    {"unevaluatedProperties": {"type": "string"}, "allOf": [{"properties": {"a": True}}]},
    {"unevaluatedProperties": False, "additionalProperties": {"type": "string"}},
    {"unevaluatedItems": False, "prefixItems": [True]},
    {"unevaluatedItems": False, "contains": {"type": "string"}},
    {"unevaluatedItems": {"type": "string"}, "items": True},
    {"if": {"type": "string"}, "then": {}, "else": {"title": "x"}},
    {"if": {"type": "string"}, "then": {"maxLength": 1}},
    {"not": {"title": "all"}},
    {"not": {"type": "string", "uniqueItems": False}},
    {"propertyNames": {"maxLength": 1}},
    {"dependentRequired": {"a": ["b"]}, "required": ["b"]},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"const": {"uniqueItems": False, "not": False}},
    {"enum": [{"if": True}, 1]},
    {"minLength": 2.0},
]
VALUES: list[Any] = [None, 1, "x", "yy", "", [], [1], [1, 1], ["x", "x"], ["x", 1], [None, "x"], {}]
VALUES += [{"a": 1}, {"a": "x"}, {"b": 1}, {"a": "x", "b": 2}, {"bb": 1}, {"c": "x"}]
VALUES += [{"uniqueItems": False, "not": False}, {"if": True}]


@pytest.mark.parametrize("key", EVERYWHERE)
@pytest.mark.parametrize("base", [OBJECT, LIST, {"type": "string"}], ids=["object", "array", "string"])
def test_a_keyword_that_asks_nothing_is_accepted(base: dict[str, Any], key: str) -> None:
    for schema in ({**base, key: EVERYWHERE[key]}, {"anyOf": [{**base, key: EVERYWHERE[key]}, {"type": "null"}]}):
        grammar = ll_grammar("json", json.dumps(schema), {})
        assert LLMatcher.validate_grammar(grammar) == ""


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.sampled_from(PART), min_size=1, max_size=3), inside=st.sampled_from(["", "items", "a"]))
def test_a_validator_sees_no_difference(parts: list[dict[str, Any]], inside: str) -> None:
    schema: Any = {key: value for part in parts for key, value in part.items()}
    if inside:
        schema = {"properties": {"a": schema}} if inside == "a" else {"items": schema}
    before, after = (jsonschema.Draft202012Validator(s) for s in (schema, without_vacuous(schema)))
    for value in VALUES:
        assert before.is_valid(value) == after.is_valid(value), (value, without_vacuous(schema))


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "array", "contains": {"type": "string"}}, "contains"),
        ({"not": {"type": "null"}}, "not"),
        ({"if": {"type": "string"}, "then": {"maxLength": 1}}, "if"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"allOf": [{"type": "object"}], "unevaluatedProperties": False}, "unevaluatedProperties"),
        ({"type": "string", "format": "regex"}, "format"),
        ({"$dynamicRef": "#x", "$defs": {"x": {"$dynamicAnchor": "x"}}}, "$dynamicRef"),
    ],
)
def test_a_keyword_that_asks_something_stays(schema: dict[str, Any], keyword: str) -> None:
    assert without_vacuous(schema) == schema
    assert keyword.lstrip("$") in LLMatcher.validate_grammar(ll_grammar("json", json.dumps(schema), {}))


def test_what_is_equal_to_another_keyword_becomes_that() -> None:
    assert without_vacuous({"unevaluatedProperties": False}) == {"additionalProperties": False}
    assert without_vacuous({"prefixItems": [True], "unevaluatedItems": False}) == {
        "prefixItems": [True],
        "items": False,
    }
    assert without_vacuous({"prefixItems": [True], "contains": True, "unevaluatedItems": False}) == {
        "prefixItems": [True],
        "minItems": 1,
    }
    assert without_vacuous({"contains": True, "minContains": 2, "maxContains": 3}) == {"minItems": 2, "maxItems": 3}
