"""A third-party platform: installed with pip, found, selected, and right, with no change to core."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from models.tiny import VOCAB, random_tokens, tiny_checkpoint
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

PLUGIN = Path(__file__).parent / "octavo-tiny"
SOURCE = PLUGIN / "octavo_tiny.py"
DOCS = Path(__file__).parents[3] / "docs" / "write-a-platform.md"

PUBLIC = ("octavo.platform", "octavo.graph", "octavo.quant")


def test_a_platform_takes_at_most_a_hundred_lines_all_told() -> None:
    files = [path for path in PLUGIN.rglob("*") if path.suffix in (".py", ".toml")]
    assert {path.name for path in files} == {"octavo_tiny.py", "pyproject.toml"}
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 100


def test_it_uses_the_public_packages_alone() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            imported |= {f"octavo.{alias.name}" for alias in node.names} if module == "octavo" else {module}
    of_octavo = {name for name in imported if name.partition(".")[0] == "octavo"}
    assert of_octavo
    assert of_octavo <= set(PUBLIC)


def test_the_guide_shows_this_plugin_as_it_is() -> None:
    page = DOCS.read_text(encoding="utf-8")
    shown = re.findall(r"^```(python|toml) tiny\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in shown] == ["toml", "python"]
    assert shown[0][1] == (PLUGIN / "pyproject.toml").read_text(encoding="utf-8")
    assert shown[1][1] == SOURCE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the plugin from a copy of its source, with no network."""
    folder = tmp_path_factory.mktemp("installed")
    source = shutil.copytree(PLUGIN, tmp_path_factory.mktemp("source") / "octavo-tiny")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile", "--quiet", "--target", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(installed: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python in a process that has the plugin on its path."""
    path = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_listed_available_and_chosen_where_nobody_names_a_platform(installed: Path) -> None:
    done = run(installed, "-m", "octavo.cli.main", "platforms")
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("tinychip"))
    assert all(
        part in line for part in ("available", "one Tiny Chip", "octavo-tiny 0.3.0", "--platform tinychip", "(default)")
    ), line
    assert done.stdout.count("(default)") == 1


@pytest.fixture(scope="module", params=["llama", "mistral"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a tokenizer; mistral has a sliding window, which the plugin does not declare."""
    folder = tiny_checkpoint(request.param, tmp_path_factory.mktemp("checkpoint"))
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="t1", eos_token="t2").save_pretrained(folder)
    return folder


GENERATE = """
import json, sys
from octavo import LLM, SamplingParams
from octavo.errors import OctavoError

model, platform, prompts, settings = json.loads(sys.argv[1])
try:
    llm = LLM(model, platform=platform, **settings)
except OctavoError as error:
    print(json.dumps({"error": str(error)}))
    sys.exit()
params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
plan = llm.plan
print(json.dumps({
    "tokens": [o.outputs[0].token_ids for o in outputs],
    "block_size": plan.block_size,
    "buckets": len(plan.limits.buckets.buckets()),
    "decisions": [str(d) for d in plan.decisions],
    "context": plan.max_model_len,
}))
"""

PROMPTS = [random_tokens(count, seed=count) for count in (1, 7, 40, 33, 100, 16, 17, 5, 64, 31)]


def generate(installed: Path, checkpoint: Path, platform: str | None, **settings: Any) -> dict[str, Any]:
    arguments = json.dumps([str(checkpoint), platform, PROMPTS, settings])
    done = run(installed, "-c", GENERATE, arguments)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("checkpoint", ["llama"], indirect=True)
def test_it_generates_the_tokens_of_the_reference_platform_in_its_own_shapes(installed: Path, checkpoint: Path) -> None:
    tiny = generate(installed, checkpoint, None)
    reference = generate(installed, checkpoint, "reference")
    assert tiny["tokens"] == reference["tokens"]
    assert {len(tokens) for tokens in tiny["tokens"]} == {24}
    assert (tiny["block_size"], reference["block_size"]) == (32, 16)
    assert tiny["buckets"] > 1
    assert "max_num_seqs = 8: its preference; the default is 256 (decided by tinychip)" in tiny["decisions"]


@pytest.mark.parametrize("checkpoint", ["llama"], indirect=True)
def test_what_it_cannot_do_is_refused_with_its_name_the_flag_and_a_cure(installed: Path, checkpoint: Path) -> None:
    refused = generate(installed, checkpoint, "tinychip", block_size=16)
    sentence = "tinychip: block_size 16 is not supported: tinychip has 32; choose 32 (--block-size)"
    assert refused == {"error": sentence}
    assert sentence in " ".join(DOCS.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("checkpoint", ["mistral"], indirect=True)
def test_a_model_that_needs_what_it_did_not_declare_is_refused(installed: Path, checkpoint: Path) -> None:
    refused = generate(installed, checkpoint, "tinychip")
    sentence = "attention feature window is not supported: mistral needs it and tinychip has none"
    assert refused == {"error": f"tinychip: {sentence}"}
    assert sentence in " ".join(DOCS.read_text(encoding="utf-8").split())
