"""guidellm, over each API it streams from: every request succeeds and has the tokens it asked for.

    python3 -m venv clients-venv
    clients-venv/bin/pip install guidellm==0.8.1
    OCTAVO=.venv/bin/octavo clients-venv/bin/python core/tests/clients/guidellm_run.py FOLDER

FOLDER is a model as safetensors; its tokenizer makes the prompts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from recorded import arguments, check, serving

FORMATS = ("/v1/chat/completions", "/v1/completions")
REQUESTS, OUTPUT = 8, 16


def main() -> None:
    """Run it over each API."""
    given = arguments(__doc__, "A folder of safetensors.")
    guidellm = str(Path(sys.executable).with_name("guidellm"))
    with (
        serving(given.octavo, given.model, "--max-model-len", "1024", platform=given.platform) as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        for path in FORMATS:
            report = Path(folder, path.strip("/").replace("/", "-") + ".json")
            words = [guidellm, "run", "--disable-console-interactive"]
            words += [
                "--backend",
                f"kind=openai_http,target={url.removesuffix('/v1')},model=served,request_format={path}",
            ]
            words += ["--profile", "kind=concurrent,streams=4", "--constraint", f"kind=max_requests,count={REQUESTS}"]
            words += ["--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={OUTPUT}"]
            words += [
                "--tokenizer",
                f"kind=huggingface_auto,model={given.model}",
                "--output",
                f"kind=json,path={report}",
            ]
            subprocess.run(words, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
            requests = json.loads(report.read_text())["benchmarks"][0]["requests"]
            good = requests["successful"]
            check(f"{path}: {len(good)} of {REQUESTS} succeeded", len(good) == REQUESTS and not requests["errored"])
            tokens = [request["output_metrics"]["text_tokens"] for request in good]
            check(f"{path}: {sum(tokens)} tokens of {REQUESTS * OUTPUT} came", tokens == [OUTPUT] * REQUESTS)


if __name__ == "__main__":
    main()
