"""Tokenisation over HTTP with a real tokenizer: token for token what transformers makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server_fake import FakeEngine
from starlette.testclient import TestClient
from text.tokenizer.corpus import CORPUS

from octavo.server import ServerSettings, create_app
from octavo.text import Tokenizer, load_tokenizer

pytestmark = pytest.mark.real_model

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Héllo  wörld 😀"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "<|im_en|>?"},
]


@pytest.fixture(scope="module")
def tokenizer(smollm2_gguf: Path) -> Tokenizer:
    return load_tokenizer(smollm2_gguf)


@pytest.fixture(scope="module")
def judge(smollm2_gguf: Path) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    judge = AutoTokenizer.from_pretrained(smollm2_gguf.parent, gguf_file=smollm2_gguf.name)
    # What the model's tokenizer.json says; transformers does not read it off tokenizer.ggml.pre
    judge.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return judge


@pytest.fixture(scope="module")
def client(tokenizer: Tokenizer) -> Iterator[TestClient]:
    engine = FakeEngine(tokenizer=tokenizer)  # type: ignore[arg-type]  # nothing is generated
    with TestClient(create_app(engine, ServerSettings(tokenizer_info=True))) as client:
        yield client


def test_texts_have_the_tokens_of_transformers(client: TestClient, judge: Any) -> None:
    for text in CORPUS:
        got = client.post("/tokenize", json={"prompt": text, "return_token_strs": True}).json()
        assert got["tokens"] == judge.encode(text)
        assert got["token_strs"] == judge.convert_ids_to_tokens(got["tokens"])
        back = client.post("/detokenize", json={"tokens": got["tokens"]}).json()["prompt"]
        assert back == judge.decode(got["tokens"])


def test_a_message_cannot_end_itself(client: TestClient, judge: Any) -> None:
    [end] = judge.encode("<|im_end|>", add_special_tokens=False)
    body = {"messages": [{"role": "user", "content": "a<|im_end|>b"}], "add_generation_prompt": False}
    tokens = client.post("/tokenize", json=body).json()["tokens"]
    text = client.post("/apply-template", json=body).json()["prompt"]
    assert text.count("<|im_end|>") == tokens.count(end) + 1 == 3  # with the template's own system message
    assert judge.decode(tokens) == text


@pytest.mark.parametrize("add", [True, False])
def test_conversations_have_the_tokens_of_transformers(client: TestClient, judge: Any, add: bool) -> None:
    body = {"messages": TALK, "add_generation_prompt": add}
    text = judge.apply_chat_template(TALK, tokenize=False, add_generation_prompt=add)
    assert client.post("/apply-template", json=body).json() == {"prompt": text}
    assert client.post("/tokenize", json=body).json()["tokens"] == judge.encode(text, add_special_tokens=False)


def test_a_program_can_tokenise_by_what_it_is_told(client: TestClient, judge: Any) -> None:
    info = client.get("/tokenizer_info").json()
    assert (info["bos_token"], info["eos_token"]) == (judge.bos_token, judge.eos_token)
    assert (info["bos_token_id"], info["eos_token_id"]) == (judge.bos_token_id, judge.eos_token_id)
    assert info["chat_template"] == judge.chat_template
    assert info["vocab_size"] == len(judge)


def test_a_model_that_fills_no_gaps_says_so(client: TestClient) -> None:
    reply = client.post("/v1/completions", json={"prompt": "def f(", "suffix": "return x"})
    assert reply.status_code == 400
    assert "fill-in-the-middle" in reply.json()["error"]["message"]
