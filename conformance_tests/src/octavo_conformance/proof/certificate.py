"""From judged checks to a claim: which levels and modules a platform has, in one line, and what stands in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo_conformance import suite_version
from octavo_conformance.suite.check import LEVELS, Check, Profile
from octavo_conformance.suite.record import Judged, Record, judge
from octavo_conformance.suite.status import GOOD, Status

_CORE = ("L0", "L1", "L5")


def with_lower(levels: Sequence[str]) -> tuple[str, ...]:
    """Levels with the core levels that they build on: of L5 also L0 and L1."""
    highest = max((_CORE.index(level) for level in levels if level in _CORE), default=-1)
    return tuple(level for level in LEVELS if level in levels or level in _CORE[: highest + 1])


def _formats(proven: Sequence[str], checks: Mapping[str, Check]) -> str:
    """Q with the formats that were proven: modules are called like the formats, with a Q before."""
    return f"Q{{{','.join(sorted({checks[check_id].module.removeprefix('Q') for check_id in proven}))}}}"


@dataclass(frozen=True)
class Result:
    """A run, judged.

    ``line`` is the certificate; ``levels`` what is claimed; ``gaps`` why the run does not certify although nothing
    failed.
    """

    judged: Mapping[str, Judged]
    line: str
    levels: tuple[str, ...]
    gaps: tuple[str, ...]

    @property
    def status(self) -> Status:
        """The worst of what ran."""
        ran = [j.status for j in self.judged.values() if j.status is not Status.NOT_RUN]
        return Status.worst(ran)

    @property
    def verdict(self) -> str:
        """PASS where all that ran is good, else what is wrong."""
        return "PASS" if self.status in GOOD else self.status.name

    @property
    def why_not(self) -> str:
        """What stands between the run and a certificate, in a few words."""
        ended = {Status.ERROR: "the suite is at fault", Status.FAIL: "checks failed"}
        return ended.get(self.status, "the run is not whole")

    @property
    def exit_code(self) -> int:
        """0 certifiable, 1 a check failed, 2 the suite is at fault, 3 clean but not certifying."""
        status = self.status
        if status is Status.ERROR:
            return 2
        if status is Status.FAIL:
            return 1
        return 3 if self.gaps else 0


def conclude(
    records: Sequence[Record], checks: Mapping[str, Check], *, tier: str, profile: Profile, whole: bool,
    levels: Sequence[str] = (), differences: Sequence[str] = (), mutant: str = "",
) -> Result:  # fmt: skip
    """Judge every record and say what follows. ``levels`` are those that are claimed, all if empty: what did not run of
    the others is no gap. ``differences`` are those of the lock.
    """
    judged = {r.id: judge(r, checks[r.id], tier) for r in records if r.id in checks}
    gaps = [f"{r.id} is in the results and no check" for r in records if r.id not in checks]
    gaps += [f"{check_id} is missing in the results" for check_id in checks if check_id not in judged]
    gaps += [f"the suite is not the locked one: {text}" for text in differences]
    if not whole:
        gaps.append("a part of the profile was left out")
    if mutant:
        gaps.append(f"a fault was planted: {mutant}")
    expected = {
        check_id: c for check_id, c in checks.items() if c.in_profile(profile) and (not levels or c.level in levels)
    }
    if whole:
        gaps += [
            f"{check_id} did not run"
            for check_id in expected
            if check_id in judged and judged[check_id].status is Status.NOT_RUN
        ]
    proven_levels: list[str] = []
    for level in LEVELS:
        below = _CORE[: _CORE.index(level)] if level in _CORE else ()
        members = [check_id for check_id, c in expected.items() if c.level == level]
        good = all(check_id in judged and judged[check_id].status in GOOD for check_id in members)
        proven = [check_id for check_id in members if good and judged[check_id].status is Status.PASS]
        if proven and all(lower in proven_levels for lower in below):
            proven_levels.append(level if level != "Q" else _formats(proven, expected))
    parts = [f"octavo-conformance {suite_version()}", " ".join(proven_levels) or "no level", tier, profile]
    return Result(judged, " · ".join(parts), tuple(proven_levels), tuple(gaps))
