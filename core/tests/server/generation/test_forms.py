"""What answers are held to: the grammars, tried on texts with the library that will enforce them."""

from __future__ import annotations

import json

import pytest
from llguidance import LLMatcher, LLTokenizer
from server_fake import FakeTokenizer
from text.parsing.drives import TIME, TOOLS, WEATHER, loaded, parse

from octavo.errors import RequestError
from octavo.server.generation.constraints import constraint_of
from octavo.server.generation.parsers import Parsers
from octavo.structured_output import StructuredOutput
from octavo.text.parsing.parts import Tool
from octavo.text.parsing.reasoning.between import THINK
from octavo.text.parsing.tools.registry import BUILT_IN

BYTES = LLTokenizer("byte")
FORCEABLE = [kind for kind in BUILT_IN if kind.grammar is not None]
KINDS = {kind.name: kind for kind in BUILT_IN}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}

DEEPSEEK, DEEPSEEK_END = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
TEXTS = {
    "hermes": ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>', "\n"),
    "mistral": ('[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Rome"}}]', None),
    "deepseek_v3": (
        f'{DEEPSEEK}function<｜tool▁sep｜>get_weather\n```json\n{{"city": "Rome"}}\n```{DEEPSEEK_END}',
        None,
    ),
    "deepseek_v31": (
        f'{DEEPSEEK}get_weather<｜tool▁sep｜>{{"city": "Rome"}}{DEEPSEEK_END}',
        None,
    ),
    "llama3_json": ('{"name": "get_weather", "parameters": {"city": "Rome"}}', "; "),
    "json": ('{"name": "get_weather", "arguments": {"city": "Rome"}}', "\n"),
}


def parsers(reasoning=None) -> Parsers:
    return Parsers(FakeTokenizer(), None, reasoning)


def form(
    asked=None, kind="hermes", tools=TOOLS, reasoning=None, must_call=False, several=True, inside=False
) -> StructuredOutput | None:
    return constraint_of(
        asked,
        tools,
        KINDS[kind] if tools else None,
        parsers(reasoning),
        must_call=must_call,
        several=several,
        inside=inside,
    )


def accepts(form: StructuredOutput | None, text: str) -> bool:
    assert form is not None
    grammar = LLMatcher.grammar_from_lark(form.grammar)
    failed, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    assert not failed, messages
    matcher, data = LLMatcher(BYTES, grammar), list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def test_every_kind_that_can_be_forced_has_a_text_here() -> None:
    assert {kind.name for kind in FORCEABLE} == TEXTS.keys()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_calls_are_forced_as_the_parser_reads_them(name: str) -> None:
    text, between = TEXTS[name]
    forced = form(kind=name, must_call=True)
    assert accepts(forced, text)
    assert loaded(parse(KINDS[name].open(TOOLS), [text])) == [("call", "get_weather"), ("arguments", {"city": "Rome"})]
    for wrong in (
        "",
        "Hello",
        text + " Hello",
        text.replace("get_weather", "get_wind"),
        text.replace("Rome", "Rome", 1).replace('"Rome"', "5"),
        text.replace('"city": "Rome"', ""),
        text.replace('"city"', '"town"'),
    ):
        assert not accepts(forced, wrong), wrong
    if between is not None:
        assert accepts(forced, text + between + text)
        assert not accepts(form(kind=name, must_call=True, several=False), text + between + text)


def test_a_tool_without_parameters_is_called_without_arguments() -> None:
    forced = form(kind="json", tools=[TIME], must_call=True)
    assert accepts(forced, '{"name": "get_time", "arguments": {}}')
    assert not accepts(forced, '{"name": "get_time", "arguments": {"a": 1}}')


def test_what_a_schema_asks_in_vain_is_an_error_for_strict_tools_alone() -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "format": "idn-email"}}, "required": ["a"]}
    text = '{"name": "f", "arguments": {"a": "x"}}'
    assert accepts(form(kind="json", tools=[Tool("f", "", odd)], must_call=True), text)
    with pytest.raises(AssertionError, match="idn-email"):
        accepts(form(kind="json", tools=[Tool("f", "", odd, strict=True)], must_call=True), text)


