"""What a run keeps of each check, and how its status follows from that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from octavo_conformance.judge.tol import decide
from octavo_conformance.suite.check import Check
from octavo_conformance.suite.status import Status
from octavo_conformance.suite.verdict import Verdict

Mode = Literal["run", "refusal", "not run"]
Trouble = Literal["raised", "died", "hung", "refused", "broke"]


@dataclass(frozen=True)
class Record:
    """One check of one run. ``verdicts`` are raw measurements; ``trouble`` is what ended the check early, if anything
    did, and ``message`` says more, also why it was not run.
    """

    id: str
    mode: Mode
    verdicts: tuple[Verdict, ...] = ()
    trouble: Trouble | None = None
    message: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """A line of results.jsonl."""
        return {
            "id": self.id,
            "mode": self.mode,
            "verdicts": [v.to_json() for v in self.verdicts],
            "trouble": self.trouble,
            "message": self.message,
            "seconds": round(self.seconds, 3),
        }

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> Record:
        """The inverse. Raises ValueError or KeyError for anything else."""
        if raw["mode"] not in ("run", "refusal", "not run"):
            raise ValueError(f"a check cannot be {raw['mode']!r}")
        return Record(
            str(raw["id"]), raw["mode"], tuple(map(Verdict.from_json, raw["verdicts"])), raw["trouble"],
            str(raw["message"]), float(raw["seconds"]),
        )  # fmt: skip


@dataclass(frozen=True)
class CaseStatus:
    """How one case ended, and why."""

    case: str
    status: Status
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """A record with its status, and that of each case."""

    record: Record
    status: Status
    cases: tuple[CaseStatus, ...]
    reasons: tuple[str, ...] = ()


_TROUBLE = {
    "raised": (Status.FAIL, "the platform raised an exception"),
    "died": (Status.FAIL, "the platform's process died"),
    "hung": (Status.FAIL, "the platform hung"),
    "refused": (Status.FAIL, "the platform refused what it declares"),
    "broke": (Status.ERROR, "the suite broke"),
}


def judge(record: Record, check: Check, tier: str) -> Judged:
    """The status of a check, from its measurements alone."""
    if record.mode == "not run":
        return Judged(record, Status.NOT_RUN, (), (record.message,))
    cases = tuple(_case(v, record, check, tier) for v in record.verdicts)
    statuses = [case.status for case in cases]
    reasons = []
    if record.trouble is not None:
        status, text = _TROUBLE[record.trouble]
        statuses.append(status)
        reasons.append(f"{text}: {record.message}")
    elif not cases:
        reasons.append("the check gave no verdict")
    names = [v.case for v in record.verdicts]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        statuses.append(Status.ERROR)
        reasons.append(f"cases come twice: {', '.join(doubled)}")
    return Judged(record, Status.worst(statuses), cases, tuple(reasons))


def _case(verdict: Verdict, record: Record, check: Check, tier: str) -> CaseStatus:
    if record.mode == "refusal":
        if verdict.rule != "E":
            return CaseStatus(verdict.case, Status.ERROR, (f"a refusal is judged by rule E, not {verdict.rule}",))
        status, reasons = decide(verdict, tier)
        return CaseStatus(verdict.case, Status.REFUSED_OK if status is Status.PASS else status, tuple(reasons))
    if verdict.rule not in check.rules:
        return CaseStatus(verdict.case, Status.ERROR, (f"{check.id} does not list rule {verdict.rule}",))
    status, reasons = decide(verdict, tier)
    if status is Status.PASS and check.grade == "informational":
        status = Status.INFO
    return CaseStatus(verdict.case, status, tuple(reasons))
