"""The ledger: a Markdown table to which a run adds a line, for a plugin's repository."""

from __future__ import annotations

from pathlib import Path

from octavo_conformance.bundle import Bundle
from octavo_conformance.certificate import Result
from octavo_conformance.status import Status

HEAD = "# Conformance ledger\n\n| date | plugin | code | result | certificate line |\n|---|---|---|---|---|\n"


def entry(bundle: Bundle, result: Result, date: str) -> str:
    """One line: what ran when, and how it ended."""
    statuses = [j.status for j in result.judged.values()]
    counts = ", ".join(f"{statuses.count(s)} {s.name}" for s in Status if s is not Status.NOT_RUN and s in statuses)
    code = str(bundle.env["digest"])[:8]
    return f"| {date} | {bundle.statement['version']} | `{code}` | {result.verdict}: {counts} | {result.line} |\n"


def add(path: Path, line: str) -> None:
    """Add a line to the ledger, which is begun if it is not there. Raises OSError."""
    before = path.read_text(encoding="utf-8") if path.exists() else HEAD
    path.write_text(before + ("" if before.endswith("\n") else "\n") + line, encoding="utf-8")
