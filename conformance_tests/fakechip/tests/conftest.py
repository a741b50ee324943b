"""A tiny checkpoint with a tokenizer, and a server that runs it as a user starts one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from models.tiny import VOCAB, tiny_checkpoint
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

OCTAVO = [sys.executable, "-m", "octavo.cli.main"]


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
    PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="t1", eos_token="t2").save_pretrained(folder)
    return folder


@dataclass
class Server:
    """A running ``octavo serve``."""

    url: str
    process: subprocess.Popen[str]

    def complete(self, prompt: list[int], **fields: object) -> httpx.Response:
        """One greedy completion of twelve tokens."""
        body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        return httpx.post(f"{self.url}/completions", json=body | fields, timeout=60)

    def health(self) -> int:
        """The status of /health."""
        return httpx.get(self.url.removesuffix("/v1") + "/health", timeout=20).status_code

    def stop(self) -> tuple[int, str]:
        """SIGTERM; (status, what it had written to stderr)."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


Start = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Start]:
    """Starts servers, and ends those that still run."""
    running: list[subprocess.Popen[str]] = []

    def start(model: Path, platform: str, *options: str, chip: str = "") -> Server:
        process = subprocess.Popen(
            [*OCTAVO, "serve", str(model), "--platform", platform, "--port", "0", "--max-model-len", "256", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OCTAVO_FAKECHIP": chip, "XDG_CACHE_HOME": str(tmp_path)},
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
