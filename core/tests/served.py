"""`octavo serve` in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OCTAVO = [sys.executable, "-m", "octavo.cli.main"]


@contextmanager
def octavo_serve(model: Path, *flags: str) -> Iterator[str]:
    """The base URL, with /v1, of a running server; in the end it must leave well, and have warned of nothing."""
    process = subprocess.Popen(
        [*OCTAVO, "serve", str(model), "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None and process.stderr is not None
    url = next((line.split()[-1] for line in process.stdout if "ready at" in line), None)
    assert url, process.stderr.read()
    try:
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors and "Warning" not in errors, errors
