"""POST /v1/score and /v1/rerank: cosines of embeddings (length, last token), or scores of a tenth of both lengths."""

from __future__ import annotations

import math
from typing import Any

import pytest
from server_fake import BOS, EOS, FakeEngine


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """A cross-encoder."""
    engine.tasks, engine.pairs = frozenset({"score"}), True
    return engine


def score(served: Any, **fields: Any) -> Any:
    return served.request("POST", "/v1/score", fields)


def rerank(served: Any, path: str = "/v1/rerank", **fields: Any) -> Any:
    return served.request("POST", path, {"query": "q"} | fields)


def test_a_pair_is_read_together(served, engine: FakeEngine) -> None:
    reply = score(served, text_1="ab", text_2="c", request_id="r", use_activation=False).json
    assert (reply["id"], reply["object"], reply["model"]) == ("score-r", "list", "fake")
    assert reply["data"] == [{"index": 0, "object": "score", "score": pytest.approx(0.5)}]
    assert reply["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    seen = engine.embedded[-1]
    assert seen.prompts == [[BOS, 97, 98, EOS, 99]] and seen.token_types == [[0, 0, 0, 1, 1]]
    assert seen.params.use_activation is False


@pytest.mark.parametrize("names", [("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents")])
def test_one_with_many_or_pair_by_pair(served, engine: FakeEngine, names) -> None:
    first, second = names
    one = score(served, **{first: "a", second: ["b", "cc"]}).json["data"]
    assert [d["score"] for d in one] == pytest.approx([0.4, 0.5])
    many = score(served, **{first: ["aa", "a"], second: ["b", "b"]}).json["data"]
    assert [(d["index"], d["score"]) for d in many] == [(0, pytest.approx(0.5)), (1, pytest.approx(0.4))]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text_1"),
        ({"text_1": "a"}, "text_2"),
        ({"text_1": ["a", "b"], "text_2": ["c"]}, "text_2"),
        ({"text_1": "a", "text_2": []}, "text_2"),
        ({"text_1": "a", "text_2": [5]}, "text_2"),
        ({"text_1": {"a": 1}, "text_2": "b"}, "text_2"),
        ({"text_1": "a", "text_2": ["b"] * 13}, "text_2"),
        ({"text_1": "a", "text_2": "b" * 2000}, "text_2"),
    ],
)
def test_what_cannot_be_paired_is_refused_by_name(served, engine: FakeEngine, fields, param) -> None:
    reply = score(served, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)


def test_an_embedding_model_scores_by_cosine_and_reads_each_text_once(served, engine: FakeEngine) -> None:
    engine.tasks, engine.pairs = frozenset({"embed", "score"}), False
    reply = score(served, text_1="a", text_2=["a", "bb"]).json
    expected = (2 * 3 + 97 * 98) / math.hypot(2, 97) / math.hypot(3, 98)
    assert [d["score"] for d in reply["data"]] == pytest.approx([1.0, expected])
    assert engine.embedded[-1].prompts == [[BOS, 97], [BOS, 98, 98]] and reply["usage"]["total_tokens"] == 5


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_back_the_best_first(served, engine: FakeEngine, path: str) -> None:
    reply = rerank(served, path, documents=["b", {"text": "dddd"}, "cc"], return_documents=True, request_id="r").json
    assert (reply["id"], reply["model"]) == ("rerank-r", "fake")
    assert [(r["index"], r["relevance_score"], r["document"]["text"]) for r in reply["results"]] == [
        (1, pytest.approx(0.7), "dddd"), (2, pytest.approx(0.5), "cc"), (0, pytest.approx(0.4), "b"),
    ]  # fmt: skip
    assert reply["usage"] == {"prompt_tokens": 16, "total_tokens": 16}


def test_only_as_many_as_asked_for_and_documents_where_the_path_has_them(served, engine: FakeEngine) -> None:
    documents = ["b", "ddd", "cc"]
    assert [r["index"] for r in rerank(served, documents=documents, top_n=2).json["results"]] == [1, 2]
    assert len(rerank(served, documents=documents, top_n=9).json["results"]) == 3
    assert len(rerank(served, documents=documents, top_n=0).json["results"]) == 3
    assert all("document" in r for r in rerank(served, documents=documents).json["results"])
    assert not any("document" in r for r in rerank(served, "/v2/rerank", documents=documents).json["results"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": "b"}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": ["b", {"image": "x"}]}, "documents[1]"),
        ({"documents": ["b"], "top_n": -1}, "top_n"),
        ({"documents": ["b"], "query": 5}, "query"),
        ({"documents": ["b"], "max_tokens_per_doc": 5}, "max_tokens_per_doc"),
        ({}, "documents"),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(served, engine: FakeEngine, fields, param) -> None:
    reply = rerank(served, **fields)
    assert (reply.status, reply.error["param"]) == (400, param)
