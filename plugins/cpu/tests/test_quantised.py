"""Quantized Hugging Face folders from end to end: the native runtime gives the reference platform's tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.quantised import KINDS, dense_folder, of, quantised_folder
from models.tiny import EOS, VOCAB, random_tokens
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from octavo import LLM, SamplingParams
from octavo.engine.llm import RequestOutput

PROMPTS = [random_tokens(length, seed=length) for length in range(3, 35)]
LENGTH = 8
GREEDY = SamplingParams(temperature=0.0, max_tokens=LENGTH, ignore_eos=True, logprobs=2)

TIE = 0.1
"""Of a logit: nearer than this, the second best token may overtake the best by what int8 activations round away.

The model is random and so its logits are close together: about every third token is a tie, after which texts may part.
"""


def generate(folder: Path, platform: str) -> list[RequestOutput]:
    llm = LLM(folder, platform=platform, max_model_len=128, max_num_seqs=8, num_kv_blocks=64)
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    llm.close()
    return outputs


def add_tokenizer(folder: Path) -> None:
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"t{EOS}").save_pretrained(folder)


def margins(output: RequestOutput) -> list[float]:
    """By how much the best token leads at every place."""
    found = []
    for choices in output.outputs[0].logprobs or []:
        first, second, *_ = sorted((choice.logprob for choice in choices.values()), reverse=True)
        found.append(first - second)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_those_of_the_reference(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder, _ = quantised_folder(KINDS[kind], tmp_path)
    add_tokenizer(folder)
    expected, first, mapped = (generate(folder, platform) for platform in ("reference", "cpu", "cpu"))
    compared = 0
    for wanted, found, again in zip(expected, first, mapped, strict=True):
        tokens, ours = wanted.outputs[0].token_ids, found.outputs[0].token_ids
        assert again.outputs[0].token_ids == ours, "weights mapped from the cache are those that were packed"
        clear = int(np.argmax([*(margin < TIE for margin in margins(wanted)), True]))  # places before the first tie
        assert ours[:clear] == tokens[:clear]
        compared += clear
    assert compared >= 2 * len(PROMPTS)
    assert len(list((tmp_path / "cache").rglob("*.artifact"))) == 1


@pytest.mark.parametrize("platform", ["reference", "cpu"])
def test_fused_linears_of_mixed_formats_mean_what_each_means(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """q, k and v, and gate and up, become one op each, whose matrices differ in format and group size."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kind = KINDS["gptq-32-zeros"]
    others = {"k_proj": of("gptq-32-zeros", group=128), "v_proj": None, "up_proj": of("gptq-32-zeros", group=64)}
    folder, dense = quantised_folder(kind, tmp_path, others=others)
    plain = dense_folder(folder, dense, tmp_path / "plain")
    for path in (folder, plain):
        add_tokenizer(path)
    compared = 0
    for wanted, found in zip(generate(plain, "reference"), generate(folder, platform), strict=True):
        clear = int(np.argmax([*(margin < TIE for margin in margins(wanted)), True]))
        assert found.outputs[0].token_ids[:clear] == wanted.outputs[0].token_ids[:clear]
        compared += clear
    assert compared >= 2 * len(PROMPTS)
