"""Tool calls through the chat API, as the official client sees them."""

from __future__ import annotations

import json

import openai
import pydantic
import pytest
from tool_server import HERMES, MISTRAL, TIME, USER, WEATHER, ToolServer

TOOLS = [WEATHER, TIME]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
ARGUMENTS = '{"city": "Rome", "days": 2}'
TWO = CALL + '\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


@pytest.fixture
def server() -> ToolServer:
    server = ToolServer(HERMES)
    server.say(CALL)
    return server


def test_a_call_is_in_the_message(server: ToolServer) -> None:
    [choice] = server.client.chat.completions.create(model="fake", messages=USER, tools=TOOLS).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == ("function", "get_weather", ARGUMENTS)
    assert call.id.startswith("call_")


def test_words_before_a_call_stay(server: ToolServer) -> None:
    server.say("I look.\n" + CALL)
    [choice] = server.chat(tools=TOOLS)["choices"]
    assert choice["message"]["content"] == "I look."
    assert len(choice["message"]["tool_calls"]) == 1


def test_an_answer_without_calls_is_as_ever(server: ToolServer) -> None:
    server.say("Hello")
    [choice] = server.chat(tools=TOOLS)["choices"]
    assert choice["message"] == {"content": "Hello", "role": "assistant", "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_a_call_that_is_cut_short_ends_with_length(server: ToolServer) -> None:
    [choice] = server.chat(tools=TOOLS, max_tokens=len(CALL) - 30)["choices"]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert ARGUMENTS.startswith(call["function"]["arguments"])


def test_a_stream_tells_name_first_and_arguments_as_they_come(server: ToolServer) -> None:
    server.say(TWO)
    stream = server.client.chat.completions.create(model="fake", messages=USER, tools=TOOLS, stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    deltas = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert [(d.index, d.function.name, d.type) for d in deltas if d.id] == [
        (0, "get_weather", "function"),
        (1, "get_time", "function"),
    ]
    pieces = [d.function.arguments for d in deltas if d.index == 0]
    assert pieces[0] == ""
    assert len(pieces) > 10
    assert "".join(pieces) == ARGUMENTS
    assert all(d.id is None and d.function.name is None for d in deltas[1 : len(pieces)])
    assert chunks[-1].finish_reason == "tool_calls"
    assert chunks[0].delta.role == "assistant"


def test_the_stream_helper_accumulates_calls(server: ToolServer) -> None:
    server.say("Well. " + TWO)
    with server.client.chat.completions.stream(model="fake", messages=USER, tools=TOOLS) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Well."
    calls = final.choices[0].message.tool_calls
    assert [(c.function.name, c.function.arguments) for c in calls] == [("get_weather", ARGUMENTS), ("get_time", "{}")]
    assert events.count("tool_calls.function.arguments.done") == 2
    assert "tool_calls.function.arguments.delta" in events


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    days: int


def test_the_parse_helper_reads_arguments_into_a_model(server: ToolServer) -> None:
    server.say(CALL.replace("get_weather", "Weather"))
    tool = openai.pydantic_function_tool(Weather)
    got = server.client.chat.completions.parse(model="fake", messages=USER, tools=[tool])
    assert got.choices[0].message.tool_calls[0].function.parsed_arguments == Weather(city="Rome", days=2)
    tag = json.loads(server.engine.seen[0].params.structured.structural_tag)
    assert tag["triggers"] == ["<tool_call>"]
    [structure] = tag["structures"]
    assert structure["begin"] == '<tool_call>\n{"name": "Weather", "arguments": '
    assert structure["end"] == "}\n</tool_call>"
    assert structure["schema"].items() >= {"type": "object", "required": ["city", "days"]}.items()


def test_tools_are_in_the_prompt_unless_none_is_to_be_called(server: ToolServer) -> None:
    server.chat(tools=TOOLS)
    assert "'name': 'get_weather', 'description': 'The weather of a city'" in server.prompt
    assert "'function': {'name': 'get_time', 'parameters': {'type': 'object', 'properties': {}}}" in server.prompt
    [choice] = server.chat(tools=TOOLS, tool_choice="none")["choices"]
    assert server.prompt == "user:Hi|assistant:"
    assert choice["message"]["content"] == CALL
    server.chat(
        tools=TOOLS,
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]},
        },
    )
    assert "get_weather" not in server.prompt
    assert "get_time" in server.prompt


