"""The official client, synchronous and not: what its users call, on a real model."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

QUESTION: list[Any] = [{"role": "user", "content": "Name the capital of France."}]
GREEDY: dict[str, Any] = {"model": "smol", "temperature": 0, "max_tokens": 24}


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    assert [card.id for card in client.models.list()] == ["smol", "org/smol"]
    assert client.models.retrieve("org/smol").object == "model"
    with pytest.raises(openai.NotFoundError, match=r"The model 'other' is not served here; served: smol, org/smol\."):
        client.models.retrieve("other")


def test_chat_whole_and_streamed_say_the_same(client: openai.OpenAI) -> None:
    scored = GREEDY | {"logprobs": True, "top_logprobs": 2}
    whole = client.chat.completions.create(messages=QUESTION, **scored)
    chunks = list(
        client.chat.completions.create(
            messages=QUESTION,
            logprobs=True,
            top_logprobs=2,
            stream=True,
            stream_options={"include_usage": True},
            **GREEDY,
        )
    )
    answer = whole.choices[0]
    assert answer.message.content and "Paris" in answer.message.content
    assert answer.logprobs is not None and answer.logprobs.content is not None
    assert "".join(entry.token for entry in answer.logprobs.content).startswith(answer.message.content)
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in said) == answer.message.content
    streamed = [entry for choice in said if choice.logprobs for entry in choice.logprobs.content or ()]
    assert streamed == answer.logprobs.content
    assert said[-1].finish_reason == answer.finish_reason
    usage = chunks[-1].usage
    assert chunks[-1].choices == [] and usage is not None and whole.usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert len({chunk.id for chunk in chunks}) == 1


def test_several_choices_differ_and_a_seed_repeats_them(client: openai.OpenAI) -> None:
    settings: dict[str, Any] = GREEDY | {"temperature": 1.5, "n": 3, "seed": 7}
    first, again = (client.chat.completions.create(messages=QUESTION, **settings) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice.message.content for choice in again.choices]
    assert first.usage is not None and first.usage.completion_tokens > 24


def test_a_stop_string_ends_an_answer_before_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY).choices[0].message.content
    assert whole is not None and " is" in whole
    cut = client.chat.completions.create(messages=QUESTION, stop=[" is"], **GREEDY).choices[0]
    assert (cut.message.content, cut.finish_reason) == (whole.partition(" is")[0], "stop")


def test_the_stream_helper_puts_the_answer_together(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY)
    kinds: list[str] = []
    text = ""
    with client.chat.completions.stream(
        messages=QUESTION, stream_options={"include_usage": True}, logprobs=True, **GREEDY
    ) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "content.delta":
                text += event.delta
                assert event.snapshot == text
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text == whole.choices[0].message.content
    assert final.usage is not None and whole.usage is not None
    assert final.usage.completion_tokens == whole.usage.completion_tokens
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= set(kinds)


def test_leaving_a_stream_early_leaves_the_server_well(client: openai.OpenAI) -> None:
    with client.chat.completions.create(messages=QUESTION, stream=True, model="smol", max_tokens=800) as stream:
        next(iter(stream))
    assert client.chat.completions.create(messages=QUESTION, **GREEDY).choices[0].message.content


def test_raw_responses_have_the_request_s_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        messages=QUESTION, extra_headers={"x-request-id": "mine"}, **GREEDY
    )
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse()._request_id == "mine"


def test_completions_take_texts_and_tokens(client: openai.OpenAI) -> None:
    scored = client.completions.create(prompt="The sky is", echo=True, logprobs=1, **GREEDY | {"max_tokens": 0})
    assert scored.choices[0].text == "The sky is"
    two = client.completions.create(prompt=["The sky is", "Two and two make"], **GREEDY)
    assert [choice.index for choice in two.choices] == [0, 1]
    alone = client.completions.create(prompt="Two and two make", **GREEDY)
    assert two.choices[1].text == alone.choices[0].text
    streamed = client.completions.create(prompt="Two and two make", stream=True, **GREEDY)
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == alone.choices[0].text
    ids = client.completions.create(prompt=[504, 6376, 314], extra_body={"return_token_ids": True}, **GREEDY)
    assert ids.usage is not None and ids.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("fields", "error", "param", "message"),
    [
        ({"model": "none"}, openai.NotFoundError, "model", "The model 'none' is not served here"),
        ({"temperature": -1}, openai.BadRequestError, "temperature", "temperature must be in [0, 100], not -1.0"),
        ({"messages": []}, openai.BadRequestError, "messages", "'messages' is empty; send at least one message"),
        (
            {"messages": [{"role": "user", "content": "word " * 2000}]},
            openai.BadRequestError,
            "messages",
            "maximum context length is 1024 tokens and the prompt has 2031",
        ),
    ],
)
def test_refusals_are_the_client_s_own_exceptions(
    client: openai.OpenAI, fields: dict[str, Any], error: type[openai.APIStatusError], param: str, message: str
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"messages": QUESTION} | GREEDY | fields)
    assert caught.value.param == param
    assert message in caught.value.message
    assert caught.value.request_id


async def test_many_asynchronous_streams_run_beside_each_other(aclient: openai.AsyncOpenAI) -> None:
    async def ask(number: int) -> str:
        question: list[Any] = [{"role": "user", "content": f"Say the number {number}."}]
        stream = await aclient.chat.completions.create(messages=question, stream=True, **GREEDY)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    together = await asyncio.gather(*(ask(number) for number in range(8)))
    assert together == [await ask(number) for number in range(8)], "neighbours change nothing"


async def test_the_asynchronous_client_has_it_all(aclient: openai.AsyncOpenAI) -> None:
    assert [card.id async for card in aclient.models.list()] == ["smol", "org/smol"]
    whole = await aclient.chat.completions.create(messages=QUESTION, **GREEDY)
    async with aclient.chat.completions.stream(messages=QUESTION, **GREEDY) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content
    completion = await aclient.completions.create(prompt="The sky is", **GREEDY)
    assert completion.choices[0].text
    with pytest.raises(openai.NotFoundError, match=r"The model 'none' is not served here; served: smol, org/smol\."):
        await aclient.chat.completions.create(messages=QUESTION, **GREEDY | {"model": "none"})


async def test_a_cancelled_request_leaves_the_server_well(aclient: openai.AsyncOpenAI) -> None:
    task = asyncio.create_task(aclient.chat.completions.create(messages=QUESTION, model="smol", max_tokens=800, n=4))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await aclient.chat.completions.create(messages=QUESTION, **GREEDY)).choices[0].message.content
