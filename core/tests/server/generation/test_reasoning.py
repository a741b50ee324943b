"""ReasoningText through the chat API, under both of their names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tool_server import THINKER, TIME, USER, ToolServer

from octavo.sampling import ReasoningMarks

CALL = '<tool_call>{"name": "get_time"}</tool_call>'


@pytest.fixture
def server() -> ToolServer:
    server = ToolServer(THINKER)
    server.say("<think>\nHm.\n</think>\n\nYes.")
    return server


def test_thoughts_stand_beside_the_words_under_both_names(server: ToolServer) -> None:
    got = server.chat()
    assert got["choices"][0]["message"] == {
        "content": "Yes.",
        "role": "assistant",
        "refusal": None,
        "reasoning": "Hm.",
        "reasoning_content": "Hm.",
    }
    assert got["choices"][0]["finish_reason"] == "stop"


def test_a_stream_has_thoughts_in_their_own_deltas(server: ToolServer) -> None:
    chunks = list(server.client.chat.completions.create(model="fake", messages=USER, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(getattr(d, "reasoning", None) or "" for d in deltas) == "Hm."
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == "Hm."
    assert "".join(d.content or "" for d in deltas) == "Yes."


def test_thoughts_are_counted(server: ToolServer) -> None:
    usage = server.client.chat.completions.create(model="fake", messages=USER).usage
    # a character is a token here; a mark counts from its last character on when it opens, all of it when it closes
    assert usage.completion_tokens_details.reasoning_tokens == len(">\nHm.\n</think>")
    options = {"include_usage": True}
    chunks = server.client.chat.completions.create(model="fake", messages=USER, stream=True, stream_options=options)
    assert list(chunks)[-1].usage == usage


def test_thoughts_can_be_left_out_and_are_counted_still(server: ToolServer) -> None:
    got = server.chat(include_reasoning=False)
    assert got["choices"][0]["message"] == {"content": "Yes.", "role": "assistant", "refusal": None}
    assert got["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    chunks = server.client.chat.completions.create(
        model="fake", messages=USER, stream=True, extra_body={"include_reasoning": False}
    )
    deltas = [chunk.choices[0].delta.model_dump(exclude_none=True) for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, *({"content": c} for c in "Yes.")]


def test_a_template_may_begin_the_thoughts(server: ToolServer) -> None:
    server.say("Hm.</think>Yes.")
    kwargs = {"chat_template_kwargs": {"x": 1}, "continue_final_message": True}
    message = server.chat(messages=[*USER, {"role": "assistant", "content": "<think>So. "}], **kwargs)
    assert message["choices"][0]["message"]["reasoning"] == "Hm."
    assert message["choices"][0]["message"]["content"] == "Yes."
    prompt_ends_so = [{"role": "user", "content": "<think>\n"}]
    opened = server.chat(messages=prompt_ends_so, continue_final_message=True)
    assert opened["choices"][0]["message"]["reasoning"] == "Hm."


def test_calls_follow_thoughts(server: ToolServer) -> None:
    server.say(f"<think>I {CALL}</think>\n{CALL}")
    [choice] = server.chat(tools=[TIME])["choices"]
    assert choice["message"]["reasoning"] == f"I {CALL}"
    assert choice["message"]["content"] is None
    assert len(choice["message"]["tool_calls"]) == 1


def test_forced_calls_may_have_thoughts_before_them(server: ToolServer) -> None:
    server.chat(tools=[TIME], tool_choice="required")
    grammar = server.engine.seen[0].params.structured.grammar
    assert 'start: ("<think>" reasoning GAP)? answer' in grammar
    messages = [*USER, {"role": "assistant", "content": "<think>So"}]
    server.chat(messages=messages, continue_final_message=True, tools=[TIME], tool_choice="required")
    assert "start: reasoning GAP answer" in server.engine.seen[1].params.structured.grammar


def test_an_operator_can_choose(server: ToolServer) -> None:
    server = ToolServer("plain", reasoning_parser="think")
    server.say("<think>Hm.</think>Yes.")
    assert server.chat()["choices"][0]["message"]["reasoning"] == "Hm."
    server = ToolServer(THINKER, reasoning_parser="none")
    server.say("<think>Hm.</think>Yes.")
    got = server.chat()
    assert got["choices"][0]["message"]["content"] == "<think>Hm.</think>Yes."
    assert "completion_tokens_details" not in got["usage"]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_can_be_sent_back_under_either_name(server: ToolServer, name: str) -> None:
    server.chat(messages=[*USER, {"role": "assistant", "content": "Yes", name: "Hm"}, *USER])
    assert server.prompt.endswith("assistant:Yes|user:Hi|assistant:")


OPENED = [{"role": "user", "content": "<think>\n"}]


def streamed(server: ToolServer, **fields: Any) -> tuple[str, str, str, int]:
    """Reasoning, content, arguments and the number of calls, put together from a stream."""
    reasoning = content = arguments = ""
    calls = 0
    for chunk in server.client.chat.completions.create(model="fake", stream=True, **fields):
        delta = chunk.choices[0].delta
        reasoning += getattr(delta, "reasoning", None) or ""
        content += delta.content or ""
        for call in delta.tool_calls or ():
            calls += bool(call.id)
            arguments += call.function.arguments or ""
    return reasoning, content, arguments, calls


def test_an_answer_that_never_closes_its_reasoning_is_not_empty(server: ToolServer) -> None:
    server.say("It is Paris.")
    fields = {"messages": OPENED, "extra_body": {"continue_final_message": True}}
    message = server.client.chat.completions.create(model="fake", **fields).choices[0].message
    assert (message.content, message.reasoning) == ("It is Paris.", "It is Paris.")  # type: ignore[attr-defined]
    assert streamed(server, **fields) == ("It is Paris.", "It is Paris.", "", 0)


def test_reasoning_that_its_length_has_cut_is_no_answer(server: ToolServer) -> None:
    server.say("It is Paris.")
    fields = {"messages": OPENED, "max_tokens": 5, "extra_body": {"continue_final_message": True}}
    choice = server.client.chat.completions.create(model="fake", **fields).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("length", "")
    assert choice.message.reasoning == "It is"  # type: ignore[attr-defined]
    assert streamed(server, **fields) == ("It is", "", "", 0)


def test_a_call_in_reasoning_that_is_never_closed_is_a_call(server: ToolServer) -> None:
    server.say(CALL)
    fields = {"messages": OPENED, "tools": [TIME], "extra_body": {"continue_final_message": True}}
    choice = server.client.chat.completions.create(model="fake", **fields).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert [call.function.name for call in choice.message.tool_calls] == ["get_time"]
    reasoning, content, arguments, calls = streamed(server, **fields)
    assert (reasoning, content, arguments, calls) == (CALL, "", "{}", 1)


def test_what_was_said_before_reasoning_is_the_answer(server: ToolServer) -> None:
    server.say("Yes. <think>Or not?")
    message = server.chat()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("Yes.", "Or not?")
    server.say("<think>So?</think>Yes. <think>Or not?")
    message = server.chat()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("Yes.", "So?Or not?")


def test_the_other_apis_answer_too(server: ToolServer) -> None:
    server.say("It is Paris.")
    prompt = [*USER, {"role": "assistant", "content": "<think>"}]
    body = {"model": "fake", "messages": prompt, "max_tokens": 50}
    message = server.http.post("/v1/messages", json=body).json()
    assert [block.get("text") for block in message["content"] if block["type"] == "text"] == ["It is Paris."]
    events = server.http.post("/v1/messages", json=body | {"stream": True}).text
    deltas = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    texts = [e["delta"]["text"] for e in deltas if e.get("delta", {}).get("type") == "text_delta"]
    assert "".join(texts) == "It is Paris."


def test_stop_strings_act_on_the_answer(server: ToolServer) -> None:
    server.chat(stop=["a"], continue_final_message=True, messages=OPENED)
    server.chat(stop=["a"], stop_in_reasoning=True)
    first, second = (seen.params for seen in server.engine.seen)
    assert first.reasoning == ReasoningMarks("<think>", "</think>", inside=True) and not first.stop_in_reasoning
    assert second.reasoning == ReasoningMarks("<think>", "</think>") and second.stop_in_reasoning
