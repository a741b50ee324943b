"""ReasoningText and tool calls as output items and events, through a server whose model has both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from server.responses.responses_fake import TOOL, TOY_SETTINGS, call, toy_engine
from server_fake import FakeEngine


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return toy_engine()


@pytest.fixture
def toy(serve_with, engine: FakeEngine) -> Iterator[Callable[[str], Any]]:
    """A server of a model that thinks and calls, and a way to say what it answers."""
    with serve_with(engine, TOY_SETTINGS) as served:

        def answers(text: str) -> Any:
            engine.script = tuple(text.encode("ascii"))
            engine.seen.clear()
            return served

        yield answers


def _stream(served, **fields) -> list[Any]:
    return served.respond(stream=True, tools=[TOOL], **fields).named_events


def _types(events) -> list[str]:
    """Types without their prefix, runs of deltas as one."""
    types = [event["type"].removeprefix("response.") for event in events]
    return [kind for k, kind in enumerate(types) if not (k and kind.endswith(".delta") and types[k - 1] == kind)]


def test_thoughts_words_and_calls_are_items_in_their_order(toy) -> None:
    served = toy(f"<think>hm\nok</think>\n\nSure.\n{call('add', a=1)}\n\n{call('add', a=2)}\n")
    events = _stream(served)
    assert _types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    reasoning, message, one, two = events[-1]["response"]["output"]
    assert reasoning == {
        "type": "reasoning",
        "id": reasoning["id"],
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm\nok"}],
        "status": "completed",
    }
    assert reasoning["id"].startswith("rs_")
    assert message["content"][0]["text"].strip() == "Sure."
    assert one["type"] == "function_call" and one["id"].startswith("fc_") and one["call_id"].startswith("call_")
    assert (one["name"], json.loads(one["arguments"]), one["status"]) == ("add", {"a": 1}, "completed")
    assert json.loads(two["arguments"]) == {"a": 2} and two["call_id"] != one["call_id"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [event["output_index"] for event in done] == [0, 1, 2, 3]
    assert [event["item"]["id"] for event in added] == [item["id"] for item in (reasoning, message, one, two)]
    assert [event["item"] for event in done] == [reasoning, message, one, two]
    assert added[2]["item"]["arguments"] == "" and added[2]["item"]["status"] == "in_progress"


def test_tokens_of_thoughts_are_counted(toy) -> None:
    usage = toy("<think>abc</think>de").respond().json["usage"]
    assert usage["output_tokens"] == len("<think>abc</think>de")
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]


def test_the_accumulator_takes_thoughts_and_calls(toy) -> None:
    class add(BaseModel):  # noqa: N801 - the client names the tool by it
        a: int

    served = toy(f"<think>hm</think>{call('add', a=1)}")
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        tools = [openai.pydantic_function_tool(add)["function"] | {"type": "function"}]
        with client.responses.stream(model="fake", input="Hi", tools=tools) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds and "response.reasoning_text.delta" in kinds
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    assert json.loads(final.output[1].arguments) == {"a": 1}


def test_the_stream_brings_what_comes_whole(toy) -> None:
    served = toy(f"<think>hm</think>So {call('add', a=1)}")
    whole = served.respond(tools=[TOOL]).json
    streamed = _stream(served)[-1]["response"]
    for response in (whole, streamed):
        for name in ("id", "created_at", "completed_at"):
            del response[name]
        for item in response["output"]:
            del item["id"]
            item.pop("call_id", None)
    assert whole == streamed


@pytest.mark.parametrize(
    ("limit", "kind", "last"),
    [
        (len("<think>hm"), "reasoning", "reasoning_text"),
        (len("<think>hm</think>So"), "message", "output_text"),
        (-len("}</tool_call>"), "function_call", "function_call_arguments"),
    ],
)
def test_what_a_limit_cuts_is_incomplete(toy, limit: int, kind: str, last: str) -> None:
    answer = f"<think>hm</think>So {call('add', a=1)}"
    events = _stream(toy(answer), max_output_tokens=limit % len(answer))
    item = events[-1]["response"]["output"][-1]
    assert events[-1]["type"] == "response.incomplete" and (item["type"], item["status"]) == (kind, "incomplete")
    assert f"response.{last}.done" in [event["type"] for event in events]


def test_reasoning_is_sealed_on_request_and_read_again(toy, engine) -> None:
    served = toy("<think>hm</think>Yes")
    made = served.respond(include=["reasoning.encrypted_content"], store=False).json
    reasoning = {**made["output"][0], "content": []}  # some clients send back this field alone
    user = {"role": "user", "content": "Hi"}
    served.respond(input=[user, reasoning, made["output"][1], user])
    assert engine.seen[-1].text == "user:Hi|assistant:<think>hm</think>Yes|user:Hi|"


def test_logprobs_are_those_of_the_words(toy) -> None:
    served = toy(f"<think>h < m</think>\n\n1 < 2{call('add', a=1)}")
    made = served.respond(include=["message.output_text.logprobs"], tools=[TOOL]).json
    assert [entry["token"] for entry in made["output"][1]["content"][0]["logprobs"]] == list("1 < 2")


@pytest.mark.parametrize(
    ("choice", "told", "shown"),
    [
        (None, "auto", ["add", "sub"]),
        ("auto", "auto", ["add", "sub"]),
        ("none", "none", []),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sub"}]},
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "sub"}]},
            ["sub"],
        ),
    ],
)
def test_the_model_is_shown_the_tools_it_may_call(toy, engine, choice, told, shown: list[str]) -> None:
    made = toy("x").respond(tools=[TOOL, {"type": "function", "name": "sub"}], tool_choice=choice).json
    assert made["tool_choice"] == told
    assert made["tools"][0] == TOOL
    assert made["tools"][1] == {
        "type": "function",
        "name": "sub",
        "description": None,
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    assert engine.seen[-1].text.count("tool=") == len(shown)
    assert all(f"tool={name};" in engine.seen[-1].text for name in shown)


def test_calls_and_their_results_go_back_to_the_model(toy, engine) -> None:
    served = toy(f"<think>hm</think>{call('add', a=1)}{call('add', a=2)}")
    made = served.respond(tools=[TOOL]).json
    _, one, two = made["output"]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": output}
        for item, output in ((one, "3"), (two, [{"type": "input_text", "text": "4"}]))
    ]
    told = (
        f"tool=add;user:Hi|assistant:<think>hm</think>[add:{one['call_id']}:1][add:{two['call_id']}:2]|"
        f"tool({one['call_id']}):3|tool({two['call_id']}):4|"
    )
    toy("Seven.")
    again = served.respond(tools=[TOOL], input=[{"role": "user", "content": "Hi"}, *made["output"], *results]).json
    assert engine.seen[-1].text == told and again["output"][0]["content"][0]["text"] == "Seven."
    served.respond(tools=[TOOL], input=results, previous_response_id=made["id"])
    assert engine.seen[-1].text == told
    unanswered = served.respond(tools=[TOOL], input=results[:1], previous_response_id=made["id"])
    assert (unanswered.status, unanswered.error["param"]) == (400, "input")
    assert two["call_id"] in unanswered.error["message"]


def test_a_call_that_a_limit_cut_is_left_out_of_the_history(toy, engine) -> None:
    served = toy(f"So {call('add', a=1)}")
    cut = served.respond(tools=[TOOL], max_output_tokens=len(engine.script) - len("}</tool_call>")).json
    assert cut["output"][-1]["status"] == "incomplete"
    served.respond(tools=[TOOL], input="Go on", previous_response_id=cut["id"])
    assert engine.seen[-1].text == "tool=add;user:Hi|assistant:So|user:Go on|"


@pytest.mark.parametrize("kept", [True, False])
def test_a_call_that_was_cut_is_served_again_with_an_output_or_without(toy, engine, kept: bool) -> None:
    served = toy(f"So {call('add', a=1)}"[: -len("1}}</tool_call>")])
    made = served.respond(tools=[TOOL]).json
    message, cut = made["output"]
    assert (made["status"], cut["arguments"], cut["status"]) == ("completed", '{"a": ', "incomplete")
    output = {"type": "function_call_output", "call_id": cut["call_id"], "output": "not JSON"}
    user = {"role": "user", "content": "Go on"}

    def again(*items: Any) -> str:
        if kept:
            body = {"previous_response_id": made["id"], "input": list(items)}
        else:
            body = {"input": [{"role": "user", "content": "Hi"}, message, cut, *items]}
        reply = served.respond(tools=[TOOL], **body)
        assert reply.status == 200, reply.body
        return str(engine.seen[-1].text)

    toy("Well.")
    assert again(user) == "tool=add;user:Hi|assistant:So|user:Go on|"
    call_id = cut["call_id"]
    assert again(output, user) == (
        f'tool=add;user:Hi|assistant:So[add:{call_id}:{{"a": ]|tool({call_id}):not JSON|user:Go on|'
    )


def test_a_conversation_goes_on_behind_a_call_that_was_cut(toy, engine) -> None:
    served = toy(f"So {call('add', a=1)}"[: -len("1}}</tool_call>")])
    talk = served.request("POST", "/v1/conversations", {}).json["id"]
    assert served.respond(tools=[TOOL], conversation=talk).json["output"][1]["status"] == "incomplete"
    toy("Well.")
    assert served.respond(tools=[TOOL], conversation=talk, input="Go on").status == 200
    assert engine.seen[-1].text == "tool=add;user:Hi|assistant:So|user:Go on|"


@pytest.mark.parametrize("arguments", ['{"a', "[1]", '{"a": NaN}', '{"a": "x\ny"}', '"a"'])
def test_a_call_whose_arguments_are_no_object_is_served(toy, engine, arguments: str) -> None:
    made = {"type": "function_call", "call_id": "c1", "name": "add two!", "arguments": arguments}
    user = {"role": "user", "content": "Hi"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "not JSON"}
    served = toy("Well.")
    assert served.respond(tools=[TOOL], input=[user, made, output]).status == 200
    assert engine.seen[-1].text.startswith("tool=add;user:Hi|assistant:[add two!:c1:")
    assert served.respond(tools=[TOOL], input=[user, made, user]).status == 200
    assert engine.seen[-1].text == (
        f'tool=add;user:Hi|assistant:{{"name": "add two!", "arguments": {arguments}|user:Hi|'
    )
