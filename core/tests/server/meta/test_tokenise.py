"""Tokenisation over HTTP: what the generating APIs would make of the same text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server_fake import BOS, COMMA, EOS, HELLO, TWIN, FakeEngine
from starlette.testclient import TestClient

from octavo.server import ServerSettings, create_app

HI = [{"role": "user", "content": "Hi"}]
BOTH = pytest.mark.parametrize("prefix", ["", "/v1"])


@BOTH
def test_a_text_becomes_tokens(served, prefix) -> None:
    reply = served.request("POST", f"{prefix}/tokenize", {"model": "fake", "prompt": "Hi"})
    assert reply.json == {"count": 3, "max_model_len": 1000, "tokens": [BOS, 72, 105], "token_strs": None}


def test_tokens_come_with_their_names_and_without_special_ones(served) -> None:
    body = {"prompt": "Hi", "add_special_tokens": False, "return_token_strs": True}
    assert served.request("POST", "/tokenize", body).json == {
        "count": 2,
        "max_model_len": 1000,
        "tokens": [72, 105],
        "token_strs": ["<72>", "<105>"],
    }


def test_an_empty_text_has_tokens_too(served) -> None:
    assert served.request("POST", "/tokenize", {"prompt": ""}).json["tokens"] == [BOS]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"add_generation_prompt": False},
        {"chat_template_kwargs": {"mood": "good"}},
        {"messages": [*HI, {"role": "assistant", "content": "We"}], "continue_final_message": True},
        {"truncate_prompt_tokens": 4},
    ],
)
def test_a_conversation_has_the_tokens_that_chat_would_ask_with(served, engine: FakeEngine, fields) -> None:
    got = served.request("POST", "/tokenize", {"messages": HI, **fields}).json
    assert served.chat(**fields).status == 200
    assert got["tokens"] == engine.seen[0].prompt
    assert got["count"] == len(got["tokens"])


def test_a_conversation_has_the_text_of_its_tokens(served) -> None:
    body = {"messages": HI, "chat_template_kwargs": {"mood": "good"}}
    assert served.request("POST", "/apply-template", body).json == {"prompt": "mood=good;user:Hi|assistant:"}
    body["add_generation_prompt"] = False
    assert served.request("POST", "/v1/apply-template", body).json == {"prompt": "mood=good;user:Hi|"}


@BOTH
def test_tokens_become_a_text(served, prefix) -> None:
    tokens = [BOS, HELLO, COMMA, EOS]
    assert served.request("POST", f"{prefix}/detokenize", {"tokens": tokens}).json == {"prompt": "<s>Hello,</s>"}
    body = {"tokens": tokens, "skip_special_tokens": True}
    assert served.request("POST", f"{prefix}/detokenize", body).json == {"prompt": "Hello,"}
    assert served.request("POST", f"{prefix}/detokenize", {"tokens": []}).json == {"prompt": ""}


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": "Hi", "messages": HI}, 400, "prompt"),
        ("/tokenize", {"prompt": ["Hi"]}, 400, "prompt"),
        ("/tokenize", {"messages": []}, 400, "messages"),
        ("/tokenize", {"messages": "Hi"}, 400, "messages"),
        ("/tokenize", {"messages": [{"role": "assistant", "content": "a"}]}, 400, "messages"),
        ("/tokenize", {"prompt": "Hi", "model": "other"}, 404, "model"),
        ("/tokenize", {"messages": HI, "model": "other"}, 404, "model"),
        ("/detokenize", {}, 400, "tokens"),
        ("/detokenize", {"tokens": "Hi"}, 400, "tokens"),
        ("/detokenize", {"tokens": [1, "2"]}, 400, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [TWIN + 1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [1], "model": "other"}, 404, "model"),
        ("/apply-template", {}, 400, "messages"),
        ("/apply-template", {"messages": HI, "model": "other"}, 404, "model"),
        ("/apply-template", {"messages": [{"role": "assistant", "content": "a"}]}, 400, "messages"),
    ],
)
def test_what_is_wrong_is_named(served, path, body, status, param) -> None:
    reply = served.request("POST", path, body)
    assert (reply.status, reply.error["param"]) == (status, param)


def test_the_tokenizer_s_facts_are_off_by_default(served) -> None:
    for path in ("/tokenizer_info", "/v1/tokenizer_info"):
        assert served.request("GET", path).status == 404


@pytest.fixture
def open_client() -> Iterator[TestClient]:
    """A server that shows them."""
    with TestClient(create_app(FakeEngine(), ServerSettings(tokenizer_info=True))) as client:
        yield client


@BOTH
def test_the_tokenizer_s_facts_can_be_switched_on(open_client: TestClient, prefix) -> None:
    assert open_client.get(f"{prefix}/tokenizer_info").json() == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": None,
        "chat_template": None,
        "max_model_len": 1000,
    }
