"""Vectors and scores from a whole engine over tiny encoders: judged by transformers, on each platform with encoders."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import transformers
from models.tiny_encoders import hidden_states, pair_logit, sentence_modules, tiny_encoder

from octavo import LLM, AsyncLLM, EngineConfig, PoolingParams, Settings
from octavo.errors import ConfigError, ContextLengthExceeded, RequestError, UnsupportedFeature
from octavo.sampling import SamplingParams

VOCAB = 30522
TEXTS = ["a", "the quick brown fox", "", "one two three " * 15, "ü €"]


def tiny(architecture: str, folder: Path, tokenizer: Path, **fields: object) -> Path:
    """A tiny encoder with a real tokenizer."""
    tiny_encoder(architecture, folder, vocab_size=VOCAB, **fields)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Path:
    folder = tiny("BertModel", tmp_path_factory.mktemp("encoder"), minilm)
    sentence_modules(folder, {"pooling_mode_mean_tokens": True})
    return folder


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory, minilm: Path) -> Path:
    return tiny("BertForSequenceClassification", tmp_path_factory.mktemp("reranker"), minilm)


@pytest.fixture(scope="module", params=["reference", "cpu"])
def llm(request: pytest.FixtureRequest, encoder: Path) -> Iterator[LLM]:
    llm = LLM(encoder, platform=request.param)
    yield llm
    llm.close()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_embeddings_are_the_normalised_means_of_transformers_hidden_states(llm: LLM, encoder: Path) -> None:
    for text, output in zip(TEXTS, llm.embed(TEXTS, use_tqdm=False), strict=True):
        mean = hidden_states(encoder, output.prompt_token_ids).mean(0)
        assert output.prompt == text and output.outputs.embedding is output.embedding
        assert np.linalg.norm(output.embedding) == pytest.approx(1, abs=1e-6)
        assert cosine(output.embedding, mean) > 0.9999
    (raw,) = llm.embed([TEXTS[1]], PoolingParams(use_activation=False), use_tqdm=False)
    np.testing.assert_allclose(raw.embedding, hidden_states(encoder, raw.prompt_token_ids).mean(0), atol=0.03)


def test_a_text_s_embedding_does_not_depend_on_what_comes_with_it(llm: LLM) -> None:
    together = [o.embedding for o in llm.embed(TEXTS * 9, use_tqdm=False)]
    alone = [llm.embed(text, use_tqdm=False)[0].embedding for text in TEXTS]
    for one, many in zip(alone * 9, together, strict=True):
        np.testing.assert_allclose(one, many, rtol=0, atol=2e-6)


def test_token_ids_and_limits(llm: LLM) -> None:
    ids = llm.embed("one two three", use_tqdm=False)[0].prompt_token_ids
    by_ids, by_text = llm.embed([ids, "one two three"], use_tqdm=False)
    np.testing.assert_allclose(by_ids.embedding, by_text.embedding, atol=2e-6)
    long = "one " * 200
    with pytest.raises(ContextLengthExceeded, match=r"202 tokens.*80"):
        llm.embed(["a", long], use_tqdm=False)
    (cut,) = llm.embed(long, truncate_prompt_tokens=-1, use_tqdm=False)
    assert len(cut.prompt_token_ids) == 80 and cut.prompt_token_ids[-1] == ids[-1], "what ends a text stays"
    (cut,) = llm.embed([ids], truncate_prompt_tokens=2, use_tqdm=False)
    assert cut.prompt_token_ids == ids[:2]
    with pytest.raises(RequestError, match=r"in \[1, 80\]"):
        llm.embed("a", truncate_prompt_tokens=81)
    with pytest.raises(RequestError, match="no room"):
        llm.embed("a", truncate_prompt_tokens=2)
    assert len(llm.embed("still works", use_tqdm=False)) == 1


def test_what_the_model_cannot_do_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="generates none"):
        llm.generate("a", SamplingParams(max_tokens=4))
    with pytest.raises(RequestError, match="not trained to be cut") as caught:
        llm.embed("a", PoolingParams(dimensions=8))
    assert caught.value.param == "dimensions"
    assert llm.embed("a", PoolingParams(dimensions=64), use_tqdm=False)[0].embedding.shape == (64,)
    with pytest.raises(RequestError, match="at least 1"):
        PoolingParams(dimensions=0)


def test_an_embedding_model_scores_by_cosine(llm: LLM) -> None:
    a, b, c = (o.embedding for o in llm.embed(TEXTS[:3], use_tqdm=False))
    scores = [s.outputs.score for s in llm.score(TEXTS[0], TEXTS[:3], use_tqdm=False)]
    assert scores == pytest.approx([1.0, float(a @ b), float(a @ c)], abs=1e-5)
    with pytest.raises(RequestError, match="cannot be paired"):
        llm.score(["a", "b"], ["c", "d", "e"])


@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_a_cross_encoder_s_scores_are_those_of_transformers(platform: str, reranker: Path) -> None:
    llm = LLM(reranker, platform=platform)
    texts = ["short", "a much longer text about it", "x"]
    scores = llm.score("what is it?", texts, use_tqdm=False)
    raw = llm.score("what is it?", texts, PoolingParams(use_activation=False), use_tqdm=False)
    tokenizer = llm.get_tokenizer()
    for text, score, logit in zip(texts, scores, raw, strict=True):
        ids, types = tokenizer.encode_pair("what is it?", text)
        assert ids == tokenizer.hf("what is it?", text)["input_ids"] and 1 in types
        wanted = pair_logit(reranker, ids, types)
        assert logit.score == pytest.approx(wanted, abs=0.02 * max(1, abs(wanted)))
        assert score.score == pytest.approx(1 / (1 + np.exp(-wanted)), abs=0.01)
        assert score.prompt_tokens == len(ids)
    with pytest.raises(RequestError, match="makes no embeddings"):
        llm.embed("a")
    llm.close()


def test_a_matryoshka_model_cuts_and_normalises_again(encoder: Path, tmp_path: Path) -> None:
    import json

    shutil.copytree(encoder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": [16, 64]}))
    llm = LLM(tmp_path, platform="cpu")
    whole, cut = (llm.embed("a b", PoolingParams(dimensions=n), use_tqdm=False)[0].embedding for n in (64, 16))
    np.testing.assert_allclose(cut, whole[:16] / np.linalg.norm(whole[:16]), atol=1e-6)
    with pytest.raises(RequestError, match="have 16, 64"):
        llm.embed("a", PoolingParams(dimensions=32))
    llm.close()


def test_a_decoder_embeds_by_its_last_token_in_chunks_and_from_the_cache(smollm2_folder: Path) -> None:
    llm = LLM(
        smollm2_folder, platform="cpu", task="embed", max_num_batched_tokens=64, max_num_seqs=4, max_model_len=512
    )
    tokens = np.random.default_rng(0).integers(0, 40000, 200).tolist()
    first, again, other = llm.embed([tokens, tokens, [*tokens[:150], 5]], use_tqdm=False)
    state = hidden_states(smollm2_folder, tokens)[-1]
    assert cosine(first.embedding, state) > 0.999
    np.testing.assert_array_equal(first.embedding, again.embedding)
    assert cosine(other.embedding, first.embedding) < 0.9999
    llm.embed([tokens], use_tqdm=False)
    assert llm.metrics().kv.prefix_hits > 0
    with pytest.raises(RequestError, match="generates none"):
        llm.generate("a")
    llm.close()


def test_settings_that_leave_no_room_for_a_prompt_are_refused(encoder: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"max_model_len 60 with max_num_batched_tokens 32 .* in one step"):
        LLM(encoder, platform="reference", max_model_len=60, max_num_batched_tokens=32, max_num_seqs=2)
    llm = LLM(encoder, platform="reference", max_num_batched_tokens=32, max_num_seqs=2)
    assert llm.plan.max_model_len == 32 and any("one step" in d.why for d in llm.plan.decisions)
    llm.close()
    with pytest.raises(ConfigError, match="itl_target_ms has no meaning"):
        LLM(encoder, platform="reference", itl_target_ms=5)
    with pytest.raises(UnsupportedFeature, match=r"op map_ids, pool is not supported"):
        LLM(encoder, platform="fakechip")


async def test_concurrent_requests_get_their_own_vectors_and_leaving_one_frees_its_blocks(encoder: Path) -> None:
    llm = AsyncLLM.from_config(EngineConfig(str(encoder), platform="reference", settings=Settings(max_num_seqs=2)))
    assert llm.tasks == {"embed", "score"} and not llm.pairs
    prompts = [[101, 1000 + i, 102] for i in range(12)]
    batches = await asyncio.gather(*(llm.embed(prompts[i : i + 3]) for i in range(0, 12, 3)))
    for i, vector in enumerate(vector for batch in batches for vector in batch):
        (alone,) = await llm.embed([prompts[i]])
        np.testing.assert_allclose(vector, alone, atol=2e-6)
    task = asyncio.create_task(llm.embed([[101] * 70] * 60))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(400):
        metrics = await llm.metrics()
        if not metrics.running and not metrics.waiting and not metrics.kv.used:
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail(f"the requests that were left still run: {metrics}")
    for wrong in (10**6, VOCAB, -1):  # the second would be a token of another text
        with pytest.raises(RequestError, match=f"token id {wrong}; ids go from 0 to {VOCAB - 1}"):
            await llm.embed([[101], [wrong]])
    with pytest.raises(RequestError, match="generates none"):
        async for _ in llm.generate([101], SamplingParams(max_tokens=1)):
            pass
    await llm.close()


@pytest.mark.parametrize("said", ["config.json", "config_args", "config_kwargs"])
@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_a_decoder_that_is_not_causal_sees_the_whole_text(
    platform: str, said: str, smollm2_folder: Path, tmp_path: Path
) -> None:
    import json

    from models.tiny import tiny_checkpoint

    folder = tiny_checkpoint("qwen2", tmp_path, vocab_size=49152, rope_parameters={"rope_theta": 1e6}, seed=5)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(smollm2_folder / name, folder / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "is_causal": False}))
    text = "the quick brown fox jumps over the lazy dog, and once more"
    sentence_modules(folder, {"pooling_mode_mean_tokens": True})
    if said != "config.json":  # as sentence-transformers gives it to AutoConfig
        (folder / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": 300, said: {"is_causal": False}})
        )
    llm = LLM(folder, platform=platform)
    (output,) = llm.embed(text, use_tqdm=False)
    states = hidden_states(folder, output.prompt_token_ids)  # reads is_causal of config.json
    assert cosine(output.embedding, states.mean(0)) > 0.9999
    llm.close()
    if said != "config.json":
        (folder / "config.json").write_text(json.dumps(config))
        llm = LLM(folder, platform=platform)
        (again,) = llm.embed(text, use_tqdm=False)
        np.testing.assert_array_equal(again.embedding, output.embedding)
        llm.close()
        assert cosine(hidden_states(folder, output.prompt_token_ids).mean(0), states.mean(0)) < 0.95
    with pytest.raises(ConfigError, match=r"generates no text: .*\(--task embed\)"):
        LLM(folder, platform=platform, task="generate")


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny RoBERTa with a tokenizer of its kind, which knows ``<pad>`` in a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("roberta")
    words = ["<s>", "<pad>", "</s>", "<unk>", "one", "two", "three", "four"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>",
    ).save_pretrained(folder)  # fmt: skip
    return folder


@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_a_padding_token_in_a_text_has_the_place_that_roberta_gives_it(
    platform: str, roberta: Path, tmp_path: Path
) -> None:
    tiny_encoder("RobertaModel", tmp_path, type_vocab_size=1, pad_token_id=1)
    for file in roberta.iterdir():
        shutil.copy(file, tmp_path / file.name)
    sentence_modules(tmp_path, {"pooling_mode_mean_tokens": True})
    llm = LLM(tmp_path, platform=platform)
    texts = ["one <pad> two three <pad> <pad> four", "<pad> one", "one two", "three <pad>"]
    for text, output in zip(texts, llm.embed(texts, use_tqdm=False), strict=True):
        assert output.prompt_token_ids.count(1) == text.count("<pad>")
        mean = hidden_states(tmp_path, output.prompt_token_ids).mean(0)
        assert cosine(output.embedding, mean) > 0.9999, text
    (by_ids,) = llm.embed([[0, 4, 1, 5, 2]], use_tqdm=False)
    assert cosine(by_ids.embedding, hidden_states(tmp_path, [0, 4, 1, 5, 2]).mean(0)) > 0.9999
    llm.close()


@pytest.mark.parametrize("tells", ["token_type_ids", "attention_mask"])
@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_both_texts_of_a_pair_are_of_the_one_type_that_a_model_has(
    platform: str, tells: str, roberta: Path, tmp_path: Path
) -> None:
    import json

    tiny_encoder("RobertaForSequenceClassification", tmp_path, type_vocab_size=1, pad_token_id=1)
    for file in roberta.iterdir():
        shutil.copy(file, tmp_path / file.name)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_input_names": ["input_ids", tells]}))
    llm = LLM(tmp_path, platform=platform)
    ids, types = llm.get_tokenizer().encode_pair("one two", "three")
    assert (1 in types) == (tells == "token_type_ids"), "a tokenizer may tell the texts apart; the model cannot"
    (score,) = llm.score("one two", "three", PoolingParams(use_activation=False), use_tqdm=False)
    wanted = pair_logit(tmp_path, ids, [0] * len(ids))
    assert score.score == pytest.approx(wanted, abs=0.02 * max(1, abs(wanted)))
    llm.close()
