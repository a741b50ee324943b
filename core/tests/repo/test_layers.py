"""The layers of the architecture hold: import-linter judges the contracts in the root pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PACKAGES = ["cli", "server", "engine", "text", "scheduler", "kv", "runner", "models", "platform", "graph", "quant"]
PACKAGES += ["sandbox", "step_plan", "config", "sampling", "structured_output", "pooling", "errors", "env", "_version"]
ROOMS = [
    "chat",
    "completions",
    "responses",
    "messages",
    "pooling",
    "batch",
    "meta",
    "generation",
    "routing",
    "transport",
]
PACKAGES += [f"server/{room}" for room in (*ROOMS, "loop", "app", "apis")]
PACKAGES += [f"text/{room}" for room in ("parsing", "grammar", "tokenizer", "templates")]
SUITE = [f"octavo_conformance/{name}" for name in ("judge", "worker", "checks", "report", "suite", "harness", "proof")]
SUITE_MODULES = [f"octavo_conformance/{name}" for name in ("cli", "suite/runner", "harness/target", "proof/bundle")]
SUITE_MODULES += [f"octavo_conformance/worker/{name}" for name in ("serve", "play", "engine")]
# An editable installation may come with an import hook of its own, which would find the real package before ours.
ONLY_PATHS = (
    "import sys; sys.meta_path[:] = [f for f in sys.meta_path "
    "if getattr(f, '__name__', '') in ('BuiltinImporter', 'FrozenImporter', 'PathFinder')]; "
)
LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(config: Path, source: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = f"{ONLY_PATHS}sys.path.insert(0, {str(source)!r}); " if source else ""
    return subprocess.run(
        [sys.executable, "-c", path + LINT_IMPORTS, str(config), "--no-cache", "--no-logo"],
        cwd=config.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_import_contracts_hold() -> None:
    done = lint_imports(ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("octavo/graph/__init__.py", "import octavo.server", "a package of core imports only from those below it"),
        ("octavo/engine/__init__.py", "import torch", "core never imports torch"),
        ("octavo/engine/__init__.py", "import octavo_cpu", "core imports no plugin and no conformance suite"),
        ("octavo/cli/__init__.py", "import octavo_conformance", "core imports no plugin and no conformance suite"),
        (
            "octavo/server/chat/__init__.py",
            "import octavo.server.responses",
            "the APIs of the server do not see each other; what they share lies below them",
        ),
        (
            "octavo/server/transport/__init__.py",
            "import octavo.server.generation",
            "the APIs of the server do not see each other; what they share lies below them",
        ),
        (
            "octavo/text/tokenizer/__init__.py",
            "import octavo.text.grammar",
            "a room of text imports only from those below it",
        ),
        ("octavo/newcomer/__init__.py", "", "a package of core imports only from those below it"),
        ("octavo_cpu/__init__.py", "import octavo.engine", "a plugin imports only the public packages"),
        (
            "octavo_conformance/judge/__init__.py",
            "import octavo.graph",
            "the judge knows neither Octavo nor any platform",
        ),
        (
            "octavo_conformance/cli.py",
            "import octavo.platform.discovery",
            "the judge's process never looks for plugins",
        ),
        ("octavo_fakechip/__init__.py", "import octavo.runner", "a plugin imports only the public packages"),
    ],
)
def test_the_contracts_see_a_breach(tmp_path: Path, file: str, line: str, contract: str) -> None:
    for package in (
        "octavo",
        "octavo_cpu",
        "octavo_conformance",
        "octavo_fakechip",
        *(f"octavo/{name}" for name in PACKAGES),
        *SUITE,
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for module in ("octavo/platform/discovery", *SUITE_MODULES):
        (tmp_path / f"{module}.py").touch()
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(line + "\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())

    done = lint_imports(tmp_path / "pyproject.toml", source=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    broken = [text for text in done.stdout.splitlines() if text.endswith("BROKEN")]
    assert len(broken) == 1, done.stdout
    assert broken[0].startswith(contract)
