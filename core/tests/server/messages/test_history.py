"""Conversations of the Messages API as the chat API has them."""

from __future__ import annotations

import pytest

from octavo.errors import RequestError
from octavo.server.messages.history import chat_messages

CALLS = [
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "é"}},
    {"type": "tool_use", "id": "t2", "name": "go", "input": {}},
]


def result(call_id: str, content: object = "seen", **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def test_calls_thoughts_and_results_have_their_places() -> None:
    chat, goes_on = chat_messages(
        None,
        [
            {"role": "user", "content": "Look"},
            {"role": "assistant", "content": CALLS},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And now?"},
                    result("t2", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
                    result("t1", "no door", is_error=True),
                ],
            },
        ],
    )
    assert not goes_on
    assert chat == [
        {"role": "user", "content": "Look"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at":"é"}'}},
                {"id": "t2", "type": "function", "function": {"name": "go", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t2", "name": "go", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "t1", "name": "look", "content": "Error: no door"},
        {"role": "user", "content": "And now?"},
    ]


def test_neighbours_of_one_role_are_one_turn() -> None:
    chat, goes_on = chat_messages(
        None,
        [
            {"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            {"role": "assistant", "content": CALLS[3:4]},
            {"role": "assistant", "content": CALLS[4:5]},
            {"role": "user", "content": [result("t1", None)]},
            {"role": "user", "content": [result("t2", "")]},
        ],
    )
    assert not goes_on
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool"]
    assert (chat[0]["content"], len(chat[1]["tool_calls"]), chat[2]["content"]) == ("a\nb\nc", 2, "")


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("Be brief.", "Be brief."),
        ([{"type": "text", "text": "Be brief."}, {"type": "text", "text": "And kind."}], "Be brief.\nAnd kind."),
        ([{"type": "text", "text": "x-anthropic-billing-header: v=1"}, {"type": "text", "text": "Be."}], "Be."),
        ([{"type": "text", "text": "x-anthropic-billing-header: v=1"}], None),
        ("", None),
        ([], None),
        (None, None),
    ],
)
def test_the_system_prompt_comes_first(system: object, text: str | None) -> None:
    chat, _ = chat_messages(system, [{"role": "user", "content": "Hi"}])
    first = [] if text is None else [{"role": "system", "content": text}]
    assert chat == [*first, {"role": "user", "content": "Hi"}]


def test_instructions_may_come_later() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "system", "content": [{"type": "text", "text": "Be."}]}]
    chat, goes_on = chat_messages(None, messages)
    assert (chat[-1], goes_on) == ({"role": "system", "content": "Be."}, False)


@pytest.mark.parametrize(
    ("content", "goes_on"),
    [("The best is (", True), ("", False), ([], False), ([{"type": "thinking", "thinking": "hm"}], False)],
)
def test_an_answer_goes_on_if_it_has_begun(content: object, goes_on: bool) -> None:
    chat, going = chat_messages(None, [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}])
    assert going is goes_on
    assert len(chat) == 1 + goes_on


def test_what_is_missing_is_named() -> None:
    messages = [{"role": "assistant", "content": CALLS}, {"role": "user", "content": [result("t1")]}]
    with pytest.raises(RequestError, match=r"without a tool_result.*: t2"):
        chat_messages(None, messages)
    with pytest.raises(RequestError, match="'t9', which no tool_use"):
        chat_messages(None, [{"role": "user", "content": [result("t9")]}])
    with pytest.raises(RequestError, match=r"end.*: t1, t2"):
        chat_messages(None, messages[:1])


@pytest.mark.parametrize(
    ("given", "arguments"), [('{"at": "do', '{"at": "do'), ([1], "[1]"), ({"at": "é"}, '{"at":"é"}'), ({}, "{}")]
)
def test_what_the_model_wrote_in_place_of_an_input_is_kept(given: object, arguments: str) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look around", "input": given}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result("t1")]}]
    chat, _ = chat_messages(None, messages)
    assert chat[0]["tool_calls"][0]["function"] == {"name": "look around", "arguments": arguments}
    assert chat[1]["name"] == "look around"
