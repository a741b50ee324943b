"""The official Anthropic client against /v1/messages, on a real model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

QUESTION: list[Any] = [{"role": "user", "content": "Name the capital of France."}]
ASK: dict[str, Any] = {"model": "smol", "max_tokens": 24, "extra_body": {"temperature": 0}}
"""The client has no argument for the temperature any more; the API takes it."""


@pytest.fixture
def claude(server: str) -> Iterator[anthropic.Anthropic]:
    """The synchronous client; it does not retry."""
    with anthropic.Anthropic(base_url=server.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        yield client


def test_a_message_whole_and_streamed_is_the_same(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(messages=QUESTION, **ASK)
    assert (whole.role, whole.stop_reason) == ("assistant", "end_turn")
    assert "Paris" in whole.content[0].text  # type: ignore[union-attr]
    with claude.messages.stream(messages=QUESTION, **ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_system_text_and_stop_sequences_are_honoured(claude: anthropic.Anthropic) -> None:
    cut = claude.messages.create(messages=QUESTION, system="You are brief.", stop_sequences=["Paris"], **ASK)
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", "Paris")
    assert "Paris" not in cut.content[0].text  # type: ignore[union-attr]


def test_tokens_are_counted_as_they_are_used(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="smol", messages=QUESTION)
    used = claude.messages.create(messages=QUESTION, **ASK).usage
    assert counted.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)


def test_refusals_are_the_client_s_own_exceptions(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match=r"The model 'none' is not served here; served: smol, org/smol\."):
        claude.messages.create(messages=QUESTION, **ASK | {"model": "none"})
    long: list[Any] = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        claude.messages.create(messages=long, **ASK)


async def test_the_asynchronous_client_streams(server: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=server.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        whole = await client.messages.create(messages=QUESTION, **ASK)
        async with client.messages.stream(messages=QUESTION, **ASK) as stream:
            final = await stream.get_final_message()
    assert final.content[0].text == whole.content[0].text  # type: ignore[union-attr]
