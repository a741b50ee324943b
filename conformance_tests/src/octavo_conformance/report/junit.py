"""JUnit XML for CI: a suite for each level, a case for each check."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree as ET

from octavo_conformance.certificate import Result
from octavo_conformance.check import LEVELS, Check
from octavo_conformance.status import Status


def junit(result: Result, checks: Mapping[str, Check]) -> str:
    """NOT_RUN is an error here: CI must not take what did not run for a pass. REFUSED_OK is skipped, with the
    reason.
    """
    root = ET.Element("testsuites", name=result.line)
    for level in LEVELS:
        members = [j for check_id, j in result.judged.items() if checks[check_id].level == level]
        if not members:
            continue
        suite = ET.SubElement(root, "testsuite", name=level, tests=str(len(members)))
        suite.set("failures", str(sum(j.status is Status.FAIL for j in members)))
        suite.set("errors", str(sum(j.status in (Status.ERROR, Status.NOT_RUN) for j in members)))
        for judged in members:
            case = ET.SubElement(
                suite, "testcase", classname=level, name=judged.record.id, time=f"{judged.record.seconds:.3f}"
            )
            text = "\n".join(
                [*judged.reasons, *(f"{c.case}: {'; '.join(c.reasons)}" for c in judged.cases if c.reasons)]
            )
            if judged.status is Status.FAIL:
                ET.SubElement(case, "failure", message=text.partition("\n")[0]).text = text
            elif judged.status in (Status.ERROR, Status.NOT_RUN):
                ET.SubElement(case, "error", message=text.partition("\n")[0]).text = text
            elif judged.status is Status.REFUSED_OK:
                note = "; ".join(v.note for v in judged.record.verdicts)
                ET.SubElement(case, "skipped", message=f"not declared, and refused: {note}")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"
