"""Chat completions, whole and streamed, as the official client and a raw one see them."""

from __future__ import annotations

import openai
import pytest
from server_fake import BANG, COMMA, HELLO, LD, SEPARATOR, SMILE, WOR, FakeEngine

from octavo.sampling import RequestOptions

USER = [{"role": "user", "content": "Hi"}]


def test_the_answer_is_one_message_with_usage(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.cached = 7
    got = client.chat.completions.create(model="fake", messages=USER)
    assert got.id.startswith("chatcmpl-")
    assert got.object == "chat.completion"
    assert got.created > 0
    assert got.model == "fake"
    assert got.system_fingerprint.startswith("fp_")
    [choice] = got.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "Hello, world!"
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    prompt = len("<user:Hi|assistant:")  # a byte a token, and one for <s>
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (prompt, 5, prompt + 5)
    assert got.usage.prompt_tokens_details.cached_tokens == 7


@pytest.mark.parametrize("stream", [False, True])
def test_the_cached_tokens_of_a_prompt_count_once_however_many_choices_it_has(
    client: openai.OpenAI, engine: FakeEngine, stream: bool
) -> None:
    engine.cached = 7
    asked = {"model": "fake", "messages": USER, "n": 3}
    if stream:
        *_, last = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        usage = last.usage
    else:
        usage = client.chat.completions.create(**asked).usage
    assert usage.prompt_tokens_details.cached_tokens == 7
    assert usage.completion_tokens == 3 * 5


def test_a_length_limit_is_told_as_the_reason(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(model="fake", messages=USER, max_completion_tokens=2)
    assert got.choices[0].message.content == "Hello,"
    assert got.choices[0].finish_reason == "length"


def test_every_sampling_field_reaches_the_engine(client: openai.OpenAI, engine: FakeEngine) -> None:
    client.chat.completions.create(
        model="org/fake-model",
        messages=USER,
        max_tokens=4,
        temperature=0.5,
        top_p=0.25,
        n=2,
        stop=["x", "y"],
        seed=3,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={"17": -100},
        user="me",
        metadata={"a": "b"},
        extra_body={
            "top_k": 5,
            "min_p": 0.125,
            "repetition_penalty": 1.5,
            "stop_token_ids": [9],
            "min_tokens": 1,
            "ignore_eos": True,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "priority": -2,
            "cache_salt": "tenant",
            "some_other_server_s_field": 1,
        },
    )
    [seen] = engine.seen
    params = seen.params
    assert (params.max_tokens, params.temperature, params.top_p, params.n) == (4, 0.5, 0.25, 2)
    assert (params.stop_strings, params.seed, params.stop_ids) == (("x", "y"), 3, {9})
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (0.5, -0.5, 1.5)
    assert (params.top_k, params.min_p, params.min_tokens, params.logit_bias) == (5, 0.125, 1, {17: -100})
    assert (params.ignore_eos, params.include_stop_str_in_output, params.skip_special_tokens) == (True, True, False)
    assert seen.options == RequestOptions(-2, "tenant")


def test_null_means_absent_everywhere(served, engine: FakeEngine) -> None:
    nulls = dict.fromkeys(
        "n temperature top_p top_k min_p stop seed stream stream_options logprobs top_logprobs presence_penalty "
        "frequency_penalty repetition_penalty logit_bias user tools tool_choice response_format max_tokens "
        "max_completion_tokens stop_token_ids min_tokens ignore_eos model chat_template_kwargs guided_json".split()
    )
    assert served.chat(**nulls).status == 200
    assert served.chat().status == 200
    with_nulls, without = engine.seen
    assert with_nulls.params == without.params
    assert with_nulls.prompt == without.prompt


def test_the_prompt_is_what_the_template_writes(served, engine: FakeEngine) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "user", "content": "c", "name": "me"},
    ]
    assert served.chat(messages=messages).status == 200
    assert engine.seen[0].text == "system:Be brief.|user:a\nb|assistant:|user:c|assistant:"

    served.chat(messages=messages[:2], add_generation_prompt=False, chat_template_kwargs={"thinking": False})
    assert engine.seen[1].text == "thinking=False;system:Be brief.|user:a\nb|"

    served.chat(messages=[*USER, {"role": "assistant", "content": "Oh"}], continue_final_message=True)
    assert engine.seen[2].text == "user:Hi|assistant:Oh"


def test_a_long_conversation_is_tokenised_alike(served, engine: FakeEngine) -> None:
    """It goes through a thread, where a short one does not."""
    assert served.chat(messages=[{"role": "user", "content": "long" * 5000}]).status == 200
    assert engine.seen[0].text == "user:" + "long" * 5000 + "|assistant:"


