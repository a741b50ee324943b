"""`LLM` on the chip: a whole start, with negotiation and the sizing of its memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import DeviceOutOfMemory, UnsupportedFeature
from octavo_fakechip import FakeChip

GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
PROMPTS = [np.random.default_rng(n).integers(3, 300, n).tolist() for n in (1, 7, 40, 100, 17, 64, 65, 130, 200)]


def _chip(llm: LLM) -> FakeChip:
    device = llm._core._device
    assert isinstance(device, FakeChip)
    return device


def _outputs(llm: LLM, params: SamplingParams) -> tuple[list[list[int]], list[float]]:
    """The tokens of every choice, and all logprobs that were asked for, one after the other."""
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], params, use_tqdm=False)
    choices = [choice for output in outputs for choice in output.outputs]
    scored = [entry for output in outputs for entry in output.prompt_logprobs or [] if entry is not None]
    drawn = [entry for choice in choices for entry in choice.logprobs or []]
    return [c.token_ids for c in choices], [p.logprob for entry in (*scored, *drawn) for p in entry.values()]


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(n=3, temperature=0.9, top_p=0.9, seed=3, max_tokens=15, ignore_eos=True, logprobs=2),
        SamplingParams(temperature=0.0, max_tokens=3, prompt_logprobs=1, repetition_penalty=1.3),
    ],
    ids=["greedy", "sampled", "scored"],
)
def test_it_gives_the_tokens_of_the_reference_and_compiles_nothing_while_it_serves(
    checkpoint: Path, params: SamplingParams
) -> None:
    chip = LLM(checkpoint, platform="fakechip", max_model_len=256)
    tokens, logprobs = _outputs(chip, params)
    assert _chip(chip).counters.compiles_after_warmup == 0 < _chip(chip).counters.compiles
    chip.close()
    reference = LLM(checkpoint, platform="reference", max_model_len=256)
    expected, exact = _outputs(reference, params)
    reference.close()
    assert tokens == expected
    np.testing.assert_allclose(logprobs, exact, atol=1e-3)


def test_a_cache_that_takes_all_the_memory_there_is_fits_its_padding(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCTAVO_FAKECHIP", "memory=9m")
    llm = LLM(llama, platform="fakechip", max_model_len=512, memory_utilization=1.0)
    total, free = _chip(llm).memory().total, _chip(llm).memory().free
    assert 0 <= free < total // 4, "the cache is as large as the memory allows"
    assert len(llm.generate([{"prompt_token_ids": p} for p in PROMPTS], GREEDY, use_tqdm=False)) == len(PROMPTS)
    llm.close()


@pytest.mark.parametrize(
    ("chip", "says"),
    [
        ("memory=100k", r"loading the weights needs \d\.\d MiB and 0\.1 MiB of 0\.1 MiB"),
        ("fault=oom@load", r"load needs 64\.0 MiB and 0\.0 MiB are free"),
        ("fault=oom@compile", r"compile needs 64\.0 MiB"),
        ("fault=oom@kv", r"kv needs 64\.0 MiB"),
    ],
)
def test_too_little_memory_at_the_start_is_a_typed_error_with_sizes(
    llama: Path, monkeypatch: pytest.MonkeyPatch, chip: str, says: str
) -> None:
    monkeypatch.setenv("OCTAVO_FAKECHIP", chip)
    with pytest.raises(DeviceOutOfMemory, match=says):
        LLM(llama, platform="fakechip")


def test_what_it_does_not_have_is_refused_with_the_flag(llama: Path) -> None:
    with pytest.raises(UnsupportedFeature, match=r"block_size 16 .* fakechip has 64; choose 64 \(--block-size\)"):
        LLM(llama, platform="fakechip", block_size=16)
    with pytest.raises(UnsupportedFeature, match=r"max_num_seqs 65 .* at most 64 \(--max-num-seqs\)"):
        LLM(llama, platform="fakechip", max_num_seqs=65)