def test_auto_holds_nothing_to_a_form(server: ToolServer) -> None:
    server.chat(tools=TOOLS)
    assert server.engine.seen[0].params.structured is None


def test_required_holds_the_answer_to_calls(server: ToolServer) -> None:
    [choice] = server.chat(tools=TOOLS, tool_choice="required")["choices"]
    assert choice["finish_reason"] == "tool_calls"
    grammar = server.engine.seen[0].params.structured.grammar
    assert "get_weather" in grammar
    assert "get_time" in grammar
    assert '("\\n" call)*' in grammar
    server.chat(tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert "call)*" not in server.engine.seen[1].params.structured.grammar


def test_a_named_function_is_the_only_one_and_the_answer_just_stops(server: ToolServer) -> None:
    """As the OpenAI API has it: the reason is "stop" for a call that the client named."""
    choice = {"type": "function", "function": {"name": "get_weather"}}
    [got] = server.client.chat.completions.create(model="fake", messages=USER, tools=TOOLS, tool_choice=choice).choices
    assert got.finish_reason == "stop"
    assert got.message.tool_calls[0].function.name == "get_weather"
    grammar = server.engine.seen[0].params.structured.grammar
    assert "get_time" not in grammar
    assert "call)*" not in grammar
    stream = server.client.chat.completions.create(
        model="fake", messages=USER, tools=TOOLS, tool_choice=choice, stream=True
    )
    assert [c.choices[0].finish_reason for c in stream][-1] == "stop"


def test_without_parallel_calls_the_first_is_the_only_one(server: ToolServer) -> None:
    server.say(TWO)
    [choice] = server.chat(tools=TOOLS, parallel_tool_calls=False)["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["get_weather"]


def test_functions_are_tools_by_their_old_name(server: ToolServer) -> None:
    functions = [tool["function"] for tool in TOOLS]
    [choice] = server.client.chat.completions.create(model="fake", messages=USER, functions=functions).choices
    assert choice.finish_reason == "function_call"
    assert choice.message.tool_calls is None
    assert (choice.message.function_call.name, choice.message.function_call.arguments) == ("get_weather", ARGUMENTS)
    stream = server.client.chat.completions.create(model="fake", messages=USER, functions=functions, stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    assert next(c.delta.function_call.name for c in chunks if c.delta.function_call) == "get_weather"
    said = "".join(c.delta.function_call.arguments for c in chunks if c.delta.function_call)
    assert (said, chunks[-1].finish_reason) == (ARGUMENTS, "function_call")
    server.chat(functions=functions, function_call={"name": "get_time"})
    assert "get_weather" not in server.engine.seen[-1].params.structured.grammar
    server.chat(functions=functions, function_call="none")
    assert "get_weather" not in server.prompt


def test_n_choices_call_each_for_itself(server: ToolServer) -> None:
    server.say("x" + CALL)
    choices = server.chat(tools=TOOLS, n=2)["choices"]
    ids = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert [choice["message"]["content"] for choice in choices] == ["x", "y"]
    assert len(set(ids)) == 2


def test_ids_cover_the_tokens_of_calls_and_logprobs_those_of_the_content(server: ToolServer) -> None:
    body = {"tools": TOOLS, "logprobs": True, "return_token_ids": True}
    [choice] = server.chat(**body)["choices"]
    assert (len(choice["token_ids"]), choice["logprobs"]["content"]) == (len(CALL), [])
    with server.http.stream("POST", "/v1/chat/completions", json={"messages": USER, "stream": True} | body) as reply:
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: {")]
    ids = [token for e in events for token in e["choices"][0].get("token_ids", [])]
    assert ids == choice["token_ids"]


def test_the_markers_of_the_model_decide(server: ToolServer) -> None:
    server = ToolServer(MISTRAL)
    server.say('[TOOL_CALLS][{"name": "get_time", "arguments": {}}]')
    [call] = server.chat(tools=TOOLS)["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "get_time", "arguments": "{}"}
    assert len(call["id"]) == 9


def test_a_template_without_a_place_for_tools_is_told_of_them_in_words() -> None:
    server = ToolServer(None)
    server.say('{"name": "get_time", "arguments": {}}')
    [choice] = server.chat(tools=TOOLS)["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_time"
    assert server.prompt.startswith("system:You can call these functions")
    assert '{"name": "get_time", "parameters": {"type": "object", "properties": {}}}' in server.prompt
    assert server.prompt.endswith("|user:Hi|assistant:")
    call = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call, call | {"id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
        {"role": "tool", "tool_call_id": "c2", "content": "12:01"},
        {"role": "user", "content": "Thanks"},
    ]
    server.chat(messages=messages, tools=TOOLS)
    assert server.prompt.startswith("system:Be brief.\n\nYou can call")
    call_text = '{"name": "get_time", "arguments": {}}'
    assert server.prompt.endswith(
        f"|user:Hi|assistant:{call_text}\n{call_text}|user:Result of get_time:\n12:00\n\n"
        "Result of get_time:\n12:01\n\nThanks|assistant:"
    )


def test_a_marker_without_a_place_for_tools_is_not_enough() -> None:
    server = ToolServer("{{ messages }}<tool_call>")
    server.say('{"name": "get_time", "arguments": {}}')
    assert server.chat(tools=TOOLS)["choices"][0]["finish_reason"] == "tool_calls"
    assert server.prompt.startswith("system:You can call these functions")


def test_calls_that_cannot_be_forced_in_the_model_s_way_are_forced_as_json() -> None:
    server = ToolServer("{{ tools }}<tool_call><function=f>")
    server.say('{"name": "get_time", "arguments": {}}')
    assert server.chat(tools=TOOLS)["choices"][0]["finish_reason"] == "stop"
    [choice] = server.chat(tools=TOOLS, tool_choice="required")["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_time", "arguments": "{}"}
    assert "<tool_call>" not in server.engine.seen[-1].params.structured.grammar


def test_an_operator_can_choose_and_refuse() -> None:
    server = ToolServer(HERMES, tool_parser="mistral")
    server.say("[TOOL_CALLS]get_time[ARGS]{}")
    assert server.chat(tools=TOOLS)["choices"][0]["finish_reason"] == "tool_calls"
    assert ToolServer(HERMES, tool_parser="none").refusal(tools=TOOLS)["param"] == "tools"
    assert "no place for tools" in ToolServer("plain", tool_parser="hermes").refusal(tools=TOOLS)["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": ["f"]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a" * 129}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a\n"}}]}, "tools[0].function.name"),
        ({"tools": [TIME, WEATHER, TIME]}, "tools[2].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
            "tools[0].function.parameters.type",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]},
            "tools[0].function.description",
        ),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": 5}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools.mode"),
        ({"functions": []}, "functions"),
        ({"functions": [{"name": ""}]}, "functions[0].name"),
        ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call.name"),
        ({"functions": [{"name": "f"}], "tools": TOOLS}, "functions"),
        ({"functions": [{"name": "f"}], "tool_choice": "auto"}, "tool_choice"),
        ({"function_call": "auto"}, "function_call"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
def test_what_cannot_be_offered_is_a_400_that_names_it(server: ToolServer, fields, param: str) -> None:
    assert server.refusal(**fields)["param"] == param