def test_no_text_of_a_schema_passes_for_another_kind_of_grammar() -> None:
    odd = {
        "type": "object",
        "properties": {"a": {"const": "x ::= y"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    forced = form(kind="json", tools=[Tool("f", "root ::= x", odd)], must_call=True)
    assert "::=" not in forced.grammar
    assert accepts(forced, '{"name": "f", "arguments": {"a": "x ::= y"}}')


def test_thoughts_come_before_what_is_forced() -> None:
    text = TEXTS["hermes"][0]
    free = form(reasoning=THINK, must_call=True)
    assert accepts(free, text)
    assert accepts(free, f"<think>\nHm <tool_call> {{\n</think>\n\n{text}")
    assert not accepts(free, f"Hm</think>\n\n{text}")
    inside = form(reasoning=THINK, must_call=True, inside=True)
    assert accepts(inside, f"\nHm {{</think>\n\n{text}")
    assert not accepts(inside, text)
    assert not accepts(inside, f"Hm</think> So {text}")


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        (StructuredOutput(json=SCHEMA), '{"a": 1}', '{"a": "1"}'),
        (StructuredOutput(json=True), "[1]", "x"),
        (StructuredOutput(json_object=True), '{"b": [1]}', "[1]"),
        (StructuredOutput(choice=["yes", 'n"o']), 'n"o', "no"),
        (StructuredOutput(regex=r"^a/b\d+\$$"), "a/b12$", "a/b"),
        (StructuredOutput(regex="a\nb"), "a\nb", "ab"),
    ],
)
def test_a_form_of_the_client_s_may_be_a_call_instead_and_follow_thoughts(asked, right: str, wrong: str) -> None:
    call = TEXTS["hermes"][0]
    either = form(asked)
    assert accepts(either, right)
    assert accepts(either, call)
    assert not accepts(either, wrong)
    assert not accepts(either, right + call)
    thinking = form(asked, tools=(), reasoning=THINK, inside=True)
    assert accepts(thinking, "Hm.</think>\n" + right)
    assert not accepts(thinking, "Hm.</think>\n" + wrong)
    assert form(asked, tools=()) is asked


def test_grammars_stay_as_they_are_and_do_not_go_with_tools() -> None:
    asked = StructuredOutput(grammar='start: "a"', param="structured_outputs")
    assert form(asked, tools=(), reasoning=THINK, inside=True) is asked
    with pytest.raises(RequestError, match="structured_outputs") as caught:
        form(asked)
    assert caught.value.param == "structured_outputs"
    with pytest.raises(RequestError, match="tool_choice"):
        form(asked, must_call=True)
    with pytest.raises(RequestError, match="tools"):
        form(StructuredOutput(json_object=True), kind="gemma")


def test_strict_tools_hold_calls_to_their_schema_once_one_begins() -> None:
    strict = Tool("get_weather", "", WEATHER.parameters, strict=True)
    tag = json.loads(form(tools=[strict, TIME]).structural_tag)
    assert tag["triggers"] == ["<tool_call>"]
    assert [s["begin"] for s in tag["structures"]] == [
        '<tool_call>\n{"name": "get_weather", "arguments": ',
        '<tool_call>\n{"name": "get_time", "arguments": ',
    ]
    assert [s["schema"] for s in tag["structures"]] == [WEATHER.parameters, {"type": "object"}]
    assert form(tools=TOOLS) is None
    assert form(kind="llama3_json", tools=[strict]) is None  # nothing marks its calls


def test_markers_that_are_special_tokens_stand_by_number() -> None:
    tokenizer = FakeTokenizer()
    held = Parsers(tokenizer, KINDS["hermes"], None)
    held.__dict__["special"] = {"<tool_call>": 300}
    grammar = KINDS["hermes"].grammar
    assert grammar is not None
    assert 'call_0: <[300]> "\\n" "{\\"name\\": \\"get_time\\", \\"arguments\\": "' in grammar.rules(
        [TIME], held.literal, several=False
    )


def test_the_classes_of_a_regex_beside_reasoning_are_ascii() -> None:
    parsers = Parsers(FakeTokenizer(), None, THINK)

    def held(regex: str) -> StructuredOutput | None:
        asked = StructuredOutput(regex=regex, param="structured_outputs.regex")
        return constraint_of(asked, (), None, parsers, must_call=False, several=True, inside=False)

    made = held(r"^\d+/\w$")
    assert made is not None and made.grammar is not None
    assert r"constrained: /[0-9]+\/[0-9A-Za-z_]/" in made.grammar
    with pytest.raises(RequestError, match="range up to") as caught:
        held(r"[a-\d]")
    assert caught.value.param == "structured_outputs.regex"


def test_a_schema_beside_reasoning_is_enforced_exactly_or_refused() -> None:
    parsers = Parsers(FakeTokenizer(), None, THINK)

    def held(schema: dict[str, object]) -> StructuredOutput | None:
        asked = StructuredOutput(json=schema, param="response_format")
        return constraint_of(asked, (), None, parsers, must_call=False, several=True, inside=False)

    with pytest.raises(RequestError, match="minProperties 2") as caught:
        held({"type": "object", "minProperties": 2})
    assert caught.value.param == "response_format"
    made = held({"type": "array", "uniqueItems": False})
    assert made is not None and "uniqueItems" not in str(made.grammar)
