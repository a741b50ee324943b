"""Input items: read strictly, and made into the messages of a turn."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import RequestError
from octavo.server.responses.items import FunctionCall, Message, Reasoning, decode_item, encode_item, sealed, unsealed
from octavo.server.responses.messages import chat_messages, check_calls, continued, cuts
from octavo.server.responses.read_items import Reference, read_items

CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
_KEYS = ["type", "role", "content", "id", "call_id", "name", "arguments", "output", "summary", "text", "status"]
TEXT = {"type": "input_text", "text": "x"}


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (3, "input[0]"),
        ({}, "input[0].type"),
        ({"type": "computer_call"}, "input[0].type"),
        ({"type": "message", "content": "x"}, "input[0].role"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": 3}, "input[0].content"),
        ({"role": "user", "content": [TEXT, 3]}, "input[0].content[1]"),
        ({"role": "user", "content": [TEXT, {"type": "input_image", "image_url": "x"}]}, "input[0].content[1].type"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, "input[0].content[0].type"),
        ({"role": "assistant", "content": [TEXT]}, "input[0].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        ({"role": "user", "content": "x", "status": "done"}, "input[0].status"),
        ({"role": "user", "content": "x", "id": 3}, "input[0].id"),
        ({"role": "user", "content": "x", "id": "a b"}, "input[0].id"),
        ({**CALL, "call_id": None}, "input[0].call_id"),
        ({**CALL, "name": 3}, "input[0].name"),
        ({**CALL, "name": ""}, "input[0].name"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "call_id": "c1"}, "input[0].output"),
        ({**OUTPUT, "output": [{"type": "input_image"}]}, "input[0].output[0].type"),
        ({"type": "reasoning", "encrypted_content": "gAAAA"}, "input[0].encrypted_content"),
        ({"type": "reasoning", "encrypted_content": "octavo1.%%%"}, "input[0].encrypted_content"),
        ({"type": "reasoning", "content": [TEXT]}, "input[0].content[0].type"),
        ({"type": "item_reference"}, "input[0].id"),
    ],
)
def test_an_item_that_cannot_be_is_refused_by_its_place(item, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_items([item])
    assert caught.value.param == param and param in str(caught.value)


def test_items_are_stored_as_they_are_read() -> None:
    items = read_items(
        [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "y"}, {"type": "refusal", "refusal": "z"}],
            },
            CALL,
            {**OUTPUT, "output": [TEXT]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": sealed("t")},
        ]
    )
    assert [decode_item(encode_item(item)) for item in items] == items
    assert json.loads(encode_item(items[2])) == {**CALL, "id": items[2].id, "status": "completed"}
    assert [item.id.partition("_")[0] for item in items] == ["msg", "msg", "fc", "fco", "rs"]


def test_ids_of_a_client_are_kept() -> None:
    [item] = read_items([{"role": "user", "content": "x", "id": "msg_7", "status": "incomplete"}])
    assert isinstance(item, Message) and (item.id, item.status) == ("msg_7", "incomplete")


@pytest.mark.parametrize("text", ["", "reasoning", "Gedanken über 😀\n"])
def test_sealed_reasoning_is_read_again(text: str) -> None:
    assert unsealed(sealed(text)) == text


def _messages(*items, instructions: str | None = None) -> list[dict[str, Any]]:
    return chat_messages(instructions, read_items(list(items)))


def test_one_turn_of_the_model_is_one_message() -> None:
    messages = _messages(
        {"role": "user", "content": "x"},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "think"}]},
        {"role": "assistant", "content": "Let me see."},
        CALL,
        {**CALL, "call_id": "c2"},
        OUTPUT,
        {**OUTPUT, "call_id": "c2", "output": [TEXT, TEXT]},
        {"type": "reasoning", "encrypted_content": sealed("again")},
        {"role": "assistant", "content": "2"},
        {"role": "assistant", "content": "more"},
        instructions="I",
    )
    function = {"name": "add", "arguments": '{"a": 1}'}
    assert messages == [
        {"role": "system", "content": "I"},
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "think",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "function", "function": function},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "tool", "tool_call_id": "c2", "content": "x\nx"},
        {"role": "assistant", "content": "2", "reasoning_content": "again"},
        {"role": "assistant", "content": "more"},
    ]


def test_a_call_before_its_text_is_the_same_message() -> None:
    [message, _] = _messages(CALL, {"role": "assistant", "content": "So."}, OUTPUT)
    assert message["content"] == "So." and len(message["tool_calls"]) == 1


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([CALL], "No tool output found for function call 'c1' of 'add'"),
        ([OUTPUT], "'c1' is not in the input before its output"),
        ([OUTPUT, CALL], "'c1' is not in the input before its output"),
        ([CALL, OUTPUT, OUTPUT], "'c1' has an output already"),
        ([CALL, CALL, OUTPUT], "'c1' appears twice"),
        ([CALL, OUTPUT, CALL], "'c1' appears twice"),
    ],
)
def test_calls_and_outputs_belong_together(items, what: str) -> None:
    with pytest.raises(RequestError, match=what):
        check_calls(read_items(items))
    check_calls(read_items([CALL, OUTPUT]))


def test_a_call_that_was_cut_short_is_not_continued() -> None:
    cut = FunctionCall(id="fc_1", call_id="c", name="add", arguments='{"a', status="incomplete")
    thought = Reasoning(id="rs_1", status="incomplete")
    assert continued([thought, cut]) == [thought]


def test_a_conversation_is_cut_before_its_user_s_messages() -> None:
    user = {"role": "user", "content": "x"}
    items = read_items(
        [{"role": "system", "content": "s"}, user, CALL, OUTPUT, user, {"role": "assistant", "content": "y"}]
    )
    assert cuts(items) == [0, 1, 4]
    assert cuts(items[:1]) == [0]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["message", "user", "reasoning"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_KEYS) | st.text(), inner),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.sampled_from(_KEYS), _JSON)) | _JSON)
def test_no_input_breaks_the_reader(value) -> None:
    with contextlib.suppress(RequestError):
        items = read_items(value)
        assert all(isinstance(item, Reference) or decode_item(encode_item(item)) == item for item in items)
