"""The official client's `.parse()`: answers come back as the user's own types, whatever the model would rather say."""

from __future__ import annotations

from enum import Enum
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field


class Kind(str, Enum):
    """What the answer is about."""

    CITY = "city"
    RIVER = "river"


class Place(BaseModel):
    """A place."""

    name: str = Field(max_length=20)
    kind: Kind
    inhabited: bool


QUESTION: list[Any] = [{"role": "user", "content": "Describe Paris as JSON with name, kind and inhabited."}]
ASK: dict[str, Any] = {"model": "smol", "temperature": 0, "max_tokens": 120}


def test_a_chat_answer_is_of_the_asked_type(client: openai.OpenAI) -> None:
    parsed = client.chat.completions.parse(messages=QUESTION, response_format=Place, **ASK)
    place = parsed.choices[0].message.parsed
    assert isinstance(place, Place)
    assert place == Place.model_validate_json(parsed.choices[0].message.content or "")


def test_every_choice_is_of_it_however_wild(client: openai.OpenAI) -> None:
    wild = ASK | {"temperature": 1.5, "n": 4, "seed": 3}
    parsed = client.chat.completions.parse(messages=QUESTION, response_format=Place, **wild)
    assert all(isinstance(choice.message.parsed, Place) for choice in parsed.choices)


def test_a_stream_ends_with_the_parsed_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.parse(messages=QUESTION, response_format=Place, **ASK)
    with client.chat.completions.stream(messages=QUESTION, response_format=Place, **ASK) as stream:
        done = [event.parsed for event in stream if event.type == "content.done"]
        final = stream.get_final_completion()
    assert done == [final.choices[0].message.parsed] == [whole.choices[0].message.parsed]


def test_an_answer_cut_short_is_told_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError, match="length limit was reached"):
        client.chat.completions.parse(messages=QUESTION, response_format=Place, **ASK | {"max_tokens": 3})


async def test_the_asynchronous_client_parses(aclient: openai.AsyncOpenAI) -> None:
    parsed = await aclient.chat.completions.parse(messages=QUESTION, response_format=Place, **ASK)
    assert isinstance(parsed.choices[0].message.parsed, Place)


def test_a_response_is_of_the_asked_type(client: openai.OpenAI) -> None:
    ask = {"model": "smol", "temperature": 0, "max_output_tokens": 120}
    response = client.responses.parse(input=QUESTION[0]["content"], text_format=Place, **ask)
    assert isinstance(response.output_parsed, Place)


def test_a_required_tool_is_called_with_arguments_of_its_type(client: openai.OpenAI) -> None:
    tool = openai.pydantic_function_tool(Place, name="keep")
    parsed = client.chat.completions.parse(messages=QUESTION, tools=[tool], tool_choice="required", **ASK)
    assert parsed.choices[0].finish_reason == "tool_calls"
    for call in parsed.choices[0].message.tool_calls or []:
        assert call.function.name == "keep"
        assert isinstance(call.function.parsed_arguments, Place)
