"""The command line itself, whatever the command."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, octavo.cli.main; print(*(name for name in sys.modules if name.startswith('octavo.')))"


def test_no_command_waits_for_the_engine_that_it_may_not_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert "cli" in loaded
    assert not loaded & {"engine", "server", "scheduler", "models", "text"}
