"""checks.lock: the frozen list. What a run did not run is seen by it, and so is a check whose text or rules changed.

One check a line, sorted: id, since, level, module, grade, profile, digest. The rules' constants have a line of their
own. Written by ``octavo conformance lock --write`` and read by everybody, verify included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple
from importlib import resources

from octavo_conformance import suite_version
from octavo_conformance.judge import tol, vacuity
from octavo_conformance.suite.check import Check

_RULES = "#rules"


def text(checks: Iterable[Check]) -> str:
    """The lock of a catalogue."""
    lines = [f"#suite {suite_version()}", f"{_RULES} {rules_digest()}"]
    lines += sorted(" ".join((c.id, c.since, c.level, c.module, c.grade, c.profile, c.digest)) for c in checks)
    return "\n".join(lines) + "\n"


def rules_digest() -> str:
    """Of every constant that decides a verdict."""
    constants = [f"{name}:{astuple(tier)}" for name, tier in sorted(tol.TIERS.items())]
    constants += [
        f"{tol.ALPHA}",
        f"{tol.POWER}",
        f"{tol.BIAS}",
        f"{tol.NOISE}",
        f"{tol.COMMON}",
        f"{vacuity.SCALED}",
        *sorted(tol.NEEDS_PLANTS),
    ]
    return hashlib.sha256("\x1f".join(constants).encode()).hexdigest()[:16]


def installed() -> str:
    """The lock that this distribution came with."""
    return resources.files("octavo_conformance.suite").joinpath("checks.lock").read_text(encoding="utf-8")


def digest(lock: str) -> str:
    """What bundles name the lock by."""
    return hashlib.sha256(lock.encode()).hexdigest()


def ids(lock: str) -> set[str]:
    """The checks that a lock lists."""
    return {line.split()[0] for line in lock.splitlines() if line and not line.startswith("#")}


def differences(lock: str, checks: Mapping[str, Check]) -> list[str]:
    """What is not as the lock has it, a sentence each; empty where all is."""
    ours = {line.split()[0]: line for line in text(checks.values()).splitlines()}
    theirs = {line.split()[0]: line for line in lock.splitlines() if line}
    found = [f"{name} is locked and not there" for name in sorted(theirs.keys() - ours.keys())]
    found += [f"{name} is there and not locked" for name in sorted(ours.keys() - theirs.keys())]
    found += [
        f"{name} is not what was locked" for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]
    ]
    return found
