"""The native sampler inside the engine, on a real checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from real_models import SMOLLM2, real_model

from octavo import LLM, SamplingParams
from octavo.platform import Samples, SamplingBatch
from octavo.runner import HostSampler
from octavo_cpu.sampler import NativeSampler


@pytest.mark.real_model
def test_a_real_model_is_sampled_as_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a mixed batch on a real checkpoint, on the same logits."""
    draws = 0

    class Checked(NativeSampler):
        def sample(self, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
            nonlocal draws
            found = super().sample(logits, batch)
            expected = HostSampler().sample(logits, batch)
            for name in ("tokens", "failed", "logprobs", "ranks", "top_ids", "top_logprobs"):
                ours, theirs = getattr(found, name), getattr(expected, name)
                assert ours is theirs is None or np.array_equal(ours, theirs), name
            draws += batch.draws
            return found

    monkeypatch.setattr("octavo_cpu.device.NativeSampler", Checked)
    llm = LLM(real_model(SMOLLM2), platform="cpu", max_model_len=256, max_num_seqs=16)
    params = [
        SamplingParams(seed=1),
        SamplingParams(seed=2, n=3, temperature=0.7, top_p=0.95),
        SamplingParams(seed=3, temperature=1.5, top_k=40, logprobs=5),
        SamplingParams(seed=4, min_p=0.05, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2),
        SamplingParams(seed=5, top_p=0.5, logit_bias={1: 3.0, 2: -100.0}, min_tokens=8, prompt_logprobs=2),
        SamplingParams(temperature=0.0, logprobs=0),
        SamplingParams(temperature=0.0),
    ]
    prompts = ["The capital of France is", "Once upon a time", "1 2 3 4", "def fib(n):", "Dear Sir,", "A", "B"]
    wanted = [replace(p, max_tokens=16, ignore_eos=True) for p in params]
    first, second = (
        [[o.token_ids for o in output.outputs] for output in llm.generate(prompts, wanted, use_tqdm=False)]
        for _ in range(2)
    )
    llm.close()
    assert first == second
    assert draws > 2 * 16 * 9
