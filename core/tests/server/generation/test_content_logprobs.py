"""Logprobs of an answer are those of its content: joined, their bytes are the content, streamed and whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_engine import ScriptedServer

from octavo.text import load_tokenizer
from octavo.text.parsing.parts import ContentText, Part
from octavo.text.parsing.tools import ToolParser

pytestmark = pytest.mark.real_model

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools or '' }}\n"
USER = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
PIECES = [
    "<think>",
    "</think>",
    CALL,
    "\n\n",
    " ",
    "Yes",
    " it's 5 < 6",
    "<thi",
    "</",
    "é😀",
    "<tool",
    ".",
    "THE END",
    " 世界",
]


@pytest.fixture(scope="module")
def served(smollm2_gguf: Any) -> ScriptedServer:
    return ScriptedServer(
        load_tokenizer(smollm2_gguf, chat_template=TEMPLATE), tool_parser="hermes", reasoning_parser="think"
    )


@pytest.fixture(scope="module")
def gemma(gemma3_gguf: Any) -> ScriptedServer:
    return ScriptedServer(
        load_tokenizer(gemma3_gguf, chat_template=TEMPLATE), tool_parser="hermes", reasoning_parser="think"
    )


def joined(entries: list[Any]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode()


def checked_chat(served: ScriptedServer, **fields: Any) -> tuple[str, list[Any]]:
    """The content and its logprobs, which are the same in a stream."""
    body = {"messages": USER, "logprobs": True, **fields}
    [choice] = served.post("/v1/chat/completions", **body)["choices"]
    content, entries = choice["message"]["content"] or "", choice["logprobs"]["content"]
    assert joined(entries) == content
    deltas = [e["choices"][0] for e in served.stream("/v1/chat/completions", **body) if e["choices"]]
    assert "".join(d["delta"].get("content") or "" for d in deltas) == content
    assert [entry for d in deltas if d["logprobs"] for entry in d["logprobs"]["content"]] == entries
    return content, entries


def checked_response(served: ScriptedServer, **fields: Any) -> str:
    body = {"input": "Hi", "include": ["message.output_text.logprobs"], **fields}
    messages = [item for item in served.post("/v1/responses", **body)["output"] if item["type"] == "message"]
    events = served.stream("/v1/responses", **body)
    for item in messages:
        [part] = item["content"]
        assert joined(part["logprobs"]) == part["text"]
    streamed = [entry for e in events if e["type"] == "response.output_text.delta" for entry in e["logprobs"]]
    assert streamed == [entry for item in messages for entry in item["content"][0]["logprobs"]]
    return "".join(item["content"][0]["text"] for item in messages)


def test_no_end_token_is_content(served: ScriptedServer) -> None:
    end = served.tokenizer.eos_token_id
    assert end is not None
    served.say("Hello there", end)
    content, entries = checked_chat(served)
    assert content == "Hello there"
    assert [entry["token"] for entry in entries] == ["Hello", " there"]
    assert [entry["logprob"] for entry in entries] == [-0.25, -0.5]


def test_no_stop_string_is_content(served: ScriptedServer) -> None:
    served.say("One. THE END and more")
    assert checked_chat(served, stop=["E END"])[0] == "One. TH"
    assert checked_chat(served, stop=["E END"], include_stop_str_in_output=True)[0] == "One. THE END"


def test_no_reasoning_and_no_call_is_content(served: ScriptedServer) -> None:
    served.say(f"<think>\nhm, 1 < 2\n</think>\n\nI add. {CALL}")
    content, entries = checked_chat(served, tools=TOOLS)
    assert content == "I add."
    assert [entry["token"] for entry in entries] == ["I", " add", "."]
    assert checked_response(served, tools=[{"type": "function", "name": "add"}]) == "I add."
    served.say(CALL)
    assert checked_chat(served, tools=TOOLS) == ("", [])


def test_a_token_that_is_content_in_part_has_the_bytes_of_that_part(gemma: ScriptedServer) -> None:
    served = gemma
    blank = served.tokenizer.encode("x\n\n\n", add_special_tokens=False)[-1:]
    assert served.tokenizer.token_bytes(blank[0]) == b"\n\n\n"
    served.say("Yes</", "thi", "nk> ", "<tool_cal", "l", *blank)
    assert checked_chat(served, tools=TOOLS)[0] == "Yes</think> <tool_call\n\n\n"


@pytest.mark.parametrize("model", ["served", "gemma"])
@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8), stop=st.sampled_from([None, "E EN", "< 6", "界"])
)
def test_joined_bytes_are_the_content(request: Any, model: str, pieces: list[str], stop: str | None) -> None:
    served: ScriptedServer = request.getfixturevalue(model)
    served.say("".join(pieces))
    checked_chat(served, tools=TOOLS, **({"stop": stop} if stop else {}))
    served.say(*pieces)
    checked_chat(served, **({"stop": stop} if stop else {}))
    checked_response(served, tools=[{"type": "function", "name": "add"}])


def test_a_character_of_several_tokens_is_content_of_all_of_them(served: ScriptedServer) -> None:
    ids = served.tokenizer.encode("☃", add_special_tokens=False)
    assert len(ids) > 1
    served.say(*ids)
    content, entries = checked_chat(served)
    assert (content, len(entries)) == ("☃", len(ids))


def test_words_that_come_behind_reasoning_have_their_tokens(served: ScriptedServer) -> None:
    served.say("</think> so<think>THE END")
    content, entries = checked_chat(served, tools=TOOLS)
    assert content == "</think> so"
    assert [entry["token"] for entry in entries] == ["</", "think", ">", " so"]


class Loud:
    """A plugin's parser that does not say where its words stand: what is between stars is no words."""

    def __init__(self) -> None:
        self._starred = False

    def push(self, text: str) -> list[Part]:
        parts: list[Part] = []
        for character in text:
            if character == "*":
                self._starred = not self._starred
            elif not self._starred:
                parts.append(ContentText(character))
        return parts

    def finish(self) -> list[Part]:
        return []


def test_words_of_a_parser_that_does_not_say_where_they_stand_are_looked_for(smollm2_gguf: Any) -> None:
    loud = ToolParser("loud", open=lambda tools: Loud(), claims=lambda template: False)
    tokenizer = load_tokenizer(smollm2_gguf, chat_template=TEMPLATE)
    served = ScriptedServer(tokenizer, plugged=(loud,), tool_parser="loud")
    served.say("One two *xyz* and three")
    content, entries = checked_chat(served, tools=TOOLS)
    assert content == "One two  and three"
    assert [entry["token"] for entry in entries][:2] == ["One", " two"]
