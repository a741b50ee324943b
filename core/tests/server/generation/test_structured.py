"""What requests ask of the form of their output, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from server_fake import FakeEngine

from octavo.errors import RequestError
from octavo.server.generation.structured import structured_output
from octavo.structured_output import StructuredOutput

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}], "triggers": ["<a>"]}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, StructuredOutput(json_object=True)),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "strict": True, "schema": SCHEMA},
                }
            },
            StructuredOutput(json=SCHEMA),
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": True}}}, StructuredOutput(json=True)),
        ({"response_format": TAG}, StructuredOutput(structural_tag=TAG)),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, StructuredOutput(json=SCHEMA)),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA, "json_schema": None}},
            StructuredOutput(json=SCHEMA),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, StructuredOutput(json=SCHEMA)),
        ({"structured_outputs": {"json": '{"type": "null"}'}}, StructuredOutput(json={"type": "null"})),
        ({"structured_outputs": {"regex": "a+", "json": None}}, StructuredOutput(regex="a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutput(choice=["a", "b"])),
        ({"structured_outputs": {"grammar": "start: x"}}, StructuredOutput(grammar="start: x")),
        ({"structured_outputs": {"json_object": True, "disable_fallback": True}}, StructuredOutput(json_object=True)),
        ({"structured_outputs": {"json_object": False, "regex": "b"}}, StructuredOutput(regex="b")),
        ({"structured_outputs": {"structural_tag": TAG}}, StructuredOutput(structural_tag=TAG)),
        ({"structured_outputs": {}}, None),
        ({"response_format": {"type": "text"}, "structured_outputs": {"regex": "c"}}, StructuredOutput(regex="c")),
    ],
)
def test_both_apis_take_both_fields(served, engine: FakeEngine, fields: dict[str, Any], expected: Any) -> None:
    assert served.chat(**fields).status == 200
    assert served.complete(**fields).status == 200
    assert [seen.params.structured for seen in engine.seen] == [expected, expected]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": []}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_object", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema",
        ),
        ({"response_format": {"type": "json_object", "schema": 1}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "schema": SCHEMA}},
            "response_format.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "regex": "a"}}},
            "response_format.json_schema.regex",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": "yes"}}},
            "response_format.json_schema.strict",
        ),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": " *"}}, "structured_outputs.whitespace_pattern"),
        (
            {"structured_outputs": {"json": {}, "disable_any_whitespace": True}},
            "structured_outputs.disable_any_whitespace",
        ),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "response_format"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": ["x"] * 300}, "bad_words"),
    ],
)
def test_what_is_malformed_is_a_400_that_names_it(
    served, engine: FakeEngine, fields: dict[str, Any], param: str
) -> None:
    for reply in (served.chat(**fields), served.complete(**fields)):
        assert (reply.status, reply.error["param"]) == (400, param)
    assert not engine.seen


def test_the_responses_api_s_flat_form_is_read_too() -> None:
    flat = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
    assert structured_output(flat, None, param="text.format", flat=True) == StructuredOutput(json=SCHEMA)
    with pytest.raises(RequestError, match=r"'text\.format\.schema'") as caught:
        structured_output({"type": "json_schema", "name": "n"}, None, param="text.format", flat=True)
    assert caught.value.param == "text.format.schema"


def test_tokens_to_allow_and_words_to_forbid_reach_the_engine(served, engine: FakeEngine) -> None:
    served.chat(allowed_token_ids=[3, 4], bad_words=["x", "y z"])
    served.complete(bad_words=[])
    first, second = (seen.params for seen in engine.seen)
    assert (first.allowed_token_ids, first.bad_words) == ((3, 4), ("x", "y z"))
    assert (second.allowed_token_ids, second.bad_words) == (None, None)
