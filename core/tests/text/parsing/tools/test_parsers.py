"""Every way of writing tool calls: what is found, whatever the pieces of text, and that nothing is ever too odd."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from text.parsing.drives import TOOLS, cuts, joined, loaded, parse

from octavo.errors import ConfigError
from octavo.text.parsing.parts import CallBegins
from octavo.text.parsing.tools import ToolParser, tool_parser_for, tool_parser_named
from octavo.text.parsing.tools.registry import BUILT_IN

KINDS = {kind.name: kind for kind in BUILT_IN}
BYTES = LLTokenizer("byte")
AN_OBJECT = LLMatcher.grammar_from_json_schema('{"type": "object"}')

ROME = ("call", "get_weather"), ("arguments", {"city": "Rome", "days": 2})
NOW = ("call", "get_time"), ("arguments", {})
OBJECT = '{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}'
DS = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
DS_ALL, DS_ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
ARGUMENTS = '{"city": "Rome", "days": 2}'
IN_FENCE = f"{DS[0]}function{DS[1]}get_weather\n```json\n{ARGUMENTS}\n```{DS[2]}"
GEMMA = "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:2}<end_function_call>"
CODER = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
    "</function>\n</tool_call>"
)

CASES = [
    # one call, and words around it
    ("hermes", f"<tool_call>\n{OBJECT}\n</tool_call>", [*ROME]),
    (
        "hermes",
        f"I look. \n\n<tool_call>\n{OBJECT}\n</tool_call> Done.",
        [("words", "I look."), *ROME, ("words", " Done.")],
    ),
    ("llama3_json", OBJECT.replace("arguments", "parameters"), [*ROME]),
    ("llama3_json", "<|python_tag|>" + OBJECT, [*ROME]),
    ("mistral", f"[TOOL_CALLS] [{OBJECT}]", [*ROME]),
    ("mistral", 'Well.[TOOL_CALLS]get_weather[ARGS]{"city": "Rome", "days": 2}', [("words", "Well."), *ROME]),
    ("mistral", '[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{"city": "Rome", "days": 2}', [*ROME]),
    ("mistral", '[TOOL_CALLS]get_weather{"city": "Rome", "days": 2}', [*ROME]),
    (
        "deepseek_v3",
        f"{DS_ALL}{IN_FENCE}{DS_ALL_END}",
        [*ROME],
    ),
    ("deepseek_v31", f'{DS_ALL}{DS[0]}get_weather{DS[1]}{{"city": "Rome", "days": 2}}{DS[2]}{DS_ALL_END}', [*ROME]),
    ("gemma", GEMMA, [*ROME]),
    ("gemma", 'Ok <|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>', [("words", "Ok"), *ROME]),
    ("pythonic", "[get_weather(city='Rome', days=2)]", [*ROME]),
    ("pythonic", '<|python_start|>[get_weather("Rome", 2)]<|python_end|>', [*ROME]),
    ("pythonic", "<|python_start|>" + OBJECT + "<|python_end|>", [*ROME]),
    ("qwen3_coder", CODER, [*ROME]),
    ("pythonic", "[get_weather(: city='Rome', :, days=2)]", [*ROME]),
    ("qwen3_coder", CODER.replace("tool_call>", "seed:tool_call>"), [*ROME]),
    ("json", OBJECT, [*ROME]),
    ("json", f"I call:\n```json\n{OBJECT}\n```\n", [("words", "I call:"), *ROME, ("words", "\n")]),
    # several
    ("hermes", f'<tool_call>{OBJECT}</tool_call>\n<tool_call>{{"name": "get_time"}}</tool_call>', [*ROME, *NOW]),
    ("hermes", f'<tool_call>[{OBJECT}, {{"name": "get_time"}}]</tool_call>', [*ROME, *NOW]),
    ("hermes", f'<tool_call>{OBJECT}\n{{"name": "get_time"}}</tool_call>', [*ROME, *NOW]),
    ("llama3_json", OBJECT + '; {"name": "get_time", "parameters": {}}', [*ROME, *NOW]),
    ("mistral", f'[TOOL_CALLS] [{OBJECT}, {{"name": "get_time", "arguments": {{}}}}]', [*ROME, *NOW]),
    ("mistral", '[TOOL_CALLS]get_weather{"city": "Rome", "days": 2}[TOOL_CALLS]get_time{}', [*ROME, *NOW]),
    (
        "deepseek_v31",
        f"{DS_ALL}{DS[0]}get_weather{DS[1]}{ARGUMENTS}{DS[2]}{DS[0]}get_time{DS[1]}{{}}{DS[2]}{DS_ALL_END}",
        [*ROME, *NOW],
    ),
    (
        "deepseek_v3",
        f"{DS_ALL}{IN_FENCE}\n{DS[0]}function{DS[1]}get_time\n```json\n{{}}\n```{DS[2]}{DS_ALL_END}",
        [*ROME, *NOW],
    ),
    (
        "gemma",
        f"{GEMMA}<start_function_call>call:get_time{{}}<end_function_call><start_function_response>",
        [*ROME, *NOW],
    ),
    ("pythonic", "[get_weather(city='Rome', days=2), get_time()]", [*ROME, *NOW]),
    ("qwen3_coder", CODER + "\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>", [*ROME, *NOW]),
    # shapes that models make of it
    ("hermes", '<tool_call>{"arguments": {"city": "Rome", "days": 2}, "name": "get_weather"}</tool_call>', [*ROME]),
    ("hermes", '<tool_call>{"name": "get_time", "arguments": null}</tool_call>', [*NOW]),
    ("hermes", '<tool_call>{"name": "get_time", "arguments": ""}</tool_call>', [*NOW]),
    ("hermes", '<tool_call>{"id": [1, {"a": "}"}], "type": "function", "name": "get_time"}</tool_call>', [*NOW]),
    ("hermes", f'<tool_call>{{"type": "function", "function": {OBJECT}}}</tool_call>', [*ROME]),
    ("hermes", f"<tool_call>{OBJECT}}}\n</tool_call>", [*ROME]),
    ("hermes", f"<tool_call>{OBJECT[:-1]}</tool_call> Done.", [*ROME, ("words", " Done.")]),
    ("hermes", f"<tool_call>{OBJECT}", [*ROME]),
    (
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"R\\\\u00f6m \\ud83d\\ude00\\"}"}</tool_call>',
        [("call", "get_weather"), ("arguments", {"city": "Röm 😀"})],
    ),
    (
        "hermes",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "</tool_call> \\"{["}}</tool_call>',
        [("call", "get_weather"), ("arguments", {"city": '</tool_call> "{['})],
    ),
    (
        "pythonic",
        (
            r"""[get_weather(city="it's\n\u00e9 \"x\"", days=[1, -2.5, (True, None), {'a': {'b': 1}, 3: 'c'}], """
            "more=x + f(1, ')'))]"
        ),
        [
            ("call", "get_weather"),
            (
                "arguments",
                {
                    "city": 'it\'s\né "x"',
                    "days": [1, -2.5, [True, None], {"a": {"b": 1}, "3": "c"}],
                    "more": 'x + f(1, ")")',
                },
            ),
        ],
    ),
    (
        "gemma",
        '<|tool_call>call:get_weather{city:<|"|>a\n"b" {,<|"|>,l:[1,<|"|>x<|"|>,{k:true}],n:null}<tool_call|>',
        [("call", "get_weather"), ("arguments", {"city": 'a\n"b" {,', "l": [1, "x", {"k": True}], "n": None})],
    ),
    (
        "qwen3_coder",
        (
            '<function=get_weather>\n<parameter=city>\n\nSay "hi"\n  <b>\n</parameter>\n'
            '<parameter=other>{"a": [1]}</parameter></function>'
        ),
        [("call", "get_weather"), ("arguments", {"city": '\nSay "hi"\n  <b>', "other": '{"a": [1]}'})],
    ),
    ("json", f"```\n[{OBJECT}]\n```", [*ROME]),
]

WORDS = [
    ("hermes", "Use <tool_call> and </tool_call> so.  "),
    ("hermes", ' <tool_call>{"name": 5}</tool_call>'),
    ("hermes", '<tool_call>{"name": "get_w'),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
    ("hermes", "<tool_call>\n```json"),
    ("hermes", "a <tool_cal"),
    ("llama3_json", '{"name": "Ann", "parameters": {}}'),
    ("llama3_json", ' {"answer": 42} '),
    ("llama3_json", "<|python_tag|>print(1)"),
    ("llama3_json", "No. " + OBJECT),
    ("mistral", "[TOOL_CALLS] nothing"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", '[TOOL_CALLS][{"nme": "get_time"}]'),
    ("mistral", "[1, 2] [TOOL"),
    ("deepseek_v3", f"{DS_ALL} so"),
    ("deepseek_v3", f"{DS[0]}function{DS[1]}get_time\nnothing"),
    ("deepseek_v3", f"{DS[2]}{DS_ALL_END}"),
    ("gemma", "<start_function_call>get_time{}"),
    ("gemma", "<end_function_call> x"),
    ("pythonic", "[x for x in y]"),
    ("pythonic", "[print('a')]"),
    ("pythonic", "[get_weather, get_time]"),
    ("pythonic", " <|python_start|> "),
    ("qwen3_coder", "<tool_call> <function=> </function>"),
    ("qwen3_coder", "<function=a b>"),
    ("json", '{"name": "Ann", "arguments": {}}'),
    ("json", "```python\n{'a': 1}\n```\n\n```json\n{\"a\": 1}\n```"),
    ("json", "Is " + OBJECT),
]


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_calls_are_found_wherever_the_text_is_cut(name: str, text: str, expected) -> None:
    for pieces in cuts(text):
        assert loaded(parse(KINDS[name].open(TOOLS), pieces)) == expected, pieces


@pytest.mark.parametrize(("name", "text"), WORDS)
def test_what_is_no_call_is_words_to_the_character(name: str, text: str) -> None:
    for pieces in cuts(text):
        assert joined(parse(KINDS[name].open(TOOLS), pieces)) == [("words", text)], pieces


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_call_is_told_once_it_is_named_and_its_arguments_as_they_come(name: str) -> None:
    text = WRITERS[name]({"city": "Rome", "days": 2})
    parser = KINDS[name].open(TOOLS)
    begun = seen = 0
    for at, character in enumerate(text):
        for part in parser.push(character):
            if isinstance(part, CallBegins):
                begun = at
            elif not seen:
                seen = at
    named = text.index("get_weather") + len("get_weather")
    assert named - 1 <= begun <= named + len('", "parameters": {') or name == "deepseek_v3"
    assert begun <= seen <= text.index("Rome")


def test_a_call_that_is_cut_short_keeps_what_came() -> None:
    text = f"<tool_call>\n{OBJECT}"
    for end in range(text.index("Rome"), len(text)):
        [call, (_, arguments)] = joined(parse(KINDS["hermes"].open(TOOLS), [text[:end]]))
        assert call == ("call", "get_weather")
        assert '{"city": "Rome", "days": 2}'.startswith(arguments)


def test_arguments_that_are_no_json_pass_as_they_are() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {city: \'Rome\',}}</tool_call> Done'
    assert joined(parse(KINDS["hermes"].open(TOOLS), text)) == [
        ("call", "get_weather"),
        ("arguments", "{city: 'Rome',}"),
        ("words", " Done"),
    ]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_ids_are_unique_and_mistral_s_are_of_its_own_kind(name: str) -> None:
    both = [*ROME, *NOW]
    text = next(
        text for kind, text, expected in CASES if kind == name and expected == ([*ROME] if name == "json" else both)
    )
    ids = [p.id for _ in range(50) for p in parse(KINDS[name].open(TOOLS), [text]) if isinstance(p, CallBegins)]
    assert len(set(ids)) == len(ids) >= 50
    if name == "mistral":
        assert all(len(i) == 9 and i.isalnum() for i in ids)
    else:
        assert all(i.startswith("call_") for i in ids)


ODD = st.lists(
    st.sampled_from(
        (
            *sorted({marker for kind in BUILT_IN for marker in kind.markers}),
            *("<function=", "</function>", "<parameter=", "</parameter>", ">", "```", "```json\n", "call:", "function"),
            *("get_weather", "get_time", "name", "arguments", "parameters", "city", "days", "Rome", "null", "True"),
            *"{}[]()\"':,;=\\ \n<|-1.e",
            *(
                '"name": ',
                '"get_time"',
                '{"name": "get_time", "arguments": {',
                "[get_time(",
                '\\"',
                "\\u12",
                "\\ud83d",
                "é😀",
            ),
        )
    )
    | st.text(max_size=3),
    max_size=25,
).map("".join)


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
@settings(max_examples=300, deadline=None)
@given(text=ODD, seed=st.integers(0, 2**32))
def test_no_text_is_too_odd(kind: ToolParser, text: str, seed: int) -> None:
    whole = joined(parse(kind.open(TOOLS), [text]))
    assert joined(parse(kind.open(TOOLS), text)) == whole
    for pieces in list(cuts(text, seed))[-3:]:
        assert joined(parse(kind.open(TOOLS), pieces)) == whole
    if all(part != "call" for part, _ in whole):
        assert "".join(said for _, said in whole) == text
    assert all(isinstance(said, str) and said for _, said in whole)
    for _, said in whole:
        said.encode()


DELIMITERS = {
    "qwen3_coder": ("</parameter>", "</function>", "</tool_call>", "</seed:tool_call>"),
    "gemma": ("<escape>",),
}
"""What a string cannot hold in formats that have no escapes; hypothesis finds such constants in the code."""


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.name)
@settings(max_examples=100, deadline=None)
@given(
    city=st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    days=st.integers(-(10**6), 10**6),
    more=st.recursive(
        st.none() | st.booleans() | st.integers(-100, 100) | st.text(st.characters(codec="ascii"), max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
        max_leaves=6,
    ),
    seed=st.integers(0, 2**32),
)
def test_arguments_come_out_as_they_were_meant(kind: ToolParser, city: str, days: int, more, seed: int) -> None:
    assume(not any(mark in city for mark in DELIMITERS.get(kind.name, ())))
    meant = {"city": city, "days": days, "more": more}
    text = WRITERS[kind.name](meant)
    # What has no schema is the text that was written, where the format has no types of its own.
    expected = meant | {"more": json.dumps(more)} if kind.name == "qwen3_coder" else meant
    for pieces in list(cuts(text, seed))[-3:]:
        got = loaded(parse(kind.open(TOOLS), pieces))
        assert got == [("call", "get_weather"), ("arguments", expected)], text


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("pythonic", "[get_weather("),
        ("gemma", "<|tool_call>call:get_weather{"),
        ("qwen3_coder", "<tool_call><function=get_weather>"),
    ],
)
@settings(max_examples=200, deadline=None)
@given(rest=ODD)
def test_arguments_that_are_made_into_json_are_json_as_far_as_they_go(name: str, start: str, rest: str) -> None:
    found = joined(parse(KINDS[name].open(TOOLS), [start + rest]))
    arguments = found[1][1] if len(found) > 1 and found[1][0] == "arguments" else ""
    # llguidance's JSON has no raw U+007F in its strings; RFC 8259, section 7, allows it.
    matcher, data = LLMatcher(BYTES, AN_OBJECT), list(arguments.replace("\x7f", "x").encode())
    assert matcher.try_consume_tokens(data) == len(data), arguments


def _object(arguments, key: str = "arguments") -> str:
    return json.dumps({"name": "get_weather", key: arguments})


def _gemma(value) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma, value)) + "]"
    return f"<escape>{value}<escape>" if isinstance(value, str) else json.dumps(value)


def _coder(arguments) -> str:
    texts = {key: item if key == "city" else json.dumps(item) for key, item in arguments.items()}
    inside = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    return f"<tool_call>\n<function=get_weather>\n{inside}</function>\n</tool_call>"


WRITERS = {
    "hermes": lambda a: f"<tool_call>\n{_object(a)}\n</tool_call>",
    "llama3_json": lambda a: _object(a, "parameters"),
    "mistral": lambda a: f"[TOOL_CALLS]get_weather[ARGS]{json.dumps(a)}",
    "deepseek_v3": lambda a: f"{DS[0]}function{DS[1]}get_weather\n```json\n{json.dumps(a)}\n```{DS[2]}",
    "deepseek_v31": lambda a: f"{DS_ALL}{DS[0]}get_weather{DS[1]}{json.dumps(a)}{DS[2]}{DS_ALL_END}",
    "gemma": lambda a: f"<start_function_call>call:get_weather{_gemma(a)}<end_function_call>",
    "pythonic": lambda a: "[get_weather(" + ", ".join(f"{k}={v!r}" for k, v in a.items()) + ")]",
    "qwen3_coder": _coder,
    "json": _object,
}


def test_parsing_takes_linear_time_in_steps() -> None:
    """What is pending never grows with the text: each character is looked at a bounded number of times."""
    for name, text in (
        ("hermes", "<tool_call>" * 3000),
        ("hermes", '<tool_call>{"arguments": ' + "[" * 20000),
        ("mistral", "[TOOL_CALLS]" + "a" * 20000),
        ("pythonic", "[get_weather(a=" + "[(" * 10000),
        ("gemma", "<|tool_call>call:get_time{a:" + "[" * 20000),
        ("json", "``" + "`" * 20000),
    ):
        parser = KINDS[name].open(TOOLS)
        for character in text:
            parser.push(character)
            assert parser._feed.rest < 100, name
        parser.finish()


def test_names_are_known_and_an_unknown_one_is_told() -> None:
    assert tool_parser_named("hermes") is KINDS["hermes"]
    assert tool_parser_named("none") is None
    with pytest.raises(ConfigError, match=r"'mine'.*hermes.*--tool-parser"):
        tool_parser_named("mine")


def test_a_plugin_s_parser_is_known_by_name_and_asked_first() -> None:
    mine = ToolParser("mine", KINDS["json"].open, claims=lambda template: "<tool_call>" in template)
    plugged = ("a family", mine)
    assert tool_parser_named("mine", plugged) is mine
    assert tool_parser_for("so <tool_call>", plugged) is mine
    assert tool_parser_for("<|python_tag|>", plugged) is KINDS["llama3_json"]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("... within <tool_call></tool_call> XML tags ...", "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=x>", "qwen3_coder"),
        ("<seed:tool_call>\n<function=example>", "qwen3_coder"),
        ("[AVAILABLE_TOOLS] ... [TOOL_CALLS]", "mistral"),
        ("<｜tool▁calls▁begin｜> ... ```json", "deepseek_v3"),
        ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
        ("<start_function_declaration> <start_function_call>", "gemma"),
        ("<|tool_call>call:", "gemma"),
        ('<|start_header_id|> {"name": function name, "parameters": dict} "parameters": ', "llama3_json"),
        ("<|python_tag|>", "llama3_json"),
        ("<|python_start|>", "pythonic"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("<|im_start|>", "json"),
        (None, "json"),
    ],
)
def test_the_chat_template_chooses(template: str | None, name: str) -> None:
    found = tool_parser_for(template)
    assert found is not None
    assert found.name == name
