"""Fields of the chat API that are neither sampling nor tools."""

from __future__ import annotations

import pytest
from tool_server import USER, ToolServer


@pytest.fixture
def server() -> ToolServer:
    return ToolServer(None)


def test_documents_and_effort_are_the_template_s(server: ToolServer) -> None:
    server.chat(documents=[{"text": "a"}], reasoning_effort="high")
    assert server.prompt.startswith("documents=[{'text': 'a'}];reasoning_effort=high;user:")


def test_no_effort_switches_thinking_off_and_template_kwargs_have_the_last_word(server: ToolServer) -> None:
    server.chat(reasoning_effort="none", chat_template_kwargs={"thinking": True})
    assert server.prompt.startswith("thinking=True;reasoning_effort=none;enable_thinking=False;user:")


def test_a_template_of_the_request_is_refused_unless_clients_are_trusted(server: ToolServer) -> None:
    error = server.refusal(chat_template="{{ messages }}")
    assert error["param"] == "chat_template"
    assert "--trust-request-chat-template" in error["message"]
    trusting = ToolServer(None, trust_request_chat_template=True)
    trusting.chat(chat_template="{{ messages }}")
    assert trusting.prompt.startswith("chat_template={{ messages }};user:")


def test_the_answer_can_begin_with_what_it_goes_on_with(server: ToolServer) -> None:
    begun = {"messages": [*USER, {"role": "assistant", "content": "I say: "}], "continue_final_message": True}
    assert server.chat(**begun)["choices"][0]["message"]["content"] == "Hello, world!"
    assert server.chat(**begun, echo=True)["choices"][0]["message"]["content"] == "I say: Hello, world!"
    chunks = list(
        server.client.chat.completions.create(
            model="fake",
            messages=begun["messages"],
            n=2,
            stream=True,
            extra_body={"continue_final_message": True, "echo": True},
        )
    )
    said = ["".join(c.choices[0].delta.content or "" for c in chunks if c.choices[0].index == i) for i in (0, 1)]
    assert said == ["I say: Hello, world!", "I say: Howdy, world!"]
    assert server.chat(echo=True)["choices"][0]["message"]["content"] == "Hello, world!"


def test_prompt_logprobs_have_an_entry_for_each_token(server: ToolServer) -> None:
    got = server.chat(prompt_logprobs=1, return_token_ids=True)
    entries = got["prompt_logprobs"]
    assert len(entries) == len(got["prompt_token_ids"])
    assert entries[0] is None
    assert entries[1][str(ord("u"))] == {"logprob": -0.25, "rank": 1, "decoded_token": "u"}
    assert "prompt_logprobs" not in server.chat()
    assert server.engine.seen[0].params.prompt_logprobs == 1


def test_long_conversations_can_be_cut(server: ToolServer) -> None:
    server.chat(truncate_prompt_tokens=4)
    assert server.prompt == "ant:"
    server.chat(truncate_prompt_tokens=4, truncation_side="right")
    assert server.prompt == "use"  # and <s>


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"documents": "x"}, "documents"),
        ({"documents": ["x"]}, "documents[0]"),
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"include_reasoning": "no"}, "include_reasoning"),
        ({"echo": 1}, "echo"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": 1001}, "truncate_prompt_tokens"),
        ({"truncation_side": "top"}, "truncation_side"),
        ({"use_beam_search": True}, "use_beam_search"),
    ],
)
def test_what_cannot_be_is_a_400_that_names_the_field(server: ToolServer, fields, param: str) -> None:
    assert server.refusal(**fields)["param"] == param
