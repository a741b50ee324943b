"""Nothing in core needs torch: every module imports, the command line runs and a model answers without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Run in a fresh interpreter, before anything else: torch looks as if it were not installed.
WITHOUT_TORCH = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == "torch" else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""

IMPORT_EVERYTHING = """
import importlib, pkgutil
import octavo

def fail(name):
    raise

names = [m.name for m in pkgutil.walk_packages(octavo.__path__, "octavo.", onerror=fail)]
names = [n for n in names if not n.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""

GENERATE = """
if __name__ == "__main__":
    from octavo import LLM, SamplingParams
    llm = LLM(model={model!r}, max_model_len=64, max_num_seqs=1)
    [output] = llm.generate(["The capital of France is"], SamplingParams(temperature=0.0, max_tokens=2), use_tqdm=False)
    assert "torch" not in sys.modules
    print(len(output.outputs[0].token_ids))
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + script, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_block_hides_torch() -> None:
    done = run("import torch")
    assert done.returncode != 0
    assert "ModuleNotFoundError: No module named 'torch'" in done.stderr


def test_every_module_of_core_imports_without_torch() -> None:
    done = run(IMPORT_EVERYTHING)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("serve", "--help"), ("platforms",)])
def test_the_command_line_runs_without_torch(arguments: tuple[str, ...]) -> None:
    done = run("from octavo.cli.main import main\nmain()", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Warning" not in done.stderr


@pytest.mark.real_model
def test_a_model_answers_without_torch(smollm2_gguf: Path) -> None:
    done = run(GENERATE.format(model=str(smollm2_gguf)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "2"