def test_n_choices_are_told_apart_and_counted_together(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(model="fake", messages=USER, n=3)
    assert [(c.index, c.message.content) for c in got.choices] == [
        (0, "Hello, world!"),
        (1, "Howdy, world!"),
        (2, "Hi, world!"),
    ]
    assert got.usage.completion_tokens == 15
    assert got.usage.prompt_tokens == len("<user:Hi|assistant:")


def test_logprobs_have_token_bytes_and_alternatives(client: openai.OpenAI, engine: FakeEngine) -> None:
    engine.script = (HELLO, SMILE)
    got = client.chat.completions.create(model="fake", messages=USER, logprobs=True, top_logprobs=4)
    first, second = got.choices[0].logprobs.content
    assert (first.token, first.logprob, bytes(first.bytes)) == ("Hello", -0.25, b"Hello")
    assert (second.token, second.logprob, bytes(second.bytes)) == ("😀", -0.5, "😀".encode())
    assert [(t.token, t.logprob, t.bytes) for t in first.top_logprobs] == [
        ("Hello", -0.25, list(b"Hello")),
        ("!", -0.375, [33]),
        ("bytes:\\xff", -0.5, [255]),
        ("bytes:\\xfe", -9999.0, [254]),
    ]


def test_logprobs_without_alternatives(served, engine: FakeEngine) -> None:
    [choice] = served.chat(logprobs=True, max_tokens=1).json["choices"]
    assert choice["logprobs"] == {
        "content": [{"token": "Hello", "logprob": -0.25, "bytes": list(b"Hello"), "top_logprobs": []}],
        "refusal": None,
    }
    assert engine.seen[0].params.logprobs == 0
    [choice] = served.chat(logprobs=True, max_tokens=1, return_tokens_as_token_ids=True).json["choices"]
    assert choice["logprobs"]["content"][0]["token"] == f"token_id:{HELLO}"


def test_a_stream_is_role_pieces_finish_done(served) -> None:
    events = served.chat(stream=True).events
    assert len({(e["id"], e["created"], e["model"], e["object"]) for e in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"
    assert all("usage" not in e for e in events)
    choices = [e["choices"][0] for e in events]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["delta"] for c in choices[1:]] == [{"content": t} for t in ("Hello", ",", " wor", "ld", "!")]
    assert [c["finish_reason"] for c in choices] == [None] * 5 + ["stop"]


def test_usage_comes_in_a_chunk_of_its_own_when_asked_for(served) -> None:
    events = served.chat(stream=True, stream_options={"include_usage": True}).events
    assert all(e["usage"] is None for e in events[:-1])
    assert events[-1]["choices"] == []
    prompt = len("<user:Hi|assistant:")
    assert events[-1]["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 5,
        "total_tokens": prompt + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_usage_can_come_on_every_chunk(served) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = served.chat(stream=True, stream_options=options).events
    assert [e["usage"]["completion_tokens"] for e in events] == [1, 1, 2, 3, 4, 5, 5]


def test_a_stream_of_n_choices_keeps_them_apart(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    roles = []
    for chunk in client.chat.completions.create(model="fake", messages=USER, n=2, stream=True):
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        roles += [choice.index] if choice.delta.role else []
    assert texts == {0: "Hello, world!", 1: "Howdy, world!"}
    assert roles == [0, 1]


def test_no_chunk_is_empty_while_text_is_held_back(served, engine: FakeEngine) -> None:
    engine.silent = frozenset({0, 2})
    events = served.chat(stream=True).events
    assert [e["choices"][0]["delta"].get("content") for e in events] == ["", "Hello,", " world", "!"]
    with_logprobs = served.chat(stream=True, logprobs=True).events
    tokens = [t["token"] for e in with_logprobs for t in (e["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert tokens == ["Hello", ",", " wor", "ld", "!"]


def test_line_separators_of_unicode_do_not_split_an_event(served, engine: FakeEngine) -> None:
    engine.script = (HELLO, SEPARATOR, SMILE)
    reply = served.chat(stream=True)
    assert "\u2028" not in reply.body.decode()
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in reply.events) == "Hello\u2028😀"


def test_token_ids_come_when_asked_for(served, engine: FakeEngine) -> None:
    whole = served.chat(return_token_ids=True).json
    assert whole["choices"][0]["token_ids"] == [HELLO, COMMA, WOR, LD, BANG]
    assert whole["prompt_token_ids"] == engine.seen[0].prompt
    events = served.chat(return_token_ids=True, stream=True).events
    assert [i for e in events for i in e["choices"][0].get("token_ids", [])] == [HELLO, COMMA, WOR, LD, BANG]
    assert [e["prompt_token_ids"] for e in events if "prompt_token_ids" in e] == [engine.seen[0].prompt]
    assert "token_ids" not in served.chat().json["choices"][0]


def test_the_id_can_be_chosen_and_repeated(served, engine: FakeEngine) -> None:
    assert served.chat(request_id="mine").json["id"] == "chatcmpl-mine"
    assert served.chat(request_id="mine").json["id"] == "chatcmpl-mine"
    assert len({seen.request_id for seen in engine.seen}) == 2


async def test_the_async_client_streams(served) -> None:
    async with openai.AsyncOpenAI(base_url=served.url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model="fake", messages=USER, stream=True)
        assert "".join([c.choices[0].delta.content or "" async for c in stream]) == "Hello, world!"


def test_the_client_s_stream_helper_accumulates(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="fake", messages=USER) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello, world!"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": ["user"], "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "Hi"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [*USER, {"role": "assistant", "tool_calls": [{"id": "1"}]}]},
            "messages[1].tool_calls[0].function",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["Hi"]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [*USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[1].content[0].type",
        ),
        ({"messages": [{"role": "assistant", "content": "I begin"}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"temperature": "0.5"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"stop": [1]}, "stop[0]"),
        ({"stop": ""}, "stop"),
        ({"logit_bias": {"hello": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"stop_token_ids": ["5"]}, "stop_token_ids[0]"),
        ({"min_tokens": 9, "max_tokens": 5}, "min_tokens"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"cache_salt": "x" * 129}, "cache_salt"),
        ({"request_id": "a b"}, "request_id"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_value_is_a_400_that_names_the_field(served, engine: FakeEngine, fields, param, stream) -> None:
    reply = served.chat(**({"stream": True} if stream and "stream_options" not in fields else {}) | fields)
    assert (reply.status, reply.error["param"]) == (400, param)
    assert reply.error["type"] == "invalid_request_error"
    assert not engine.seen
