"""`LLM` on a real checkpoint, as a script uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, ContextLengthExceeded, RequestError

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)


@pytest.fixture(scope="module")
def llm(smollm2_gguf: Path) -> Iterator[LLM]:
    model = LLM(smollm2_gguf, max_model_len=512, max_num_seqs=16)
    yield model
    model.close()


def test_every_kind_of_prompt_gives_the_same_answer(llm: LLM) -> None:
    text = "The capital of France is"
    ids = llm.get_tokenizer().encode(text)
    outputs = llm.generate([text, {"prompt": text}, {"prompt_token_ids": ids}], GREEDY, use_tqdm=False)
    assert len({o.outputs[0].text for o in outputs}) == 1
    assert outputs[0].outputs[0].text.startswith(" Paris")
    assert [o.prompt for o in outputs] == [text, text, None]
    assert all(o.prompt_token_ids == ids for o in outputs)
    assert llm.generate(text, GREEDY)[0].outputs[0].token_ids == outputs[0].outputs[0].token_ids


def test_each_prompt_may_have_parameters_of_its_own(llm: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=n) for n in (1, 5)]
    outputs = llm.generate(["Hello", "Hello"], params, use_tqdm=False)
    assert [len(o.outputs[0].token_ids) for o in outputs] == [1, 5]
    with pytest.raises(RequestError, match="2 sampling_params came with 1 prompts"):
        llm.generate(["Hello"], params)


def test_chat_answers_and_stops_by_itself(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=64)
    answer = llm.chat([{"role": "user", "content": "What is the capital of France? One word."}], params, use_tqdm=False)
    assert "Paris" in answer[0].outputs[0].text
    assert answer[0].outputs[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer[0].outputs[0].text


def test_logprobs_name_the_chosen_token_and_the_alternatives(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=4, logprobs=3, prompt_logprobs=1)
    output = llm.generate("The capital of France is", params, use_tqdm=False)[0]
    choice = output.outputs[0]
    assert choice.logprobs is not None and len(choice.logprobs) == 4
    for token, entry in zip(choice.token_ids, choice.logprobs, strict=True):
        assert len(entry) == 3 and entry[token].rank == 1
        assert entry[token].logprob == max(p.logprob for p in entry.values())
    assert choice.cumulative_logprob == pytest.approx(
        sum(e[t].logprob for t, e in zip(choice.token_ids, choice.logprobs, strict=True))
    )
    assert output.prompt_logprobs is not None and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    for token, scored in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
        assert scored is not None and scored[token].logprob <= 0


def test_stop_strings_leave_no_trace(llm: LLM) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=40, stop=[" 9", "none"])
    choice = llm.generate("1 2 3 4 5", params, use_tqdm=False)[0].outputs[0]
    assert choice.text == " 6 7 8" and (choice.finish_reason, choice.stop_reason) == ("stop", " 9")


def test_n_samples_differ_and_repeat_with_their_seed(llm: LLM) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=11, max_tokens=12)
    first, second = (llm.generate("Once upon a time", params, use_tqdm=False)[0] for _ in range(2))
    assert len({o.text for o in first.outputs}) == 3
    assert [o.token_ids for o in first.outputs] == [o.token_ids for o in second.outputs]


def test_bad_input_is_refused_before_anything_runs(llm: LLM) -> None:
    with pytest.raises(ContextLengthExceeded, match=r"maximum context length is 512 tokens and the prompt has 600"):
        llm.generate([{"prompt_token_ids": [1]}, {"prompt_token_ids": [5] * 600}], GREEDY)
    with pytest.raises(RequestError, match="empty"):
        llm.generate([{"prompt_token_ids": []}], GREEDY)
    with pytest.raises(RequestError, match="token id 99999"):
        llm.generate([{"prompt_token_ids": [99999]}], GREEDY)
    with pytest.raises(RequestError, match="prompt_token_ids"):
        llm.generate([{"text": "Hello"}], GREEDY)
    with pytest.raises(RequestError, match="takes SamplingParams"):
        llm.generate("Hello", {"temperature": 0})  # type: ignore[arg-type]
    for messages in ("Hello", ["Hello"], [5], [[{"role": "user", "content": "x"}], "Hello"]):
        with pytest.raises(RequestError, match="messages are mappings"):
            llm.chat(messages)  # type: ignore[arg-type]
    assert llm.generate("Hello", GREEDY, use_tqdm=False)[0].outputs[0].token_ids


def test_an_iterator_of_prompts_gives_what_a_list_gives(llm: LLM) -> None:
    texts = [f"{i} {'and ' * (i % 5)}then" for i in range(150)]
    params = [SamplingParams(temperature=0.0, max_tokens=1 + i % 3) for i in range(150)]
    taken = 0

    def source() -> Iterator[str]:
        nonlocal taken
        for text in texts:
            taken += 1
            yield text

    listed = llm.generate(texts, params, use_tqdm=False)
    for number, output in enumerate(llm.generate_iter(source(), iter(params))):
        assert (output.prompt, output.outputs[0].text) == (texts[number], listed[number].outputs[0].text)
        assert taken - number <= 8 * 16 + 1
    assert taken == 150
    assert llm.generate("Hello", GREEDY, use_tqdm=False)[0].outputs[0].token_ids


def test_an_iterator_says_what_is_wrong_with_it_when_it_gets_there(llm: LLM) -> None:
    with pytest.raises(RequestError, match="takes an iterable of prompts, not 'Hello'"):
        llm.generate_iter("Hello")
    for bad, message in (
        (llm.generate_iter(["a", "b"], [GREEDY]), "sampling_params ended after 1"),
        (llm.generate_iter(["a"], [GREEDY, GREEDY]), "prompts ended after 1"),
        (llm.generate_iter(["a", [99999]], GREEDY), "token id 99999"),
    ):
        assert next(bad).prompt == "a"
        with pytest.raises(RequestError, match=message):
            next(bad)


def test_a_common_prefix_is_computed_once_and_the_metrics_show_it(llm: LLM) -> None:
    common = list(range(1000, 1100))
    before = llm.metrics().kv.prefix_hits
    outputs = [llm.generate([*common, last], GREEDY, use_tqdm=False)[0] for last in (5, 6)]
    assert [o.num_cached_tokens for o in outputs] == [0, 96]
    assert llm.metrics().kv.prefix_hits == before + 96
    assert llm.metrics().kv.used == 0


def test_a_cache_too_small_for_one_sequence_says_how_much_there_is_and_which_knob_to_turn(smollm2_gguf: Path) -> None:
    told = (
        "num_kv_blocks is 100, and one sequence of 8192 tokens needs 513 blocks of 16 tokens; "
        "lower --max-model-len to 1584 or less, or raise num_kv_blocks to 513, or leave it out"
    )
    with pytest.raises(ConfigError, match=f"^{told}$"):
        LLM(smollm2_gguf, max_model_len=8192, num_kv_blocks=100)
    LLM(smollm2_gguf, max_model_len=1584, num_kv_blocks=100).close()
    with pytest.raises(
        ConfigError, match=r"[MG]iB at --memory-utilization .* one sequence of 8192 tokens .*raise --memory-utilization"
    ):
        LLM(smollm2_gguf, max_model_len=8192, memory_utilization=1e-3)


def test_a_context_nobody_set_shrinks_to_the_cache_and_says_so(smollm2_gguf: Path) -> None:
    model = LLM(smollm2_gguf, num_kv_blocks=65)
    assert model.plan.max_model_len == 1024
    (decision,) = (d for d in model.plan.decisions if d.setting == "max_model_len")
    assert "(num_kv_blocks 65)" in str(decision)
    model.close()
