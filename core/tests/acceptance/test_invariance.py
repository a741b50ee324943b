"""On a real checkpoint: the same request, the same tokens, whatever runs beside it and however it is cut up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from acceptance.prompts import PROMPTS

from octavo import LLM, SamplingParams

CHECKED = [PROMPTS[i] for i in (1, 2, 8, 17)]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=0.8, top_p=0.9, seed=5, max_tokens=16, ignore_eos=True),
]


def _tokens(llm: LLM, prompts: Sequence[str], params: SamplingParams) -> list[list[int]]:
    return [o.outputs[0].token_ids for o in llm.generate(prompts, params, use_tqdm=False)]


@pytest.fixture(scope="module")
def expected(smollm2_gguf: Path) -> list[list[list[int]]]:
    """Each request alone, by parameters and prompt; no prefix cache to help."""
    llm = LLM(smollm2_gguf, max_model_len=512, enable_prefix_caching=False)
    solo = [[_tokens(llm, [text], params)[0] for text in CHECKED] for params in PARAMS]
    llm.close()
    return solo


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"max_num_seqs": 32, "max_num_batched_tokens": 4096}, id="batch-of-32"),
        pytest.param({"max_num_seqs": 16, "max_num_batched_tokens": 16}, id="chunks-of-16"),
        pytest.param({"max_num_seqs": 16, "max_num_batched_tokens": 512}, id="chunks-of-512"),
        pytest.param({"max_num_seqs": 16, "num_kv_blocks": 24, "max_model_len": 352}, id="constant-preemption"),
        pytest.param({"max_num_seqs": 16, "itl_target_ms": 8}, id="chunks-by-measured-time"),
    ],
)
def test_tokens_are_those_of_the_request_alone(
    smollm2_gguf: Path, expected: list[list[list[int]]], options: dict[str, Any]
) -> None:
    llm = LLM(smollm2_gguf, **{"max_model_len": 512, **options})
    for params, alone in zip(PARAMS, expected, strict=True):
        for _ in range(2):  # the second time every prompt is a prefix hit
            together = _tokens(llm, [*CHECKED, *(f"{i}. {text}" for i in range(2) for text in PROMPTS[:14])], params)
            assert together[: len(CHECKED)] == alone
    llm.close()
