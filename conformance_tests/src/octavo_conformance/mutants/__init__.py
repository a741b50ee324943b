"""Mutants: platforms with one fault planted. A suite is worth what it catches.

A mutant wraps any platform::

    @mutant("M46.zeros", "every logit is zero", killed_by=("att.prefill_causal",))
    class Zeros(Wrapped):
        def output(self, step, output): ...

Modules of this package called ``m_*`` hold them; `catalogue` loads all.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from octavo.platform import Platform

Wrap = Callable[[Platform], Platform]


@dataclass(frozen=True)
class Mutant:
    """One fault: its id, what is wrong, the checks of which each must catch it, and how to make it."""

    id: str
    fault: str
    killed_by: tuple[str, ...]
    wrap: Wrap


_MUTANTS: dict[str, Mutant] = {}


def mutant(id: str, fault: str, *, killed_by: tuple[str, ...]) -> Callable[[Wrap], Wrap]:
    """Register a wrapper of platforms."""

    def register(wrap: Wrap) -> Wrap:
        if id in _MUTANTS:
            raise ValueError(f"there are two mutants called {id}")
        _MUTANTS[id] = Mutant(id, fault, killed_by, wrap)
        return wrap

    return register


def catalogue() -> dict[str, Mutant]:
    """All there are, by id."""
    package = importlib.import_module("octavo_conformance.mutants")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("m_"):
            importlib.import_module(f"octavo_conformance.mutants.{module.name}")
    return dict(sorted(_MUTANTS.items()))


def apply(id: str, platform: Platform) -> Platform:
    """The platform with a fault. Raises LookupError for an unknown one."""
    known = catalogue()
    if id not in known:
        raise LookupError(f"there is no mutant {id}; there are {', '.join(known)}")
    return known[id].wrap(platform)
