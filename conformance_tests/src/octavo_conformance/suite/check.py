"""Checks: what one is, and how to write one.

A check is a generator that drives a `Target` and yields verdicts, one for each case::

    @check(
        "norm.rms",
        level="L1",
        module="OPS",
        since="1.0",
        requires=("op:rms_norm",),
        rules=("R",),
        kills=("M19",),
        spec="rms_norm MUST divide by the root of the mean square plus eps, and multiply by offset + weight.",
    )
    def rms(t: Target) -> Iterator[Verdict]:
        x = t.stored(t.rng("wide").outliers(64, 512))
        ...
        yield measure.budget("wide", y, exact, reference, t.dtype)

Rules of the house:

* There is no skip. A check whose ``requires`` the platform does not declare is not run; its refusal is checked instead.
  Inside a check a branch may depend on what is declared only to choose more cases, never to yield none: a check that
  yields no verdict is an ERROR.
* Do all that a device does in as few `Target.play` calls as you can: each opens the device, loads and compiles.
* An exception of the candidate that you do not catch is a FAIL of the check; any other exception is an ERROR.
* Draw inputs from ``t.rng(case)`` only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from octavo_conformance.judge.tol import parse_rule
from octavo_conformance.suite.verdict import Verdict

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

Body = Callable[["Target"], Iterator[Verdict]]
Grade = Literal["mandatory", "conditional", "informational"]
Profile = Literal["quick", "standard", "full"]

LEVELS = ("L0", "L1", "L5", "G", "Q", "R")
"""L0, L1 and L5 build on one another; beside them stand the modules G (graphs and artifacts), Q (weight formats) and R
(robustness)."""
PROFILES: tuple[Profile, ...] = ("quick", "standard", "full")
_ID = re.compile(r"[a-z]+\.[a-z0-9_]+(\.[a-z0-9_]+)?(@\d+)?")


@dataclass(frozen=True)
class Check:
    """One entry of the catalogue.

    ``requires`` are capability tokens (`octavo_conformance.suite.capability`); ``kills`` are the mutants that it must
    catch; ``cost`` is about how many seconds it takes on two cores; ``profile`` the smallest that runs it.
    """

    id: str
    level: str
    module: str
    since: str
    grade: Grade
    requires: tuple[str, ...]
    rules: tuple[str, ...]
    kills: tuple[str, ...]
    spec: str
    cost: float
    profile: Profile
    body: Body

    def in_profile(self, profile: Profile) -> bool:
        """Whether a run of ``profile`` includes it."""
        return PROFILES.index(self.profile) <= PROFILES.index(profile)

    @property
    def digest(self) -> str:
        """Of all that a locked check may not change: its id, place, text and rules."""
        parts = (self.id, self.level, self.module, self.since, self.grade, *self.requires, *self.rules, self.spec)
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


_REGISTRY: dict[str, Check] = {}


def check(
    id: str,
    *,
    level: str,
    module: str,
    since: str,
    rules: tuple[str, ...],
    spec: str,
    requires: tuple[str, ...] = (),
    kills: tuple[str, ...] = (),
    grade: Grade | None = None,
    cost: float = 1.0,
    profile: Profile = "quick",
) -> Callable[[Body], Body]:
    """Register the decorated function as a check. ``grade`` is conditional where it requires something, else
    mandatory.
    """

    def register(body: Body) -> Body:
        graded = grade or ("conditional" if requires else "mandatory")
        text = " ".join(spec.split())
        _add(Check(id, level, module, since, graded, requires, rules, kills, text, cost, profile, body))
        return body

    return register


def _add(new: Check) -> None:
    if not _ID.fullmatch(new.id):
        raise ValueError(f"{new.id!r} is no check id; ids are like att.prefill_causal")
    if new.id in _REGISTRY:
        raise ValueError(f"there are two checks called {new.id}")
    if not (new.rules and re.search(r"\b(MUST|SHALL)\b", new.spec)):
        raise ValueError(f"{new.id} needs rules, and a spec that says what MUST hold")
    for rule in new.rules:
        parse_rule(rule)
    _REGISTRY[new.id] = new


def registered() -> dict[str, Check]:
    """What has been registered so far; `octavo_conformance.suite.registry.catalogue` loads every module first."""
    return dict(sorted(_REGISTRY.items()))
