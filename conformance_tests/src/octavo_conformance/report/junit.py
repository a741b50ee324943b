"""JUnit XML for CI: a suite for each level, a case for each check."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from octavo_conformance.proof.certificate import Result
from octavo_conformance.suite.check import LEVELS, Check, Profile
from octavo_conformance.suite.record import Judged
from octavo_conformance.suite.status import Status


def junit(result: Result, checks: Mapping[str, Check], profile: Profile) -> str:
    """What should have run and did not is an error here: CI must not take it for a pass. REFUSED_OK is skipped, with
    the reason, and so is what the profile does not have.
    """
    root = ET.Element("testsuites", name=result.line)
    for level in LEVELS:
        members = [j for check_id, j in result.judged.items() if checks[check_id].level == level]
        if not members:
            continue
        suite = ET.SubElement(root, "testsuite", name=level, tests=str(len(members)))
        for judged in members:
            case = ET.SubElement(
                suite, "testcase", classname=level, name=judged.record.id, time=f"{judged.record.seconds:.3f}"
            )
            due = checks[judged.record.id].in_profile(profile)
            outcome = _outcome(judged, due)
            if outcome is not None:
                text = _text(judged)
                ET.SubElement(case, outcome, message=text.partition("\n")[0]).text = text
        for outcome in ("failure", "error", "skipped"):
            plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}[outcome]
            suite.set(plural, str(len(suite.findall(f"testcase/{outcome}"))))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


def _outcome(judged: Judged, due: bool) -> str | None:
    if judged.status is Status.FAIL:
        return "failure"
    if judged.status is Status.ERROR or (judged.status is Status.NOT_RUN and due):
        return "error"
    return "skipped" if judged.status in (Status.NOT_RUN, Status.REFUSED_OK) else None


def _text(judged: Judged) -> str:
    if judged.status is Status.REFUSED_OK:
        return f"not declared, and refused: {'; '.join(v.note for v in judged.record.verdicts)}"
    return "\n".join([*judged.reasons, *(f"{c.case}: {'; '.join(c.reasons)}" for c in judged.cases if c.reasons)])
