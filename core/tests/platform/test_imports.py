"""The plugin API is light to import, and finding platforms touches no SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HEAVY = {"transformers", "tokenizers", "starlette", "uvicorn", "pydantic", "torch", "huggingface_hub", "typer", "rich"}
ABOVE = {"octavo.models", "octavo.runner", "octavo.kv", "octavo.scheduler", "octavo.engine", "octavo.text"}


def modules_after(statement: str, path: Path | None = None) -> set[str]:
    """The modules that a fresh interpreter has after the statement."""
    start = f"import sys; sys.path.insert(0, {str(path)!r}); " if path else "import sys; "
    code = f"{start}{statement}; import json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["octavo.platform", "octavo.platform.discovery"])
def test_the_plugin_api_imports_nothing_heavy_and_nothing_above_itself(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert loaded & (HEAVY | ABOVE) == set()


SDK_ON_OPEN = """
    def open(self, rank):
        import acme_sdk
"""


def test_discovery_and_negotiation_import_no_sdk(
    install: Callable[..., None], source: Callable[..., str], tmp_path: Path
) -> None:
    plugin = source().replace("    def open(self, rank):\n", SDK_ON_OPEN)
    install("acme", plugin)
    site = tmp_path / "site"
    (site / "acme_sdk.py").write_text("raise SystemError('the SDK was imported too early')", encoding="utf-8")
    loaded = modules_after(
        "from octavo.platform.discovery import discover, select; select(discover().platforms, 'acme').capabilities()",
        site,
    )
    assert "octavo_acme" in loaded
    assert loaded & (HEAVY | {"acme_sdk"}) == set()
