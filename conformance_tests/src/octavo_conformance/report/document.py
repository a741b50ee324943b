"""The catalogue for people: the conformance document in Markdown, and what the terminal shows of it.

Made from the checks alone, so that it cannot say anything else than what runs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from octavo_conformance import suite_version
from octavo_conformance.judge.tol import TIERS
from octavo_conformance.mutants import Mutant
from octavo_conformance.suite.check import LEVELS, Check

TITLES: Mapping[str, str] = {
    "L0": "device, memory and block pool",
    "L1": "kernels: attention, rope, norms, activations, linear maps, sampling",
    "L5": "the whole engine on the platform",
    "G": "graphs, buckets, artifacts",
    "Q": "weight formats",
    "R": "robustness: faults, limits, leaks",
}

RULES: Mapping[str, str] = {
    "B0": "bytes are equal",
    "X0": "integers recovered from a probe are the expected ones",
    "U(k)": "at most k units in the last place from the truth",
    "R": "the error against float64 is at most the tier's multiple of that of a reference of the same precision",
    "Q": "codes are the expected ones, but for ties; scales to one unit in the last place",
    "S": "a hypothesis test that has the power to see a stated shift does not reject",
    "C": "an amount lies within its bounds",
    "E": "the typed refusal or error, naming what was refused",
    "M": "two runs of the platform agree",
}


COMMAND = "octavo conformance list --md --out docs/reference/conformance.md"
"""What makes the document anew."""

_INTRODUCTION = """\
What is written here is what runs. MUST is meant as in RFC 2119.

L0, L1 and L5 build on one another; the other levels are modules that stand beside them. A *mandatory* check runs for
every platform. A *conditional* one runs where what it requires is declared; where it is not, the platform must refuse
it by name, which is checked instead. The profile is the smallest that runs a check. How the suite works:
[conformance_tests/README.md](../../conformance_tests/README.md)."""


def rule_text(rule: str) -> str:
    """What a rule asks for: ``U(4)`` with its number, R with the tiers' factors."""
    name, _, parameter = rule.partition("(")
    if name == "U":
        return RULES["U(k)"].replace(" k ", f" {parameter.removesuffix(')')} ")
    if name == "R":
        factors = "; ".join(f"{tier} {t.rms:g}, {t.largest:g}, {t.row:g}" for tier, t in TIERS.items())
        return f"{RULES['R']} ({factors} for rms, largest and row)"
    return RULES[name]


def document(checks: Mapping[str, Check], mutants: Mapping[str, Mutant]) -> str:
    """The conformance document: every level, every check with its text."""
    lines = [
        "# Conformance",
        "",
        f"<!-- Generated: {COMMAND} -->",
        "",
        f"Suite {suite_version()}: {_count(len(checks), 'check')}.",
        _INTRODUCTION,
        "",
        "| rule | holds where |",
        "|---|---|",
        *(f"| {name} | {rule_text(name)} |" for name in RULES),
    ]
    for level in LEVELS:
        members = [c for c in checks.values() if c.level == level]
        if members:
            lines += ["", f"## {level}: {TITLES[level]}"]
        for c in members:
            lines += ["", f"### {c.id}", "", *_facts(c, mutants), "", c.spec]
    return "\n".join([*lines, ""])


def _facts(check: Check, mutants: Mapping[str, Mutant]) -> Iterator[str]:
    requires = f", where {_listed(check.requires)} is declared" if check.requires else ""
    yield f"*{check.grade}, {check.profile}, rules {', '.join(check.rules)}, since {check.since}{requires}*"
    caught = [f"{m.id} ({m.fault})" for m in mutants.values() if check.id in m.killed_by]
    if caught:
        yield f"<br>Catches {'; '.join(caught)}."


def _listed(tokens: Sequence[str]) -> str:
    return ", ".join(f"`{token}`" for token in tokens)


def listing(checks: Sequence[Check], width: int) -> Iterator[str]:
    """Every check for the terminal: a line of facts, then its text."""
    for level in LEVELS:
        members = [c for c in checks if c.level == level]
        if members:
            yield ""
            yield from _wrapped(f"{level}: {TITLES[level]} ({_count(len(members), 'check')})", width, "", "    ")
        for c in members:
            yield f"  {c.id}  [{c.grade}, {c.profile}]"
            yield from _wrapped(c.spec, width, "      ")


def explanation(check: Check, mutants: Mapping[str, Mutant], width: int) -> Iterator[str]:
    """One check for the terminal: what it demands, when it runs, how it is judged, what it catches."""
    yield from _wrapped(
        f"{check.id}: level {check.level}, module {check.module}, {check.grade}, since {check.since}", width
    )
    yield ""
    yield from _wrapped(check.spec, width)
    yield ""
    yield f"Runs in profile {check.profile} and larger ones; takes about {check.cost:g} s on two cores."
    if check.requires:
        text = f"Requires {', '.join(check.requires)}; where that is not declared, its refusal is checked instead."
        yield from _wrapped(text, width)
    yield "Judged by"
    for rule in check.rules:
        yield from _wrapped(f"{rule}: {rule_text(rule)}", width, "  ", "      ")
    for mutant in mutants.values():
        if check.id in mutant.killed_by:
            yield from _wrapped(f"Catches {mutant.id}: {mutant.fault}", width, "", "    ")


def _wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    after = indent if further is None else further
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
