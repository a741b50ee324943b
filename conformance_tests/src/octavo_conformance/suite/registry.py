"""The catalogue: every check of every module, in order."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from octavo_conformance.suite.check import LEVELS, Check, Profile, registered


def catalogue() -> dict[str, Check]:
    """All checks by id, level after level. Loads every module of `octavo_conformance.checks`."""
    package = importlib.import_module("octavo_conformance.checks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"octavo_conformance.checks.{module.name}")
    return dict(sorted(registered().items(), key=lambda item: (_rank(item[1].level), item[0])))


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def selected(
    checks: Iterable[Check], *, profile: Profile, levels: tuple[str, ...] = (), only: tuple[str, ...] = ()
) -> set[str]:
    """Ids that a run executes: those of the profile, of the levels if some are named, of the ids if some are named (an
    id that ends with a dot stands for all that begin with it).
    """
    return {
        c.id
        for c in checks
        if (c.in_profile(profile) or c.id in only)
        and (not levels or c.level in levels)
        and (not only or any(c.id == name or (name.endswith(".") and c.id.startswith(name)) for name in only))
    }
