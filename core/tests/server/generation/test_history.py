"""Earlier calls and their results, as clients send them back."""

from __future__ import annotations

import pytest
from tool_server import USER, ToolServer

from octavo.errors import RequestError
from octavo.server.generation.history import for_template
from octavo.server.generation.prompts import normalise_messages


def call(call_id="c1", name="f", arguments="{}") -> dict:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*calls: dict) -> dict:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id="c1", content="ok") -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_templates_get_arguments_as_objects_and_results_with_their_function_s_name() -> None:
    messages = [
        *USER,
        asked(call("c1", "f", '{"a": [1, "\\u00e9"]}'), call("c2", "g", "")),
        result("c2", [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]),
        result("c1", ""),
        {"role": "assistant", "content": "So."},
    ]
    assert normalise_messages(messages)[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("c1", "f", {"a": [1, "é"]}), call("c2", "g", {})],
        },
        {"role": "tool", "content": "x\ny", "tool_call_id": "c2", "name": "g"},
        {"role": "tool", "content": "", "tool_call_id": "c1", "name": "f"},
        {"role": "assistant", "content": "So."},
    ]


def test_the_old_way_to_call_becomes_the_new_one() -> None:
    messages = [
        *USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}},
        {"role": "function", "name": "f", "content": "ok"},
    ]
    _, asking, answering = normalise_messages(messages)
    [made] = asking["tool_calls"]
    assert made["function"] == {"name": "f", "arguments": {"a": 1}}
    assert answering == {"role": "tool", "name": "f", "content": "ok", "tool_call_id": made["id"]}
    assert len(made["id"]) == 9


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([result()], "messages[1].tool_call_id"),
        ([{"role": "tool", "content": "x"}], "messages[1].tool_call_id"),
        ([{"role": "tool", "content": "x", "tool_call_id": 5}], "messages[1].tool_call_id"),
        ([asked(call()), result("c2")], "messages[2].tool_call_id"),
        ([asked(call()), result(), result()], "messages[3].tool_call_id"),
        ([asked(call("c1"), call("c2")), result("c1")], "messages[1].tool_calls"),
        ([asked(call("c1"), call("c2")), result("c1"), *USER, result("c2")], "messages[1].tool_calls"),
        ([asked(call())], "messages[1].tool_calls"),
        ([asked(call()), *USER], "messages[1].tool_calls"),
        ([asked(call("c1"), call("c1")), result()], "messages[1].tool_calls[1].id"),
        ([asked(call(""))], "messages[1].tool_calls[0].id"),
        ([asked(call(None))], "messages[1].tool_calls[0].id"),
        ([asked("f")], "messages[1].tool_calls[0]"),
        ([asked(call() | {"type": "custom"})], "messages[1].tool_calls[0].type"),
        ([asked({"id": "c1"})], "messages[1].tool_calls[0].function"),
        ([asked(call(name=""))], "messages[1].tool_calls[0].function.name"),
        ([asked(call(name=5))], "messages[1].tool_calls[0].function.name"),
        ([asked(call(arguments=5))], "messages[1].tool_calls[0].function.arguments"),
        ([asked(call("c1", "f", "{"), call("c2"))], "messages[1].tool_calls"),
        ([{"role": "assistant", "tool_calls": "f"}], "messages[1].tool_calls"),
        (
            [{"role": "assistant", "function_call": {"name": "f", "arguments": ["x"]}}],
            "messages[1].function_call.arguments",
        ),
        ([{"role": "assistant", "function_call": {"name": "f"}}], "messages[1].function_call"),
        ([{"role": "function", "name": "f", "content": "x"}], "messages[1].name"),
        (
            [{"role": "assistant", "function_call": {"name": "f"}}, {"role": "function", "name": "g", "content": "x"}],
            "messages[2].name",
        ),
        ([asked(call()), {"role": "function", "name": "f", "content": "x"}], "messages[2].name"),
        ([asked(call()), {"role": "tool", "tool_call_id": "c1"}], "messages[2].content"),
    ],
)
def test_a_history_that_does_not_fit_is_a_400_that_names_the_place(messages, param: str) -> None:
    assert ToolServer().refusal(messages=[*USER, *messages])["param"] == param


def test_a_call_may_have_the_id_of_one_that_was_answered() -> None:
    assert len(normalise_messages([asked(call()), result(), asked(call()), result()])) == 4


def test_each_template_gets_ids_and_arguments_as_it_wants_them() -> None:
    messages = normalise_messages(
        [asked(call("call_abc", "f", '{"a":1}'), call("abc123XYZ")), result("abc123XYZ"), result("call_abc")]
    )
    [made, *results] = for_template(messages, calls_as_text=True, short_ids=True)
    assert [c["id"] for c in made["tool_calls"]] == ["call00000", "abc123XYZ"]
    assert [r["tool_call_id"] for r in results] == ["abc123XYZ", "call00000"]
    assert made["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert made["content"] is None
    assert for_template(messages, calls_as_text=False, short_ids=False) == messages


def test_an_empty_list_of_calls_is_no_call() -> None:
    assert normalise_messages([{"role": "assistant", "content": "x", "tool_calls": []}]) == [
        {"role": "assistant", "content": "x"}
    ]
    with pytest.raises(RequestError, match=r"'messages\[0\]\.tool_calls' must be an array of calls"):
        normalise_messages([{"role": "assistant", "tool_calls": {"id": "x"}}])


BROKEN = [
    '{"city": "Ro',
    '{"city": "a\nb"}',
    '{"city": NaN}',
    '["Rome"]',
    '"Rome"',
    "{city: 'Rome'}",
    '{"a":' * 60 + "1" + "}" * 60,
    "[" * 100_000,
    '{"half": "\\ud83d"}',
]


@pytest.mark.parametrize("arguments", BROKEN)
def test_arguments_that_are_no_object_stay_the_text_that_they_are(arguments: str) -> None:
    _, asking, _, _ = normalise_messages([*USER, asked(call(arguments=arguments)), result(), *USER])
    assert asking["tool_calls"] == [call(arguments=arguments)]


def test_a_name_that_no_tool_could_have_is_served() -> None:
    _, asking, answering = normalise_messages([*USER, asked(call(name="get weather!")), result(content="unknown tool")])
    assert (asking["tool_calls"][0]["function"]["name"], answering["name"]) == ("get weather!", "get weather!")


@pytest.mark.parametrize("arguments", ['{"city": "Ro', ""])
def test_a_call_that_nobody_could_make_needs_no_result_and_becomes_text(arguments: str) -> None:
    complete = call("c1", "f", '{"a": 1}')
    messages = [*USER, asked(complete, call("c2", "g", arguments)), result("c1"), *USER]
    _, asking, answering, _ = normalise_messages(messages)
    said = '{"name": "g", "arguments": ' + (arguments or "{}}")
    assert asking == {
        "role": "assistant",
        "content": said,
        "tool_calls": [call("c1", "f", {"a": 1})],
    }
    assert answering["tool_call_id"] == "c1"
    alone = normalise_messages([*USER, asked(call("c2", "g", arguments)) | {"content": "So."}, *USER])
    assert alone[1] == {"role": "assistant", "content": f"So.\n{said}"}


def test_text_stays_text_for_templates_that_want_arguments_as_text() -> None:
    messages = normalise_messages(
        [*USER, asked(call("c1", "f", '{"ci'), call("c2", "f", '{"a":1}')), result(), result("c2")]
    )
    shown = for_template(messages, calls_as_text=True, short_ids=False)
    assert [made["function"]["arguments"] for made in shown[1]["tool_calls"]] == ['{"ci', '{"a": 1}']
