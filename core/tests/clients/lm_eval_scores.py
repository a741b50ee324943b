"""lm-eval's scores through the server equal those of its own `hf` backend on the same weights.

    python3 -m venv lm-eval-venv
    lm-eval-venv/bin/pip install 'lm-eval[api]==0.4.13' transformers torch==2.13.0 accelerate
    OCTAVO=.venv/bin/octavo lm-eval-venv/bin/python core/tests/clients/lm_eval_scores.py FOLDER --platform reference

FOLDER is a model as safetensors. The platform `reference` computes in float32 as the hf backend does here, so every
log-likelihood must agree to 1e-3; another platform is allowed what its own precision costs with --tolerance.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import lm_eval
from lm_eval.tasks import TaskManager
from recorded import arguments, check, say, serving

HERE = Path(__file__).parent / "lm_eval_task"
TOLERANCE = {"reference": 1e-3}
"""Of a log-likelihood, absolute; for other platforms 0.3, what a bfloat16 cache may cost over a few tokens."""


def scores(model: str, settings: dict[str, Any]) -> tuple[dict[str, float], list[tuple[float, bool]]]:
    """The task's metrics, and every answer's log-likelihood and whether it was the greedy one."""
    with tempfile.TemporaryDirectory() as folder:
        task = (HERE / "octavo_small.yaml").read_text().replace("QUESTIONS", str(HERE / "questions.jsonl"))
        Path(folder, "octavo_small.yaml").write_text(task)
        found = lm_eval.simple_evaluate(
            model=model,
            model_args=settings,
            tasks=["octavo_small"],
            task_manager=TaskManager(include_path=folder),
            bootstrap_iters=0,
            random_seed=0,
        )
    metrics = {
        name: value for name, value in found["results"]["octavo_small"].items() if "acc" in name and value != "N/A"
    }
    samples = sorted(found["samples"]["octavo_small"], key=lambda sample: sample["doc_id"])
    answers = [(float(score), str(greedy) == "True") for s in samples for [(score, greedy)] in s["resps"]]
    return {name: float(value) for name, value in metrics.items() if "stderr" not in name}, answers


def main() -> None:
    """Compare."""
    given = arguments(__doc__, "A folder of safetensors.")
    judge, right = scores("hf", {"pretrained": given.model, "dtype": "float32", "device": "cpu"})
    say(f"hf: {judge}")
    tolerance = TOLERANCE.get(given.platform, 0.3)
    options = ("--max-model-len", "512", "--max-num-seqs", "8")
    with serving(given.octavo, given.model, *options, platform=given.platform) as url:
        for tokenized in (True, False):
            settings = {
                "model": "served",
                "base_url": f"{url}/completions",
                "tokenizer": given.model,
                "tokenizer_backend": "huggingface",
                "tokenized_requests": tokenized,
                "num_concurrent": 2,
                "max_retries": 1,
                "max_length": 512,
                "batch_size": 4,
            }
            name = "token ids" if tokenized else "text"
            metrics, got = scores("local-completions", settings)
            say(f"served, {name}: {metrics}")
            worst = max(abs(a - b) for (a, _), (b, _) in zip(right, got, strict=True))
            differing = sum(a != b for (_, a), (_, b) in zip(right, got, strict=True))
            check(
                f"{name}: {len(got)} log-likelihoods agree to {tolerance:g}; the largest difference is {worst:.2e}",
                worst <= tolerance,
            )
            check(f"{name}: {differing} of {len(got)} differ in being greedy", differing == 0)
            check(f"{name}: the scores are equal", metrics == judge)


if __name__ == "__main__":
    main()
