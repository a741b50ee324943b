"""POST /v1/responses without a stream, as the official client and a raw one see it."""

from __future__ import annotations

import openai
import pytest
from server_fake import FakeEngine

from octavo.errors import ContextLengthExceeded, QueueFull
from octavo.sampling import RequestOptions


def test_the_answer_is_a_completed_response_with_usage(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.cached = 7
    got = client.responses.create(model="fake", input="Hi")
    assert got.id.startswith("resp_") and got.object == "response" and got.status == "completed"
    assert got.output_text == "Hello, world!"
    [message] = got.output
    assert message.type == "message" and message.role == "assistant" and message.status == "completed"
    assert message.id.startswith("msg_")
    [part] = message.content
    assert part.type == "output_text" and part.annotations == [] and part.logprobs == []
    prompt = len("<user:Hi|assistant:")  # a byte a token, and one for <s>
    assert got.usage is not None
    assert (got.usage.input_tokens, got.usage.output_tokens, got.usage.total_tokens) == (prompt, 5, prompt + 5)
    assert got.usage.input_tokens_details.cached_tokens == 7
    assert got.usage.output_tokens_details.reasoning_tokens == 0
    assert got.completed_at is not None and got.completed_at >= got.created_at > 0
    assert got.error is None and got.incomplete_details is None


def test_the_response_repeats_what_it_was_made_with(served) -> None:
    reply = served.respond(
        instructions="Be brief.",
        max_output_tokens=50,
        max_tool_calls=3,
        metadata={"a": "b"},
        temperature=0.5,
        top_p=0.25,
        truncation="auto",
        user="me",
        safety_identifier="s",
        prompt_cache_key="k",
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto"},
        service_tier="auto",
        text={"format": {"type": "text"}, "verbosity": "medium"},
        tool_choice="none",
    )
    assert reply.status == 200
    told = reply.json
    for name in ("id", "created_at", "completed_at", "output", "usage"):
        del told[name]
    assert told == {
        "object": "response",
        "status": "completed",
        "background": False,
        "conversation": None,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": 50,
        "max_tool_calls": 3,
        "metadata": {"a": "b"},
        "model": "fake",
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "prompt": None,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": None},
        "safety_identifier": "s",
        "service_tier": "default",
        "store": True,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "none",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 0.25,
        "truncation": "auto",
        "user": "me",
    }


def test_every_sampling_field_reaches_the_engine(client: openai.OpenAI, engine: FakeEngine) -> None:
    client.responses.create(
        model="org/fake-model",
        input="Hi",
        max_output_tokens=4,
        temperature=0.5,
        top_p=0.25,
        extra_body={
            "stop": ["x", "y"],
            "seed": 3,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "repetition_penalty": 1.5,
            "logit_bias": {"17": -100},
            "top_k": 5,
            "min_p": 0.125,
            "stop_token_ids": [9],
            "min_tokens": 1,
            "ignore_eos": True,
            "skip_special_tokens": False,
            "priority": -2,
            "cache_salt": "tenant",
            "some_other_server_s_field": 1,
        },
    )
    [seen] = engine.seen
    params = seen.params
    assert (params.max_tokens, params.temperature, params.top_p, params.n) == (4, 0.5, 0.25, 1)
    assert (params.stop_strings, params.seed, params.stop_ids) == (("x", "y"), 3, {9})
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (0.5, -0.5, 1.5)
    assert (params.top_k, params.min_p, params.min_tokens, params.logit_bias) == (5, 0.125, 1, {17: -100})
    assert (params.ignore_eos, params.skip_special_tokens) == (True, False)
    assert seen.options == RequestOptions(-2, "tenant")


def test_null_means_absent_everywhere(served, engine: FakeEngine) -> None:
    nulls = dict.fromkeys(
        "model instructions max_output_tokens max_tool_calls metadata temperature top_p truncation user tools text "
        "tool_choice reasoning include conversation previous_response_id background store stream stream_options "
        "top_logprobs safety_identifier prompt_cache_key prompt parallel_tool_calls service_tier n".split()
    )
    assert served.respond(**nulls).json["status"] == "completed"


def test_instructions_are_the_first_message(client: openai.OpenAI, engine: FakeEngine) -> None:
    client.responses.create(
        model="fake",
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "D"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
            {"type": "message", "role": "user", "content": "e"},
        ],
    )
    assert engine.seen[0].text == "system:Be brief.|system:D|user:a\nb|assistant:c|user:e|assistant:"


