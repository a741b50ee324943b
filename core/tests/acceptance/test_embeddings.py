"""A real sentence encoder: as near to transformers in float32 as its numbers allow, and served to official clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import torch
import transformers
from served import octavo_serve

from octavo import LLM

TEXTS = [
    "How do I bake bread?",
    "Mix flour, water, salt and yeast, let the dough rise, then bake it.",
    "The stock market fell by two percent on Monday.",
    "",
    "Ein Satz auf Deutsch, und 日本語も少し, and some emoji 😀.",
    "A long text about the sea and the ships that sail on it. " * 17,
]
LEAST = {"reference": 0.999999, "cpu": 0.9999}
"""Cosine with transformers in float32. The native runtime keeps keys and values as bf16."""


@pytest.fixture(scope="module")
def judge(minilm: Path) -> dict[str, np.ndarray]:
    """The normalised mean of transformers' hidden states for each text, in float32."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm, dtype=torch.float32).eval()
    vectors = {}
    for text in TEXTS:
        with torch.no_grad():
            states = model(torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0].numpy()
        vectors[text] = states.mean(0) / np.linalg.norm(states.mean(0))
    return vectors


@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_embeddings_are_those_of_transformers(platform: str, minilm: Path, judge: dict[str, np.ndarray]) -> None:
    llm = LLM(minilm, platform=platform)
    outputs = llm.embed(TEXTS, use_tqdm=False)
    for text, output in zip(TEXTS, outputs, strict=True):
        assert float(output.embedding @ judge[text]) > LEAST[platform], text
    if platform == "cpu":  # where a row's bits do not depend on its company
        for text, output in zip(TEXTS, outputs, strict=True):
            np.testing.assert_array_equal(llm.embed(text, use_tqdm=False)[0].embedding, output.embedding)
    answers = [score.score for score in llm.score(TEXTS[0], TEXTS[1:3], use_tqdm=False)]
    assert answers[0] > 0.5 > 0.2 > answers[1]
    llm.close()


@pytest.fixture(scope="module")
def server(minilm: Path) -> Iterator[str]:
    """The base URL of ``octavo serve MINILM``, with no flag that says what kind of model it is."""
    with octavo_serve(minilm, "--served-model-name", "mini") as url:
        yield url


def test_the_official_client_gets_them_in_either_encoding(server: str, judge: dict[str, np.ndarray]) -> None:
    client = openai.OpenAI(base_url=server, api_key="none", max_retries=0)
    texts = [text for text in TEXTS if text]
    by_default = client.embeddings.create(model="mini", input=texts)  # base64 on the wire
    floats = client.embeddings.create(model="mini", input=texts, encoding_format="float")
    for text, one, other in zip(texts, by_default.data, floats.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
        assert float(np.array(one.embedding, np.float32) @ judge[text]) > LEAST["cpu"]
    assert by_default.usage.prompt_tokens == by_default.usage.total_tokens > 250
    with pytest.raises(openai.BadRequestError, match="Matryoshka"):
        client.embeddings.create(model="mini", input="x", dimensions=64)
    with pytest.raises(openai.BadRequestError, match="makes no text"):
        client.chat.completions.create(model="mini", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match="at most 256"):
        client.embeddings.create(model="mini", input="word " * 300)
    cut = client.embeddings.create(model="mini", input="word " * 300, extra_body={"truncate_prompt_tokens": -1})
    assert cut.usage.prompt_tokens == 256
    (card,) = client.models.list().data
    assert card.id == "mini"


def test_documents_are_ranked_by_their_likeness(server: str) -> None:
    body = {"model": "mini", "query": TEXTS[0], "documents": TEXTS[1:3], "top_n": 1}
    for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
        (best,) = httpx.post(server.removesuffix("/v1") + path, json=body, timeout=60).json()["results"]
        assert best["index"] == 0 and best["relevance_score"] > 0.5
    scores = httpx.post(f"{server}/score", json={"text_1": TEXTS[0], "text_2": TEXTS[1:3]}, timeout=60).json()["data"]
    assert scores[0]["score"] == pytest.approx(best["relevance_score"], abs=1e-6) and scores[1]["score"] < 0.2


def test_a_model_that_generates_answers_embeddings_with_a_reason(smollm2_gguf: Path) -> None:
    llm = LLM(smollm2_gguf, platform="cpu", max_model_len=64)
    with pytest.raises(Exception, match="makes no embeddings; serve an embedding model"):
        llm.embed("x")
    llm.close()
