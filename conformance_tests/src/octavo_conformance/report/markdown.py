"""Markdown: the report of one bundle, the difference of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from octavo_conformance.proof.bundle import Bundle
from octavo_conformance.proof.certificate import Result
from octavo_conformance.suite.check import LEVELS, Check
from octavo_conformance.suite.record import Judged
from octavo_conformance.suite.status import Status

MARKS = {
    Status.PASS: "✔", Status.REFUSED_OK: "✖", Status.INFO: "i", Status.NOT_RUN: "∅",
    Status.FAIL: "✘", Status.ERROR: "!",
}  # fmt: skip
LEGEND = "✔ verified · ✖ refused, which is verified · i published · ∅ not run · ✘ failed · ! the suite is at fault"
_WORST = 10


def markdown(bundle: Bundle, result: Result, checks: Mapping[str, Check]) -> str:
    """One page: the certificate, what stands in its way, the table of checks, the narrowest margins."""
    say = bundle.statement
    lines = [
        f"# {say['platform']} {say['version']} by {say['vendor']}",
        "",
        f"**{result.line}** ({say['trust']})",
        "",
        f"Status {result.verdict}; seed `{say['seed']}`; {_counts(result)}.",
        "",
    ]
    lines += [f"* Does not certify: {gap}" for gap in result.gaps]
    for level in LEVELS:
        members = [name for name in result.judged if checks[name].level == level]
        if members:
            lines += ["", f"## {level}", "", "| check | | cases | seconds |", "|---|---|---|---|"]
            lines += [_row(check_id, result.judged[check_id]) for check_id in members]
    bad = [j for j in result.judged.values() if j.status >= Status.FAIL]
    if bad:
        lines += ["", "## What is wrong", ""]
        for j in bad:
            lines += [f"* `{j.record.id}` {text}" for text in _wrong(j)]
    margins = sorted(_margins(result), reverse=True)[:_WORST]
    if margins:
        lines += ["", "## Narrowest margins", "", "| check | case | error / reference's |", "|---|---|---|"]
        lines += [f"| {check_id} | {case} | {ratio:.2f} |" for ratio, check_id, case in margins]
    lines += ["", LEGEND, ""]
    return "\n".join(lines)


def _counts(result: Result) -> str:
    statuses = [j.status for j in result.judged.values()]
    return ", ".join(f"{statuses.count(s)} {s.name}" for s in Status if statuses.count(s))


def _row(check_id: str, judged: Judged) -> str:
    status, seconds = judged.status, judged.record.seconds
    return f"| {check_id} | {MARKS[status]} {status.name} | {len(judged.cases)} | {seconds:.2f} |"


def _wrong(judged: Judged) -> Iterator[str]:
    yield from (reason.splitlines()[0] for reason in judged.reasons)
    for case in judged.cases:
        if case.status >= Status.FAIL:
            yield f"({case.case}): {'; '.join(case.reasons)}"


def _margins(result: Result) -> Iterator[tuple[float, str, str]]:
    """Rms error over the reference's, of every case judged by error budget."""
    for check_id, judged in result.judged.items():
        for verdict in judged.record.verdicts:
            if verdict.rule == "R" and verdict.metrics.get("rms_reference"):
                yield verdict.metrics["rms"] / verdict.metrics["rms_reference"], check_id, verdict.case


def differences(old: tuple[Bundle, Result], new: tuple[Bundle, Result]) -> str:
    """What changed from one bundle to another: claim, environment, declarations, statuses."""
    titles = [f"{b.platform} {b.statement['version']}" for b, _ in (old, new)]
    lines = [f"# {titles[0]} → {titles[1]}", ""]
    lines += [f"* {when}: {r.line}: {r.verdict}" for when, (_, r) in (("before", old), ("after", new))] + [""]
    for title, before, after in (
        ("Environment", old[0].env, new[0].env),
        ("Declared", old[0].manifest["capabilities"], new[0].manifest["capabilities"]),
    ):
        moved = [k for k in sorted(before.keys() | after.keys()) if before.get(k) != after.get(k)]
        if moved:
            lines += [f"## {title}", ""]
            lines += [f"* {k}: {_change(before.get(k), after.get(k))}" for k in moved] + [""]
    statuses = [{check_id: j.status for check_id, j in side[1].judged.items()} for side in (old, new)]
    lines += ["## Checks", ""]
    changed = [
        f"* {check_id}: {_name(statuses[0].get(check_id))} → {_name(statuses[1].get(check_id))}"
        for check_id in sorted(statuses[0].keys() | statuses[1].keys())
        if statuses[0].get(check_id) != statuses[1].get(check_id)
    ]
    return "\n".join([*lines, *(changed or ["None changed."]), ""])


def _name(status: Status | None) -> str:
    return "absent" if status is None else status.name


def _change(before: object, after: object) -> str:
    """Of lists what came and went, of mappings what changed, of anything else both values."""
    if isinstance(before, list) and isinstance(after, list) and set(map(str, before)) != set(map(str, after)):
        gone = [f"-{x}" for x in before if x not in after]
        return ", ".join(gone + [f"+{x}" for x in after if x not in before])
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        moved = [k for k in sorted(before.keys() | after.keys()) if before.get(k) != after.get(k)]
        return ", ".join(f"{k} {_short(before.get(k))} → {_short(after.get(k))}" for k in moved)
    return f"{_short(before)} → {_short(after)}"


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
