"""The official client's Responses API, on a real model: its accumulator accepts our events, what is kept comes back."""

from __future__ import annotations

from typing import Any

import openai
import pytest

ASK: dict[str, Any] = {"model": "smol", "temperature": 0, "max_output_tokens": 24}
QUESTION = "Name the capital of France."


def test_a_response_is_made_and_retrieved_and_deleted(client: openai.OpenAI) -> None:
    made = client.responses.create(input=QUESTION, **ASK)
    assert made.status == "completed"
    assert "Paris" in made.output_text
    assert client.responses.retrieve(made.id).output == made.output
    assert [item.type for item in client.responses.input_items.list(made.id)] == ["message"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{made.id}' not found"):
        client.responses.retrieve(made.id)


def test_the_stream_helper_puts_the_same_response_together(client: openai.OpenAI) -> None:
    whole = client.responses.create(input=QUESTION, **ASK)
    text, kinds = "", []
    with client.responses.stream(input=QUESTION, **ASK) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        final = stream.get_final_response()
    assert final.output_text == text == whole.output_text
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert final.usage is not None and whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_an_answer_cut_short_is_incomplete(client: openai.OpenAI) -> None:
    cut = client.responses.create(input="Tell a long story.", **ASK | {"max_output_tokens": 16})
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None and cut.incomplete_details.reason == "max_output_tokens"


def test_a_conversation_goes_on_from_a_response(client: openai.OpenAI) -> None:
    first = client.responses.create(input="My name is Ada. Say hello.", **ASK)
    second = client.responses.create(input="What is my name?", previous_response_id=first.id, **ASK)
    alone = client.responses.create(input="What is my name?", **ASK)
    assert second.usage is not None and alone.usage is not None and first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens > alone.usage.input_tokens


async def test_the_asynchronous_client_streams(aclient: openai.AsyncOpenAI) -> None:
    whole = await aclient.responses.create(input=QUESTION, **ASK)
    async with aclient.responses.stream(input=QUESTION, **ASK) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_response()
    assert final.output_text == whole.output_text
