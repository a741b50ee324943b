"""Answers that end anywhere inside of their calls: what is told is a beginning of the whole, or all of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text.parsing.drives import TOOLS as PLAIN_TOOLS
from text.parsing.drives import cuts, joined, parse
from text.parsing.tools.written import TOOLS, WRITERS, parser_name, some_calls

from octavo.text.parsing.parts import CallArguments, CallBegins, CallCut, ContentText, Part, Unsettled
from octavo.text.parsing.tools.registry import BUILT_IN

KINDS = {kind.name: kind for kind in BUILT_IN}


def read(parts: Iterable[Part]) -> tuple[list[tuple[str, str]], list[int], str, str]:
    """Calls with their arguments, the numbers of those that were cut, text, and text that the end left open."""
    calls: list[tuple[str, str]] = []
    cut: list[int] = []
    text = unsettled = ""
    for part in parts:
        match part:
            case CallBegins(_, _, name):
                calls.append((name, ""))
            case CallArguments(index, more):
                calls[index] = (calls[index][0], calls[index][1] + more)
            case CallCut(index):
                cut.append(index)
            case Unsettled(more):
                unsettled += more
            case ContentText(more):
                text += more
    return calls, cut, text, unsettled


@pytest.mark.parametrize("way", WRITERS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_told_of_a_cut_call_is_what_was_written(way: str, seed: int) -> None:
    meant = some_calls(random.Random(seed))
    written = WRITERS[way](meant)
    kind = KINDS[parser_name(way)]
    whole, cut, text, _ = read(parse(kind.open(TOOLS), [written]))
    assert [(name, json.loads(arguments)) for name, arguments in whole] == meant, written
    assert not cut
    for end in range(len(written)):
        calls, cut, text, _ = read(parse(kind.open(TOOLS), [written[:end]]))
        for (name, arguments), (full_name, full) in zip(calls, whole, strict=False):
            assert name == full_name
            assert full.startswith(arguments), written[:end]
        assert [i for i, call in enumerate(calls) if call != whole[i] and i not in cut] == [], written[:end]
        assert cut in ([], [len(calls) - 1])
        assert text.strip(" \n`json") == "", written[:end]
        assert read(parse(kind.open(TOOLS), written[:end]))[:3] == (calls, cut, text)


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("hermes", '<tool_call>{"name": "get_time"', ""),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": ', ""),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": nul', ""),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": {"a": 1', '{"a": 1'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": {"a": 1</tool_c', '{"a": 1'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": {"a": "</tool_c', '{"a": "</tool_c'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": {"a": 1}', '{"a": 1}'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": "{\\"a\\": \\"\\u00', '{"a": "'),
        ("hermes", '<tool_call>{"name": "get_time", "arguments": "{\\"a\\": \\"\\ud83d\\ud', '{"a": "'),
        ("llama3_json", '{"name": "get_time"', ""),
        ("llama3_json", '{"name": "get_time", "parameters": {"a', '{"a'),
        ("mistral", '[TOOL_CALLS][{"name": "get_time"', ""),
        ("mistral", "[TOOL_CALLS]get_time[AR", ""),
        ("mistral", "[TOOL_CALLS]get_time[ARGS]", ""),
        ("mistral", '[TOOL_CALLS]get_time[ARGS]{"a": [TOOL_C', '{"a": '),
        ("deepseek_v31", "<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>", ""),
        ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n``", ""),
        ("deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{", "{"),
        ("gemma", "<start_function_call>call:get_time{", "{"),
        ("gemma", "<start_function_call>call:get_time{a:<escape>x<esc", '{"a": "x'),
        ("pythonic", "[get_time(", ""),
        ("pythonic", "[get_time(a", ""),
        ("pythonic", "[get_time(a=", '{"a": '),
        ("pythonic", "[get_time(a='x\\x4", '{"a": "x'),
        ("pythonic", "[get_time(a=''", '{"a": "'),
        ("qwen3_coder", "<tool_call>\n<function=get_time>\n", ""),
        ("qwen3_coder", "<tool_call>\n<function=get_time>\n<parameter=a>\nx\n</para", '{"a": "x'),
        ("qwen3_coder", "<tool_call>\n<function=get_time>\n<parameter=a>\nx\n</parameter>\n</func", '{"a": "x"'),
        ("json", '{"name": "get_time"', ""),
    ],
)
def test_a_cut_call_has_the_arguments_that_were_written(name: str, text: str, arguments: str) -> None:
    for pieces in cuts(text):
        assert read(parse(KINDS[name].open(PLAIN_TOOLS), pieces)) == ([("get_time", arguments)], [0], "", "")


@pytest.mark.parametrize(
    ("name", "text", "settled", "unsettled"),
    [
        ("hermes", "a <tool_cal", "a", " <tool_cal"),
        ("hermes", '<tool_call>{"name": "get_w', "", '<tool_call>{"name": "get_w'),
        ("hermes", '<tool_call>{"title": "x', "", '<tool_call>{"title": "x'),
        ("mistral", "[TOOL_CALLS] get_t", "", "[TOOL_CALLS] get_t"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁c", "", "<｜tool▁calls▁begin｜><｜tool▁c"),
        ("gemma", "<start_function_call>cal", "", "<start_function_call>cal"),
        ("qwen3_coder", "<tool_call>\n<func", "", "<tool_call>\n<func"),
        ("qwen3_coder", "<tool_call>\n<function=get", "", "<tool_call>\n<function=get"),
        ("pythonic", "[get_wea", "", "[get_wea"),
        ("pythonic", "[get it", "[get it", ""),
        ("json", '{"name": "get_w', "", '{"name": "get_w'),
        ("json", '{"title": "x', '{"title": "x', ""),
        ("json", "so `a`", "so `a`", ""),
        ("llama3_json", '{"name": "Ann', '{"name": "Ann', ""),
    ],
)
def test_what_the_end_left_open_is_told_from_text(name: str, text: str, settled: str, unsettled: str) -> None:
    for pieces in cuts(text):
        assert read(parse(KINDS[name].open(PLAIN_TOOLS), pieces)) == ([], [], settled, unsettled)


def test_half_a_closing_marker_behind_a_call_is_left_open() -> None:
    text = '<tool_call>{"name": "get_time", "arguments": {}}\n</tool_ca'
    assert read(parse(KINDS["hermes"].open(PLAIN_TOOLS), text)) == ([("get_time", "{}")], [], "", "</tool_ca")


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        ("hermes", '<tool_call>{"name": "get_time", "arguments": 5</tool_call>', "5"),
        ("mistral", '[TOOL_CALLS][{"name": "get_time", "arguments": 5[TOOL_CALLS]', "5"),
        ("llama3_json", '{"name": "get_time", "parameters": 5<|python_tag|>', "5"),
        ("gemma", "<start_function_call>call:get_time{a:5<end_function_call>", '{"a": '),
    ],
)
def test_a_marker_right_behind_a_scalar_ends_it(name: str, text: str, arguments: str) -> None:
    for pieces in cuts(text):
        calls, _, _, _ = read(parse(KINDS[name].open(PLAIN_TOOLS), pieces))
        assert calls == [("get_time", arguments)]


@pytest.mark.parametrize("escapes", ["\\udc00\\udc00", "\\ud800\\ud800", "\\udc00\\ud800", "\\ud800x"])
def test_halves_of_characters_in_arguments_are_each_replaced(escapes: str) -> None:
    text = '<tool_call>{"name": "get_time", "arguments": "{\\"a\\": \\"' + escapes + '\\"}"}</tool_call>'
    replaced = "\ufffd\ufffd" if not escapes.endswith("x") else "\ufffdx"
    for pieces in cuts(text):
        assert joined(parse(KINDS["hermes"].open(PLAIN_TOOLS), pieces))[1] == ("arguments", f'{{"a": "{replaced}"}}')
