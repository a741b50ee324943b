"""Engines in processes that look like any that serves.

A platform could look around and work more exactly while it is under test. So some work is done once more where there is
nothing to see: no module of the suite, none of its arguments, none of its pipes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.graph import to_json
from octavo.platform import Settings
from octavo_conformance.harness.engines import VOCAB, Request
from octavo_conformance.harness.probe import Model
from octavo_conformance.harness.target import facts
from octavo_conformance.judge.floats import F32
from octavo_conformance.worker.host import CandidateDied, CandidateHung

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

SECONDS = 300.0


@dataclass(frozen=True)
class Served:
    """Tokens by request, and the logprobs of all tokens at each of them, where it asked."""

    tokens: dict[str, list[int]]
    drawn: dict[str, F32]


def serve(t: Target, model: Model, requests: Sequence[Request], *, blocks: int, context: int = 512) -> Served:
    """Run requests, which all come at once. Raises CandidateDied or CandidateHung."""
    told = facts(model, context)
    question: dict[str, Any] = {
        "platform": t.info["name"],
        "mutant": t.mutant,
        "graph": to_json(model.graph),
        "weights": [[name, w.format.name, list(w.shape)] for name, w in model.weights.items()],
        "facts": {k: sorted(v) if isinstance(v, frozenset) else v for k, v in vars(told).items()},
        "settings": asdict(Settings(dtype=model.graph.dtype, max_model_len=context)),
        "blocks": blocks,
        "threads": t.threads,
        "vocab": VOCAB,
        "requests": [
            [r.id, list(r.prompt), {"temperature": 0.0, "max_tokens": r.max_tokens, "ignore_eos": True, **r.params}]
            for r in requests
        ],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "question.json").write_text(json.dumps(question), encoding="utf-8")
        np.savez(folder / "weights.npz", **{f"w{i}": w.data for i, w in enumerate(model.weights.values())})  # type: ignore[arg-type]
        source = resources.files("octavo_conformance.worker").joinpath("plain_engine.py").read_text(encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-c", source], input=f"{folder}\n", capture_output=True, text=True, timeout=SECONDS,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise CandidateHung(f"a plain engine did not end within {SECONDS:g} seconds") from error
        if done.returncode != 0:
            raise CandidateDied("a plain engine", done.returncode, done.stderr[-4000:])
        answer = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    if "refused" in answer:
        raise CandidateDied("a plain engine", 0, f"it refused what it takes under test: {answer['refused']}")
    return Served(answer["tokens"], {name: _table(entries) for name, entries in answer["drawn"].items()})


def _table(entries: Sequence[Sequence[tuple[int, float]]]) -> F32:
    table = np.full((len(entries), VOCAB), np.nan, np.float32)
    for row, entry in zip(table, entries, strict=True):
        for token, value in entry:
            row[token] = value
    return table
