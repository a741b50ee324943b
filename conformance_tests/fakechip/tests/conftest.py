"""A tiny checkpoint with a tokenizer, and a server that runs it as a user starts one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chip_server import OCTAVO, Server, Start
from models.tiny import VOCAB, tiny_checkpoint
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that another test compiled are not found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture(scope="session", params=["llama", "mistral"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without and with a sliding window."""
    return _with_tokenizer(tiny_checkpoint(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint, where the model does not matter."""
    return _with_tokenizer(tiny_checkpoint("llama", tmp_path_factory.mktemp("llama")))


def _with_tokenizer(folder: Path) -> Path:
    backend = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="t1", eos_token="t2").save_pretrained(folder)
    return folder


@pytest.fixture
def serve() -> Iterator[Start]:
    """Starts servers, and ends those that still run."""
    running: list[subprocess.Popen[str]] = []

    def start(model: Path, platform: str, *options: str, chip: str = "") -> Server:
        process = subprocess.Popen(
            [*OCTAVO, "serve", str(model), "--platform", platform, "--port", "0", "--max-model-len", "256", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OCTAVO_FAKECHIP": chip},
        )
        running.append(process)
        assert process.stdout is not None and process.stderr is not None
        url = next((line.split()[-1] for line in process.stdout if "ready at" in line), None)
        assert url, process.stderr.read()
        return Server(url, process)

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()
