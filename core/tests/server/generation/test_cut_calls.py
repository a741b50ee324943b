"""Answers that end inside of a tool call, in the three APIs, as streams and whole: what is told is what was written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_fake import FakeEngine, FakeTokenizer
from starlette.testclient import TestClient
from text.parsing.tools.written import ONLY_FIRST, SCHEMA, WRITERS, parser_name, some_calls

from octavo.server import ServerSettings, create_app
from octavo.server.messages.writer import read_input

USER = [{"role": "user", "content": "Hi"}]
CHARACTERS = 10_000
STOP = "STOP"


class Characters(FakeTokenizer):
    """A character a token; its template shows tools."""

    template = "{{ tools }}"
    vocab_size = CHARACTERS + 0x110000

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id - CHARACTERS).encode() if token_id >= CHARACTERS else super().token_bytes(token_id)


@dataclass
class Told:
    """What a client learns of an answer; ``ended`` in the words of its API."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ended: Any = None


class Server:
    """One app of a model with the tool parser of that name."""

    def __init__(self, parser: str) -> None:
        self.engine = FakeEngine(tokenizer=Characters(), max_model_len=200_000)
        self.http = TestClient(create_app(self.engine, ServerSettings(tool_parser=parser)))

    def say(self, text: str, ending: str) -> dict[str, Any]:
        """The model writes this, and ends so; returns the fields that a request needs for it."""
        self.engine.script = tuple(CHARACTERS + ord(character) for character in text + "x" * (ending == "length"))
        self.engine.stop_reason = STOP if ending == "stop string" else None
        return {"tokens": len(text)} if ending == "length" else {"tokens": 100_000}

    def post(self, path: str, body: dict[str, Any]) -> Any:
        reply = self.http.post(path, json=body)
        assert reply.status_code == 200, reply.text
        if not body.get("stream"):
            return reply.json()
        lines = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: {")]
        return [json.loads(line) for line in lines]


def chat(server: Server, tokens: int, stream: bool) -> Told:
    tools = [
        {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "get_time"}},
    ]
    body = {"messages": USER, "tools": tools, "max_tokens": tokens, "stream": stream}
    reply = server.post("/v1/chat/completions", body)
    told = Told()
    if not stream:
        [choice] = reply["choices"]
        message = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls", ())]
        told = Told(message["content"] or "", [(call["name"], call["arguments"]) for call in calls])
        told.ended = choice["finish_reason"], choice["stop_reason"]
        return told
    for event in reply:
        [choice] = event["choices"]
        delta = choice["delta"]
        told.text += delta.get("content") or ""
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                assert call["index"] == len(told.calls)
                told.calls.append((call["function"]["name"], ""))
            name, arguments = told.calls[call["index"]]
            told.calls[call["index"]] = name, arguments + call["function"].get("arguments", "")
        told.ended = choice["finish_reason"], choice.get("stop_reason")
    return told


def responses(server: Server, tokens: int, stream: bool) -> Told:
    tools = [
        {"type": "function", "name": "get_weather", "parameters": SCHEMA},
        {"type": "function", "name": "get_time", "parameters": {}},
    ]
    body = {"input": "Hi", "tools": tools, "max_output_tokens": tokens, "stream": stream, "store": False}
    reply = server.post("/v1/responses", body)
    response = reply
    if stream:
        response = reply[-1]["response"]
        deltas: dict[int, str] = {}
        for event in reply:
            if event["type"] == "response.function_call_arguments.delta":
                deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
        for index, item in enumerate(response["output"]):
            assert deltas.get(index, "") == (item["arguments"] if item["type"] == "function_call" else "")
    told = Told()
    statuses = []
    for item in response["output"]:
        if item["type"] == "message":
            told.text += item["content"][0]["text"]
        else:
            told.calls.append((item["name"], item["arguments"]))
            statuses.append(item["status"])
    assert all(status == "completed" for status in statuses[:-1])
    told.ended = response["status"], statuses[-1:]
    return told


def messages(server: Server, tokens: int, stream: bool) -> Told:
    tools = [{"name": "get_weather", "input_schema": SCHEMA}, {"name": "get_time", "input_schema": {}}]
    body = {"model": "fake", "messages": USER, "tools": tools, "max_tokens": tokens, "stream": stream}
    reply = server.post("/v1/messages", body)
    told = Told()
    if not stream:
        for block in reply["content"]:
            if block["type"] == "text":
                told.text += block["text"]
            else:
                told.calls.append((block["name"], json.dumps(block["input"])))
        told.ended = reply["stop_reason"], reply["stop_sequence"]
        return told
    for event in reply:
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            told.calls.append((event["content_block"]["name"], ""))
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            name, arguments = told.calls[-1]
            told.calls[-1] = name, arguments + event["delta"]["partial_json"]
        elif event["type"] == "content_block_delta":
            told.text += event["delta"]["text"]
        elif event["type"] == "message_delta":
            told.ended = event["delta"]["stop_reason"], event["delta"]["stop_sequence"]
    return told


