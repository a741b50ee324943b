"""``octavo platform new``: a plugin that is whole as it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from models.tiny import VOCAB, random_tokens, tiny_checkpoint
from throwaway import Throwaway
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from octavo.cli import scaffold
from octavo.cli.main import app
from octavo.errors import ConfigError

ROOT = Path(__file__).parents[3]
FILES = {
    ".github/workflows/conformance.yml", ".gitignore", "README.md", "pyproject.toml",
    "src/octavo_acme/__init__.py", "src/octavo_acme/kernels.py", "src/octavo_acme/platform.py",
}  # fmt: skip


def new(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["platform", "new", *arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_it_writes_a_whole_plugin_of_at_most_300_lines(tmp_path: Path) -> None:
    new("acme", "--dir", str(tmp_path / "acme"))
    written = [path for path in (tmp_path / "acme").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "acme").as_posix() for path in written} == FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in written) <= 300


def test_it_tells_the_next_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, told = new("tiny_chip").split("Next:\n")
    commands = [line.split("#")[0].strip() for line in told.splitlines()]
    assert commands == [
        "pip install -e ./octavo-tiny-chip",
        "octavo serve MODEL --platform tiny_chip",
        "octavo conformance run --platform tiny_chip",
    ]


def test_the_name_stands_wherever_one_is_meant() -> None:
    made = scaffold.files("tiny-chip")
    assert "src/octavo_tiny_chip/platform.py" in made
    text = "\n".join([*made, *made.values()])
    assert "acme" not in text.lower()
    assert 'NAME = "tiny-chip"' in text and "class TinyChipPlatform" in text
    assert 'name = "octavo-tiny-chip"' in text and 'tiny-chip = "octavo_tiny_chip.platform"' in text


@pytest.mark.parametrize(
    "name", ["", "3d", "Acme", "a b", "a--b", "-a", "a-", "a.b", "ümlaut", "a\n", "a" * 41, "../a"]
)
def test_a_name_that_could_not_be_typed_or_imported_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a platform cannot be called"):
        scaffold.write(name, tmp_path / "plugin")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["reference", "conformance", "cpu"])
def test_a_name_that_is_taken_is_refused_with_its_owner(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"called {name} already, of [Oo]ctavo.*; choose another name"):
        scaffold.write(name, tmp_path / "plugin")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "octavo-acme").mkdir()
    (tmp_path / "octavo-acme" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"octavo-acme is there already and not empty.*\(--dir\)"):
        scaffold.write("acme", tmp_path / "octavo-acme")
    with pytest.raises(ConfigError, match="is there already and not empty"):
        scaffold.write("acme", tmp_path / "octavo-acme" / "mine.txt")
    assert [path.name for path in (tmp_path / "octavo-acme").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert scaffold.write("acme", tmp_path / "empty")


def test_its_code_passes_the_linters_that_octavo_s_own_passes(tmp_path: Path) -> None:
    scaffold.write("acme", tmp_path)
    known = 'lint.isort.known-first-party=["octavo", "octavo_acme"]'
    commands = [
        ["ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), "."],
        ["ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--config", known, "."],
        ["mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", ".mypy_cache", "src/octavo_acme"],
    ]
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            env={**os.environ, "MYPYPATH": f"{tmp_path / 'src'}{os.pathsep}{ROOT / 'core' / 'src'}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_templates_are_part_of_the_distribution(tmp_path: Path) -> None:
    command = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "pip", *command, "--disable-pip-version-check", str(ROOT / "core")], check=True
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"octavo/cli/templates/platform/{name}.tmpl" for name in FILES} <= set(names)


GENERATE = """
import json, sys
from octavo import LLM, SamplingParams
model, platform, prompts = json.loads(sys.argv[1])
llm = LLM(model, platform=platform, max_model_len=128)
params = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)
print(json.dumps([o.outputs[0].token_ids for o in outputs]))
"""


def test_it_installs_is_found_and_generates_the_reference_platform_s_tokens(tmp_path: Path) -> None:
    environment = Throwaway(tmp_path)
    environment.run("octavo", "platform", "new", "acme")
    environment.run("pip", "install", "--quiet", "./octavo-acme")
    listed = next(line for line in environment.run("octavo", "platforms").splitlines() if line.startswith("acme"))
    assert "available" in listed and "octavo-acme 0.1.0" in listed and "(default)" in listed
    explained = environment.run("octavo", "platforms", "explain", "acme")
    assert "own kernels            rms_norm" in explained

    checkpoint = tiny_checkpoint("llama", tmp_path / "checkpoint")
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="t1", eos_token="t2").save_pretrained(checkpoint)
    prompts = [random_tokens(count, seed=count) for count in (1, 7, 33)]

    def tokens(platform: str) -> list[list[int]]:
        told = environment.run(environment.python, "-c", GENERATE, json.dumps([str(checkpoint), platform, prompts]))
        made: list[list[int]] = json.loads(told.splitlines()[-1])
        return made

    assert tokens("acme") == tokens("reference")
