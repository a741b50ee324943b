"""A run: every check of the catalogue against one platform, in worker processes that start anew where one was lost."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.platform import Rank
from octavo_conformance.harness import refusal
from octavo_conformance.harness.target import Refused, Target
from octavo_conformance.suite import capability
from octavo_conformance.suite.check import Check, Profile
from octavo_conformance.suite.record import Record, Trouble
from octavo_conformance.suite.registry import catalogue, selected
from octavo_conformance.suite.verdict import Verdict
from octavo_conformance.worker.host import CandidateDied, CandidateHung, CandidateRaised, HarnessBroke, Worker

Told = Callable[[Record, Check], None]


@dataclass(frozen=True)
class Selection:
    """What a run executes. ``only`` are ids, or beginnings of ids that end with a dot; ``budget`` is in seconds of the
    checks' own costs: the cheapest of each level come first, and what does not fit is NOT_RUN. With ``claim`` the
    levels are what is to be certified, and nothing of them is left out.
    """

    profile: Profile = "quick"
    levels: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    budget: float | None = None
    claim: bool = False

    @property
    def claimed(self) -> tuple[str, ...]:
        """The levels that the run is to certify; empty: all."""
        return self.levels if self.claim else ()

    @property
    def whole(self) -> bool:
        """Whether it leaves nothing of its profile out, in the levels that it claims."""
        return not (self.only or self.budget is not None or self.levels != self.claimed)


@dataclass
class Run:
    """The records of a run, in the catalogue's order, and what the worker said of itself."""

    platform: str
    selection: Selection
    seed: str
    tier: str
    mutant: str = ""
    description: Mapping[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)


class _Workers:
    """One live worker at a time; a dead one is replaced when the next is needed."""

    def __init__(self, platform: str, mutant: str, timeout: float) -> None:
        self._platform, self._mutant, self._timeout = platform, mutant, timeout
        self._worker: Worker | None = None

    def get(self) -> Worker:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = Worker(self._platform, mutant=self._mutant, timeout=self._timeout)
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def run(
    platform: str, selection: Selection, *, seed: str = "0", tier: str = "A1", mutant: str = "",
    threads: int | None = None, timeout: float = 300.0, told: Told = lambda record, check: None,
) -> Run:  # fmt: skip
    """Run the selected checks. Raises CandidateRaised, CandidateDied or CandidateHung where the platform cannot be had
    at all.

    ``told`` is called after each check.
    """
    checks = catalogue()
    chosen = _within_budget(checks, selection)
    workers = _Workers(platform, mutant, timeout)
    try:
        done = Run(platform, selection, seed, tier, mutant, workers.get().description)
        for check in checks.values():
            if check.id in chosen:
                record = run_check(check, workers.get, seed, replace(Rank(), threads=threads))
            else:
                record = Record(check.id, "not run", message=_why_not(check, selection))
            done.records.append(record)
            told(record, check)
        done.description = {**done.description, "digest_after": workers.get().ask("digest")}
        return done
    finally:
        workers.close()


def run_check(check: Check, worker: Callable[[], Worker], seed: str, rank: Rank) -> Record:
    """One check, or its refusal where something that it requires is not declared."""
    started = time.monotonic()
    target = Target(worker(), check.id, seed, rank)
    lacking = capability.missing(target.capabilities, check.requires)
    verdicts: list[Verdict] = []
    trouble, message = _collect(refusal.refusals(target, lacking) if lacking else _body(check, target), verdicts)
    mode = "refusal" if lacking else "run"
    return Record(check.id, mode, tuple(verdicts), trouble, message, time.monotonic() - started)  # type: ignore[arg-type]


def _body(check: Check, target: Target) -> Iterator[Verdict]:
    return check.body(target)


def _collect(stream: Iterator[Verdict], into: list[Verdict]) -> tuple[Trouble | None, str]:
    """Take every verdict; what ends the stream early is sorted by whose fault it is."""
    try:
        into.extend(stream)
    except CandidateRaised as error:
        return "raised", f"{error}\n{error.trace}"
    except CandidateDied as error:
        return "died", f"{error}\n{error.output}"
    except CandidateHung as error:
        return "hung", str(error)
    except Refused as error:
        return "refused", str(error)
    except HarnessBroke as error:
        return "broke", str(error)
    except Exception:  # noqa: BLE001 - a check that raises is an ERROR of the suite, and the run goes on
        return "broke", traceback.format_exc()
    return None, ""


def _within_budget(checks: Mapping[str, Check], selection: Selection) -> set[str]:
    chosen = selected(checks.values(), profile=selection.profile, levels=selection.levels, only=selection.only)
    if selection.budget is None:
        return chosen
    left, kept = selection.budget, set()
    for check in sorted((checks[check_id] for check_id in chosen), key=lambda c: c.cost):
        if check.cost <= left:
            kept.add(check.id)
            left -= check.cost
    return kept


def _why_not(check: Check, selection: Selection) -> str:
    if not check.in_profile(selection.profile):
        return f"belongs to profile {check.profile}"
    return "left out by the selection or the budget"
