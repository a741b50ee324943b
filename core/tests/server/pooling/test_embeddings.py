"""POST /v1/embeddings."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import openai
import pytest
from pydantic import BaseModel
from server_fake import BOS, FakeEngine

from octavo.errors import RequestError
from octavo.sampling import RequestOptions
from octavo.server.pooling.schema import POOLING_UNSUPPORTED, EmbeddingRequest, RerankRequest, ScoreRequest


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """An engine that makes vectors of (length, last token)."""
    engine.tasks = frozenset({"embed", "score"})
    return engine


def embed(served: Any, **fields: Any) -> Any:
    return served.request("POST", "/v1/embeddings", fields)


def test_the_official_client_reads_them(client: openai.OpenAI, engine: FakeEngine) -> None:
    reply = client.embeddings.create(model="fake", input=["ab", "abc"])
    assert [(d.index, d.embedding) for d in reply.data] == [(0, [3.0, ord("b")]), (1, [4.0, ord("c")])]
    assert (reply.model, reply.object, reply.usage.prompt_tokens, reply.usage.total_tokens) == ("fake", "list", 7, 7)


def test_numbers_by_default_and_little_endian_float32_for_base64(served, engine: FakeEngine) -> None:
    assert embed(served, input="ab").json["data"] == [{"object": "embedding", "index": 0, "embedding": [3.0, 98.0]}]
    (one,) = embed(served, input="ab", encoding_format="base64").json["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == [3.0, 98.0]
    assert embed(served, input="ab", encoding_format="float").json["data"][0]["embedding"] == [3.0, 98.0]
    assert embed(served, input="ab", encoding_format="hex").error["param"] == "encoding_format"


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("Hi", [[BOS, 72, 105]]),
        (["Hi", "H"], [[BOS, 72, 105], [BOS, 72]]),
        ([7, 8, 9], [[7, 8, 9]]),
        ([[7, 8], [9]], [[7, 8], [9]]),
    ],
)
def test_the_four_shapes_of_input(served, engine: FakeEngine, given, prompts) -> None:
    assert embed(served, input=given).status == 200
    assert engine.embedded[-1].prompts == prompts


def test_fields_reach_the_engine(served, engine: FakeEngine) -> None:
    reply = embed(
        served, input="Hi", dimensions=1, use_activation=False, priority=3, cache_salt="me", request_id="r",
        add_special_tokens=False, user="u",
    )  # fmt: skip
    assert reply.json["data"][0]["embedding"] == [2.0]
    seen = engine.embedded[-1]
    assert (seen.params.dimensions, seen.params.use_activation, seen.options) == (1, False, RequestOptions(3, "me"))
    assert seen.request_id.startswith("embd-r-") and seen.token_types is None
    embed(served, input="Hi", normalize=True)
    assert engine.embedded[-1].params.use_activation is True


def test_a_conversation_is_embedded_through_the_template(served, engine: FakeEngine) -> None:
    assert embed(served, messages=[{"role": "user", "content": "Hi"}]).status == 200
    assert bytes(engine.embedded[-1].prompts[0][1:]) == b"user:Hi|"
    both = embed(served, messages=[{"role": "user", "content": "Hi"}], input="Hi")
    assert (both.status, both.error["param"]) == (400, "input")


def test_too_long_is_refused_or_cut_where_that_is_asked_for(served, engine: FakeEngine) -> None:
    engine.max_model_len = 4
    refused = embed(served, input=["a", "abcdef"])
    assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "context_length_exceeded", "input")
    assert "'input' 1 has 7 tokens" in refused.error["message"] and not engine.embedded
    for limit, length in ((-1, 4), (3, 3)):
        assert embed(served, input=["a", "abcdef"], truncate_prompt_tokens=limit).status == 200
        assert [len(p) for p in engine.embedded[-1].prompts] == [2, length]
    assert embed(served, input=[1] * 9, truncate_prompt_tokens=2).json["usage"]["total_tokens"] == 2
    assert embed(served, input="a", truncate_prompt_tokens=5).error["param"] == "truncate_prompt_tokens"


@pytest.mark.parametrize("bad", ["", [], [""], [[]], [1, "a"], ["a", 1], {"a": 1}, 5, None, [["a"]], [True]])
def test_what_is_no_input_is_refused_by_name(served, engine: FakeEngine, bad) -> None:
    reply = embed(served, input=bad)
    assert (reply.status, reply.error["param"]) == (400, "input")


def test_the_number_of_inputs_is_limited(served, engine: FakeEngine) -> None:
    assert embed(served, input=["a"] * 5).status == 200
    reply = embed(served, input=["a"] * 6)
    assert (reply.status, reply.error["param"]) == (400, "input") and "at most 5" in reply.error["message"]


def test_what_the_engine_refuses_keeps_its_field(served, engine: FakeEngine) -> None:
    engine.fail_at, engine.error = 0, RequestError("dimensions is 5", param="dimensions")
    reply = embed(served, input="a", dimensions=5)
    assert (reply.status, reply.error["param"]) == (400, "dimensions")
    engine.error = RuntimeError("secret")
    reply = embed(served, input="a")
    assert reply.status == 500 and "secret" not in reply.body.decode()


def test_fields_of_others_that_change_the_answer_are_refused(served, engine: FakeEngine) -> None:
    assert embed(served, input="a", embed_dtype="float32", endianness="little").status == 200
    assert embed(served, input="a", embed_dtype="float16").error["param"] == "embed_dtype"
    assert embed(served, input="a", model="other").status == 404


@pytest.mark.parametrize("model", [EmbeddingRequest, ScoreRequest, RerankRequest])
def test_no_field_is_both_built_and_unsupported(model: type[BaseModel]) -> None:
    assert not POOLING_UNSUPPORTED.keys() & model.model_fields.keys()


def test_a_model_that_generates_says_so(served, engine: FakeEngine) -> None:
    engine.tasks = frozenset({"generate"})
    for path in ("/v1/embeddings", "/v1/score", "/v1/rerank"):
        reply = served.request("POST", path, {"input": "a"})
        assert (reply.status, reply.error["code"]) == (400, "unsupported_task")
        assert "generates text" in reply.error["message"]


def test_a_model_that_embeds_answers_no_chat(served, engine: FakeEngine) -> None:
    for reply in (served.chat(), served.complete()):
        assert (reply.status, reply.error["code"]) == (400, "unsupported_task")
        assert "/v1/embeddings" in reply.error["message"]
    assert not engine.seen


def test_a_cross_encoder_makes_no_embeddings(served, engine: FakeEngine) -> None:
    engine.tasks, engine.pairs = frozenset({"score"}), True
    reply = embed(served, input="a")
    assert reply.status == 400 and "/v1/rerank" in reply.error["message"]


def test_a_client_that_leaves_ends_its_request(served, engine: FakeEngine) -> None:
    engine.pause = 30
    with openai.OpenAI(base_url=served.url, api_key="none", max_retries=0, timeout=0.5) as client:
        with pytest.raises(openai.APITimeoutError):
            client.embeddings.create(model="fake", input="a")
    engine.wait_until(lambda: engine.ended and not engine.running)
