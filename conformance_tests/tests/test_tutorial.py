"""The tutorial of docs/write-a-platform.md, typed as it stands, from nothing to a certificate.

A block takes part where its fence says so:

    ```bash tutorial [fails|partial]    commands, of which the last ends with 0 (1, 3)
    ```python tutorial                  run as a script
    ```python tutorial FILE             added to the end of a file
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_models import SMOLLM2, real_model
from throwaway import Throwaway

PAGE = Path(__file__).parents[2] / "docs" / "write-a-platform.md"
BLOCK = re.compile(r"^```(bash|python) tutorial ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STATUS = {"": 0, "fails": 1, "partial": 3}


def blocks() -> list[tuple[str, str, str]]:
    return [(m[1], m[2].strip(), m[3]) for m in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


@pytest.fixture
def shell(tmp_path: Path) -> Throwaway:
    (tmp_path / SMOLLM2).symlink_to(real_model(SMOLLM2))
    return Throwaway(tmp_path)


def followed(shell: Throwaway) -> Iterator[tuple[str, str]]:
    """Each block with what it printed."""
    for language, how, code in blocks():
        if language == "bash":
            yield code, shell.run("bash", "-euc", code, status=STATUS[how])
        elif how:
            with (shell.folder / how).open("a", encoding="utf-8") as file:
                file.write(f"\n\n{code}")
        else:
            yield code, shell.run(shell.python, "-c", code)


@pytest.mark.real_model
def test_the_tutorial_leads_from_nothing_to_a_certificate(shell: Throwaway) -> None:
    told = list(followed(shell))
    new, answer, explained, wrong, demand, right, certified, changed = (output for _, output in told)

    assert "none; prove it: octavo conformance certify --platform acme" in new
    assert "Paris" in answer
    assert "own kernels            rms_norm" in explained
    assert "FAIL       act.gated" in wrong and "gelu" in wrong
    assert "MUST be the activation of its first input times its second" in " ".join(demand.split())
    assert "PASS       act.gated" in right

    line = re.search(r"octavo-conformance \S+ · L0 · A1 · quick", certified)
    assert line and f"{line[0]} (SELF, " in certified and "warning" not in certified
    folder = shell.folder / "data" / "octavo" / "certificates" / "acme"
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["line"] == line[0]
    assert "sound" in shell.run("octavo", "conformance", "verify", "--strict", str(folder / certificate["bundle"]))
    assert "warning: the plugin's files are not those that were certified, although both are 0.1.0" in " ".join(
        changed.split()
    )
