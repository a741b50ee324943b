"""POST /v1/messages as events, and what the official client's accumulator makes of them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_fake import SEPARATOR, FakeEngine

from octavo.server import ServerSettings
from octavo.server.messages.writer import read_input

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
ASK: dict[str, Any] = {"model": "fake", "max_tokens": 100, "messages": HI}


def events(served: Any, **fields: Any) -> list[tuple[str, Any]]:
    """Names and data of a stream's events."""
    reply = served.request("POST", "/v1/messages", ASK | {"stream": True} | fields)
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in reply.body.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert value["type"] == name.removeprefix("event: ")
        found.append((value.pop("type"), value))
    return found


def test_the_events_of_a_plain_answer(served, engine: FakeEngine) -> None:
    engine.cached = 2
    prompt = len("user:Hi|assistant:enable_thinking=False;thinking=False;") + 1
    usage = {"input_tokens": prompt - 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 2}
    text = {"type": "text", "text": "", "citations": None}
    [(first, start), *rest] = events(served, max_tokens=2)
    assert first == "message_start"
    message = start["message"]
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | {"output_tokens": 0},
    }
    assert rest == [
        ("ping", {}),
        ("content_block_start", {"index": 0, "content_block": text}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": ","}}),
        ("content_block_stop", {"index": 0}),
        (
            "message_delta",
            {
                "delta": {"stop_reason": "max_tokens", "stop_sequence": None},
                "usage": usage | {"output_tokens": 2, "output_tokens_details": {"thinking_tokens": 0}},
            },
        ),
        ("message_stop", {}),
    ]


def test_each_kind_of_block_begins_and_ends(served, say) -> None:
    say('(so)I[look {"a":1}][look {}]!')
    found = events(served, tools=[TOOL], thinking={"type": "enabled", "budget_tokens": 1024})
    told = [
        (name, data.get("index"), data.get("delta", data.get("content_block", {})).get("type")) for name, data in found
    ]
    assert told[2:-2] == [
        ("content_block_start", 0, "thinking"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, "text"),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("content_block_start", 2, "tool_use"),
        *[("content_block_delta", 2, "input_json_delta")] * (1 + len('{"a":1}')),
        ("content_block_stop", 2, None),
        ("content_block_start", 3, "tool_use"),
        *[("content_block_delta", 3, "input_json_delta")] * (1 + len("{}")),
        ("content_block_stop", 3, None),
        ("content_block_start", 4, "text"),
        ("content_block_delta", 4, "text_delta"),
        ("content_block_stop", 4, None),
    ]


ANSWERS = [
    "Hello",
    "",
    "(so)Yes",
    "(so)",
    '[look {"at": "é"}]',
    'I look[look {"at": "x"}][look {}].',
    '(a)b(c)[look {"at": "(y)"}](d)',
    '[look {"at": "cut o',
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("thinking", [None, "enabled", "adaptive", "disabled", "omitted"])
def test_the_accumulated_stream_is_the_whole_message(claude: anthropic.Anthropic, say, answer, thinking) -> None:
    say(answer or "()")
    fields: dict[str, Any] = ASK | {"tools": [TOOL]}
    if thinking == "omitted":
        fields["thinking"] = {"type": "adaptive", "display": "omitted"}
    elif thinking is not None:
        fields["thinking"] = {"type": thinking}
    whole = claude.messages.create(**fields)
    with claude.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == "".join(block.text for block in whole.content if block.type == "text")
    ignored = {"id": True, "content": {"__all__": {"parsed_output"}}}
    assert streamed.model_dump(exclude=ignored) == whole.model_dump(exclude=ignored)


def assembled(served: Any, **fields: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The blocks of a stream, put together by hand, and its last delta; checks that blocks begin once and end once."""
    blocks: list[dict[str, Any]] = []
    ended: list[int] = []
    last: dict[str, Any] = {}
    for name, data in events(served, **fields):
        if name == "content_block_start":
            assert data["index"] == len(blocks)
            blocks.append(data["content_block"] | {"json": ""})
        elif name == "content_block_delta":
            assert data["index"] not in ended
            delta, block = data["delta"], blocks[data["index"]]
            kind = delta.pop("type").removesuffix("_delta")
            (text,) = delta.values()
            block["json" if kind == "input_json" else kind] += text
        elif name == "content_block_stop":
            ended.append(data["index"])
        elif name == "message_delta":
            last = data
    assert sorted(ended) == list(range(len(blocks)))
    return blocks, last


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answer=st.text('ab()[] {}:1"é', min_size=1, max_size=40), limit=st.integers(1, 40))
def test_any_answer_is_the_same_as_a_stream(served, say, answer: str, limit: int) -> None:
    say(answer)
    fields = {"tools": [TOOL], "thinking": {"type": "adaptive"}, "max_tokens": limit}
    whole = served.request("POST", "/v1/messages", ASK | fields).json
    blocks, last = assembled(served, **fields)
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = read_input(text)
    assert blocks == whole["content"]
    assert last == {
        "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
        "usage": whole["usage"],
    }


def test_calls_are_numbered_in_their_order_whatever_a_parser_numbers_them(served, say) -> None:
    say("[][ ")  # the parser of these tests counts the first, which has no name, and tells the second alone
    whole = served.request("POST", "/v1/messages", ASK | {"tools": [TOOL]})
    assert whole.status == 200
    [call] = whole.json["content"]
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "", {})
    [block], last = assembled(served, tools=[TOOL])
    assert (block["type"], block["name"], block["json"]) == ("tool_use", "", "")
    assert last["delta"]["stop_reason"] == whole.json["stop_reason"] == "tool_use"
    chat = served.chat(tools=[{"type": "function", "function": {"name": "look"}}])
    assert len(chat.json["choices"][0]["message"]["tool_calls"]) == 1
    events = served.chat(tools=[{"type": "function", "function": {"name": "look"}}], stream=True).events
    assert [call["index"] for e in events for call in e["choices"][0]["delta"].get("tool_calls", ())] == [0]


def test_the_client_s_helper_sees_inputs_grow(claude: anthropic.Anthropic, say) -> None:
    say('[look {"at": "door", "to": "x"}]')
    with claude.messages.stream(**ASK, tools=[TOOL]) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "input_json"]
    assert snapshots[-1] == {"at": "door", "to": "x"}
    assert {"at": "door"} in snapshots


async def test_the_asynchronous_client_streams(served, say) -> None:
    say('(so)Yes[look {"at": "door"}]')
    url = served.url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as claude:
        async with claude.messages.stream(**ASK, tools=[TOOL]) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            message = await stream.get_final_message()
    assert text == "Yes"
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert (message.content[1].input, message.stop_reason) == ({"at": "door"}, "tool_use")


def test_raw_events_come_through_create_too(claude: anthropic.Anthropic) -> None:
    kinds = [event.type for event in claude.messages.create(**ASK, stream=True)]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])


def test_line_separators_do_not_cut_an_event(served, engine: FakeEngine) -> None:
    engine.script = (SEPARATOR,)
    [text] = [data["delta"]["text"] for name, data in events(served) if name == "content_block_delta"]
    assert text == "\u2028"


def test_a_failure_before_the_first_token_is_a_status(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.fail_at = 0
    with (
        pytest.raises(anthropic.InternalServerError, match="its log has the reason under the request id") as caught,
        claude.messages.stream(**ASK) as stream,
    ):
        stream.get_final_message()
    assert caught.value.body["error"]["type"] == "api_error"


def test_a_failure_in_the_midst_is_an_error_event(served, claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.fail_at = 2
    reply = served.request("POST", "/v1/messages", ASK | {"stream": True}, {"x-request-id": "mine"})
    assert reply.status == 200
    name, data = reply.body.decode().removesuffix("\n\n").split("\n\n")[-1].split("\n")
    error = json.loads(data.removeprefix("data: "))
    assert name == "event: error"
    assert (error["type"], error["error"]["type"], error["request_id"]) == ("error", "api_error", "mine")
    assert "secret" not in error["error"]["message"]
    with (
        pytest.raises(anthropic.APIStatusError, match="its log has the reason under the request id"),
        claude.messages.stream(**ASK) as stream,
    ):
        stream.get_final_message()


def test_a_client_that_goes_away_ends_its_turn(claude: anthropic.Anthropic, engine: FakeEngine) -> None:
    engine.pause = 0.05
    with claude.messages.stream(**ASK) as stream:
        next(iter(stream))
    engine.wait_until(lambda: engine.ended and not engine.running)


def test_a_real_model_s_way_of_writing_is_understood(serve) -> None:
    engine = FakeEngine()
    engine.tokenizer.template = "has a place for tools"
    engine.script = tuple(
        b"<think>\nso\n</think>\n\nI look.\n<tool_call>\n"
        b'{"name": "look", "arguments": {"at": "x", "n": [1, {}]}}\n</tool_call>'
    )
    fields = ASK | {"tools": [TOOL], "thinking": {"type": "adaptive"}, "max_tokens": 500}
    chosen = ServerSettings(tool_parser="hermes", reasoning_parser="think")
    with serve(engine, chosen) as served:
        url = served.url.removesuffix("/v1")
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as claude:
            whole = claude.messages.create(**fields)
            with claude.messages.stream(**fields) as stream:
                streamed = stream.get_final_message()
    for message in (whole, streamed):
        thought, said, call = message.content
        assert (thought.thinking.strip(), said.text.strip()) == ("so", "I look.")
        assert (call.name, call.input, message.stop_reason) == ("look", {"at": "x", "n": [1, {}]}, "tool_use")
