"""On real checkpoints Octavo computes what `transformers` computes in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from acceptance.judge import Judge
from acceptance.prompts import PROMPTS

from octavo import LLM, SamplingParams
from octavo.graph import fuse
from octavo.graph.reference import run_sequence
from octavo.models import load_model
from octavo.quant import dequantise

MARGIN = 1e-3
"""Two float32 computations may order logits differently that are closer than this."""


def test_greedy_tokens_are_those_of_transformers(checkpoint: Path, judge: Judge) -> None:
    """20 prompts, 64 tokens each; a token may differ only where the judge's own margin is below 1e-3.

    The judge is fed our tokens: if each is its own greedy choice after the ones before, its greedy run is the same run.
    """
    llm = LLM(checkpoint, max_model_len=1024, platform="reference")
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True), use_tqdm=False)
    llm.close()
    close_calls = 0
    for output in outputs:
        made = output.outputs[0].token_ids
        assert len(made) == 64
        logits = judge.logits(output.prompt_token_ids + made[:-1])[len(output.prompt_token_ids) - 1 :]
        best = logits.argmax(axis=-1)
        for position in np.flatnonzero(best != made):
            margin = logits[position, best[position]] - logits[position, made[position]]
            assert margin < MARGIN, f"{output.prompt!r}: token {position} differs by a margin of {margin:.2e}"
            close_calls += 1
    assert close_calls <= 3, "so many near-ties are no coincidence"


def test_teacher_forced_logits_agree_within_float32_rounding(checkpoint: Path, judge: Judge) -> None:
    """Against float64 our float32 error is no larger than a small multiple of the judge's own float32 error."""
    model = load_model(checkpoint)
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    llm_tokens = [_tokens(checkpoint, text) for text in (PROMPTS[1], PROMPTS[10], PROMPTS[17])]
    theirs = [judge.logits(tokens) for tokens in llm_tokens]
    oracle = judge.double()
    exact = [oracle.logits(tokens) for tokens in llm_tokens]
    for tokens, their, true in zip(llm_tokens, theirs, exact, strict=True):
        ours = run_sequence(fuse(model.graph), weights, tokens)
        our_error, their_error = (np.sqrt(np.mean((x - true) ** 2)) for x in (ours, their))
        spread = true.std()
        assert our_error <= 4 * their_error, f"rms error {our_error:.2e}, transformers' own {their_error:.2e}"
        assert our_error < 1e-5 * spread, f"rms error {our_error:.2e} of logits that spread by {spread:.2f}"


def _tokens(checkpoint: Path, text: str) -> list[int]:
    from octavo.text import load_tokenizer

    return load_tokenizer(checkpoint).encode(text)