def expected(ending: str, complete: bool) -> dict[Callable[..., Told], Sequence[Any]]:
    """How each API says of an answer why it ended; ``complete``: there are calls, all of them whole."""
    if ending == "length":
        return {chat: ("length", None), responses: ("incomplete", None), messages: ("max_tokens", None)}
    stop = STOP if ending == "stop string" else None
    if complete:
        return {chat: ("tool_calls", stop), responses: ("completed", ["completed"]), messages: ("tool_use", None)}
    cut = ("stop_sequence", STOP) if stop else ("end_turn", None)
    return {chat: ("stop", stop), responses: ("completed", ["incomplete"]), messages: cut}


SERVERS: dict[str, Server] = {}


@pytest.mark.parametrize("way", WRITERS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 2**32), ending=st.sampled_from(("length", "end of sequence", "stop string")))
def test_a_cut_call_is_told_as_such(way: str, seed: int, ending: str) -> None:
    chance = random.Random(seed)
    server = SERVERS.setdefault(parser_name(way), Server(parser_name(way)))
    meant = some_calls(chance)
    before = "" if way in ONLY_FIRST else chance.choice(("", "I look. "))
    written = before + WRITERS[way](meant)
    whole = chat(server, server.say(written, "end of sequence")["tokens"], stream=False)
    assert [(name, json.loads(arguments)) for name, arguments in whole.calls] == meant
    assert whole.ended == ("tool_calls", None)
    written = written[: chance.randint(len(before) + 1, len(written))]
    fields = server.say(written, ending)
    told = {api: (api(server, stream=False, **fields), api(server, stream=True, **fields)) for api in APIS}
    one, streamed = told[chat]
    assert one == streamed
    assert told[responses][0] == told[responses][1]
    for (name, arguments), (full_name, full) in zip(one.calls, whole.calls, strict=False):
        assert name == full_name
        assert full.startswith(arguments)
    assert one.calls[:-1] == whole.calls[: len(one.calls)][:-1]
    for both in told.values():
        assert {other.text.strip() for other in both} == {one.text.strip()}
    assert told[responses][0].calls == told[messages][1].calls == one.calls
    assert [(name, json.loads(text)) for name, text in told[messages][0].calls] == [
        (name, read_input(text)) for name, text in one.calls
    ]
    complete = one.ended[0] == "tool_calls"
    assert not complete or one.calls == whole.calls[: len(one.calls)]
    for api, ended in expected(ending, complete).items():
        for other in told[api]:
            if ended[1] is None and api is responses:
                assert other.ended[0] == ended[0]
            elif api is responses and not other.calls:
                assert other.ended == (ended[0], [])
            else:
                assert other.ended == tuple(ended), written
    if ending != "end of sequence":
        assert before.strip().startswith(one.text.replace("```json", "").strip(" `json\n")), written


APIS = (chat, responses, messages)

HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("ending", "reasons"),
    [
        ("length", [("length", None), ("incomplete", ["incomplete"]), ("max_tokens", None)]),
        ("end of sequence", [("stop", None), ("completed", ["incomplete"]), ("end_turn", None)]),
        ("stop string", [("stop", STOP), ("completed", ["incomplete"]), ("stop_sequence", STOP)]),
    ],
)
def test_each_api_says_why_a_call_was_cut(ending: str, reasons: list[Any], stream: bool) -> None:
    server = Server("hermes")
    for api, reason in zip(APIS, reasons, strict=True):
        told = api(server, stream=stream, **server.say(HERMES, ending))
        whole_message = api is messages and not stream
        assert told.calls == [("get_weather", "{}" if whole_message else '{"city": "Rome')]
        assert (told.text, told.ended) == ("", reason)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("ending", "text", "shown"),
    [
        ("length", "So <tool_c", "So"),
        ("length", 'So <tool_call>{"name": "get_', "So"),
        ("stop string", "So <t", "So"),
        ("end of sequence", "So <tool_c", "So"),
        ("end of sequence", "a <", "a <"),
        ("end of sequence", 'So <tool_call>{"name": "get_', 'So <tool_call>{"name": "get_'),
    ],
)
def test_half_a_marker_is_no_text(api: Callable[..., Told], ending: str, text: str, shown: str) -> None:
    server = Server("hermes")
    fields = server.say(text, ending)
    for stream in (False, True):
        told = api(server, stream=stream, **fields)
        assert (told.text, told.calls) == (shown, [])


@pytest.mark.parametrize("api", APIS)
def test_half_a_marker_behind_a_call_is_no_text_and_the_call_is_complete(api: Callable[..., Told]) -> None:
    server = Server("hermes")
    fields = server.say(HERMES + '"}}\n</tool_ca', "end of sequence")
    for stream in (False, True):
        told = api(server, stream=stream, **fields)
        assert (told.text, told.calls[0][0], json.loads(told.calls[0][1])) == ("", "get_weather", {"city": "Rome"})
        assert told.ended[0] in ("tool_calls", "completed", "tool_use")


@pytest.mark.parametrize("number", [0, 1])
def test_only_the_first_call_counts_where_one_was_asked_for(number: int) -> None:
    server = Server("hermes")
    server.say(HERMES + '"}}\n</tool_call>\n' * number + (HERMES if number else ""), "end of sequence")
    body = {
        "messages": USER,
        "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        "parallel_tool_calls": False,
    }
    [choice] = server.post("/v1/chat/completions", body)["choices"]
    assert len(choice["message"]["tool_calls"]) == 1
    assert choice["finish_reason"] == ("tool_calls" if number else "stop")
