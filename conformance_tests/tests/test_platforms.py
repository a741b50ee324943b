"""The suite on the platforms that there are: it passes the right ones and catches the planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from wild_plugins import HALF, KEEPS, TINY, install, on_path

from octavo_conformance import mutants
from octavo_conformance.proof.certificate import Result, conclude
from octavo_conformance.suite.record import judge
from octavo_conformance.suite.registry import catalogue
from octavo_conformance.suite.runner import Selection, run
from octavo_conformance.suite.status import Status

CHECKS = catalogue()


def whole(platform: str, tier: str = "A1") -> Result:
    done = run(platform, Selection("quick"), tier=tier)
    return conclude(done.records, CHECKS, tier=tier, profile="quick", whole=True)


def part(platform: str, level: str) -> Result:
    done = run(platform, Selection("quick", levels=(level,)))
    records = [record for record in done.records if record.mode != "not run"]
    return conclude(records, CHECKS, tier="A1", profile="quick", whole=False)


def wrong(result: Result) -> dict[str, list[str]]:
    return {
        name: [*j.reasons, *(f"{c.case}: {c.reasons}" for c in j.cases if c.reasons)]
        for name, j in result.judged.items()
        if j.status >= Status.FAIL
    }


def test_the_host_platform_passes() -> None:
    result = whole("cpu")
    assert wrong(result) == {}
    assert result.exit_code == 0 and result.levels[:3] == ("L0", "L1", "L5")


# What the process holds, and not what the machine has left: others take and give that as they please.
OWN_MEMORY = "lambda: api.MemoryReport(6 << 30, (6 << 30) - 4096 * int(open('/proc/self/statm').read().split()[1]))"


def test_a_chip_of_static_shapes_passes_and_refuses_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fixed shapes, prompts apart from decodes, chunks of 16, fewer samples than tokens: all through its limits."""
    source = TINY.read_text(encoding="utf-8")
    constant = "lambda: api.MemoryReport(MEMORY, MEMORY)"
    assert constant in source, "its memory never changes, which dev.mem_delta would hold against it"
    install(tmp_path, "tinychip", "octavo_tiny", source.replace(constant, OWN_MEMORY))
    on_path(monkeypatch, tmp_path)
    result = whole("tinychip")
    assert wrong(result) == {}
    assert result.exit_code == 0
    assert result.judged["att.sliding_window_edge"].status is Status.REFUSED_OK


def test_kernels_that_compute_in_bfloat16_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "half", "octavo_half", HALF)
    on_path(monkeypatch, tmp_path)
    assert wrong(part("half", "L1")) == {}


def test_what_artifact_faults_are_planted_in_passes_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "keeps", "octavo_keeps", KEEPS)
    on_path(monkeypatch, tmp_path)
    done = run("keeps", Selection("quick", only=("art.",)))
    ended = {r.id: judge(r, CHECKS[r.id], "A1").status for r in done.records if r.mode != "not run"}
    assert set(ended.values()) <= {Status.PASS, Status.INFO}


@pytest.mark.parametrize("id", mutants.catalogue())
def test_a_planted_fault_is_caught_by_a_check_named_for_it(id: str) -> None:
    """The cheapest of them; `octavo conformance mutants` runs all, on the platform of one's choice."""
    built = [name for name in mutants.catalogue()[id].killed_by if name in CHECKS]
    cheapest = min(built, key=lambda name: CHECKS[name].cost)
    done = run("reference", Selection("full", only=(cheapest,)), mutant=id)
    ended = {r.id: judge(r, CHECKS[r.id], "A1").status for r in done.records if r.mode != "not run"}
    assert ended == {cheapest: Status.FAIL}
