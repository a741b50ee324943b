"""One verdict: what was measured in one case, from which anybody can recompute how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Metrics = Mapping[str, float | int]
_NOTHING: Metrics = MappingProxyType({})


@dataclass(frozen=True)
class Verdict:
    """The measurements of one case under one rule. It holds no status: `octavo_conformance.judge.tol.decide` finds it.

    ``plants`` are the measurements of wrong answers that the rule must reject for the case to count (see
    `octavo_conformance.judge.vacuity`); every rule that compares values needs some. Make verdicts with the functions
    of `octavo_conformance.judge`, not by hand.
    """

    case: str
    rule: str
    metrics: Metrics
    plants: Mapping[str, Metrics] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As a line of results.jsonl holds it. Floats are hexadecimal, so that they survive exactly."""
        return {
            "case": self.case,
            "rule": self.rule,
            "metrics": _out(self.metrics),
            "plants": {name: _out(metrics) for name, metrics in self.plants.items()},
            "note": self.note,
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Verdict:
        """The inverse of `to_json`. Raises ValueError or KeyError for anything else."""
        plants = {str(name): _in(metrics) for name, metrics in raw["plants"].items()}
        return Verdict(str(raw["case"]), str(raw["rule"]), _in(raw["metrics"]), plants, str(raw["note"]))


def _out(metrics: Metrics) -> dict[str, int | str]:
    return {name: value if isinstance(value, int) else float(value).hex() for name, value in metrics.items()}


def _in(raw: Mapping[str, Any]) -> dict[str, float | int]:
    return {name: value if isinstance(value, int) else float.fromhex(value) for name, value in raw.items()}