def test_a_limit_makes_the_response_incomplete(client: openai.OpenAI) -> None:
    got = client.responses.create(model="fake", input="Hi", max_output_tokens=2)
    assert got.status == "incomplete" and got.incomplete_details is not None
    assert got.incomplete_details.reason == "max_output_tokens"
    assert got.output_text == "Hello," and got.output[0].status == "incomplete"
    assert got.completed_at is None


def test_logprobs_come_where_they_are_included(client: openai.OpenAI) -> None:
    got = client.responses.create(
        model="fake", input="Hi", include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=3
    )
    logprobs = got.output[0].content[0].logprobs
    assert [entry.token for entry in logprobs] == ["Hello", ",", " wor"]
    assert [entry.logprob for entry in logprobs] == [-0.25, -0.5, -0.75]
    assert logprobs[1].bytes == list(b",")
    assert [(top.token, top.logprob) for top in logprobs[0].top_logprobs] == [("Hello", -0.25), ("!", -0.375)]


def test_reasoning_effort_reaches_the_template(client: openai.OpenAI, engine: FakeEngine) -> None:
    client.responses.create(model="fake", input="Hi", reasoning={"effort": "none"})
    client.responses.create(model="fake", input="Hi", reasoning={"effort": "high"})
    assert [seen.text.partition("user:")[0] for seen in engine.seen] == [
        "reasoning_effort=none;enable_thinking=False;thinking=False;",
        "reasoning_effort=high;",
    ]


def test_a_client_s_request_id_names_the_response(served) -> None:
    assert served.respond(request_id="named-1").json["id"] == "resp_named-1"
    again = served.respond(request_id="named-1")
    assert (again.status, again.error["param"]) == (400, "request_id")
    assert served.respond({"authorization": "Bearer other"}, request_id="named-1").status == 200


def test_input_tokens_are_counted_without_running(client: openai.OpenAI, engine: FakeEngine) -> None:
    counted = client.responses.input_tokens.count(model="fake", input="Hi", instructions="Be brief.")
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == len("<system:Be brief.|user:Hi|assistant:")
    assert not engine.seen


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"truncation": "some"}, "truncation"),
        ({"include": ["bananas"]}, "include[0]"),
        ({"background": True, "store": False}, "background"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"previous_response_id": "resp_x", "conversation": "conv_x"}, "previous_response_id"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{"type": "function", "name": "f"}] * 2}, "tools[1].name"),
    ],
)
def test_what_cannot_be_is_refused_by_name(served, engine: FakeEngine, fields, param: str) -> None:
    reply = served.respond(**fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert not engine.seen


def test_an_unknown_model_or_conversation_is_not_found(served) -> None:
    assert served.respond(model="other").status == 404
    assert served.respond(conversation="conv_x").status == 404


def test_what_fails_before_the_first_token_is_a_status(served, engine: FakeEngine) -> None:
    engine.fail_at = 0
    for error, status in ((QueueFull("full"), 429), (ContextLengthExceeded("long"), 400), (RuntimeError("x"), 500)):
        engine.error = error
        for stream in (False, True):
            assert served.respond(stream=stream).status == status


def test_a_failed_response_that_was_waited_for_is_a_status(served, engine: FakeEngine) -> None:
    engine.fail_at = 2
    reply = served.respond()
    assert (reply.status, reply.error["code"]) == (500, "internal_error")
    assert "secret" not in reply.error["message"]


def test_a_prompt_that_is_too_long_is_refused(served, engine: FakeEngine) -> None:
    engine.max_model_len = 30
    reply = served.respond(input="x" * 13)
    assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
    assert "truncation" in reply.error["message"]
    assert served.respond(input="x" * 12).status == 200


def test_a_prompt_is_cut_by_tokens_on_request(served, engine: FakeEngine) -> None:
    served.respond(input="abcdef", truncate_prompt_tokens=len("ef|assistant:"))
    assert engine.seen[0].text == "ef|assistant:"


def test_compaction_is_refused_in_words(served) -> None:
    reply = served.request("POST", "/v1/responses/compact", {"model": "fake", "input": "x"})
    assert reply.status == 400 and "truncation" in reply.error["message"]


async def test_the_async_client_gets_the_same(served) -> None:
    async with openai.AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        got = await client.responses.create(model="fake", input="Hi")
        assert got.output_text == "Hello, world!"
        assert (await client.responses.retrieve(got.id)).to_dict() == got.to_dict()
