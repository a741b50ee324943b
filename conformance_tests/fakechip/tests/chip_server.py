"""``octavo serve`` in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import httpx

OCTAVO = [sys.executable, "-m", "octavo.cli.main"]


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
"""(model, platform, *options, chip="what OCTAVO_FAKECHIP says") to a server that is ready."""
