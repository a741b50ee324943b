"""What the candidate does is told apart from what the suite does, and neither takes the judge down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from wild_plugins import WILD, install, on_path

from octavo_conformance.harness import attention
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.harness.steps import ReadBlock, every_row
from octavo_conformance.harness.target import Target
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.suite.record import judge
from octavo_conformance.suite.registry import catalogue
from octavo_conformance.suite.runner import Selection, run
from octavo_conformance.suite.status import Status
from octavo_conformance.worker.host import CandidateDied, CandidateHung, CandidateRaised, HarnessBroke, Worker

X = np.arange(64, dtype=np.float32).reshape(4, 16)


@pytest.fixture
def wild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The plugin is on the path; set WILD to say how it behaves."""
    install(tmp_path, "wild", "octavo_wild", WILD)
    on_path(monkeypatch, tmp_path)
    return monkeypatch


def copy(t: Target) -> Model:
    p = Probe(t, "copy")
    return p.read(p.rows("x", X))


def test_a_tame_platform_answers(wild: pytest.MonkeyPatch) -> None:
    with Worker("wild") as worker:
        assert worker.description["info"]["name"] == "wild"
        assert len(worker.description["digest"]) == 64
        t = Target(worker, "check", "0")
        played = t.play(copy(t), [every_row(4)])
        assert np.array_equal(played.results[0], X)
        assert played.changed == () and len(played.memory) == 3
        assert all(0 < free < total for total, free in played.memory)


def test_a_crash_is_the_candidates_and_its_last_words_are_kept(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "dies")
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        with pytest.raises(CandidateDied, match="exit status 139") as died:
            t.play(copy(t), [every_row(4)])
        assert "segmentation fault" in died.value.output
        assert not worker.alive


def test_a_hang_is_ended_by_the_watchdog(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "hangs")
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        with pytest.raises(CandidateHung, match="no answer to play within 1 seconds"):
            t.play(copy(t), [every_row(4)], seconds=1)
        assert not worker.alive


@pytest.mark.parametrize(("how", "kind", "text"), [("raises", "RuntimeError", "on fire"), ("exits", "SystemExit", "3")])
def test_an_exception_is_the_candidates_with_the_member_that_raised(
    wild: pytest.MonkeyPatch, how: str, kind: str, text: str
) -> None:
    wild.setenv("WILD", how)
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        with pytest.raises(CandidateRaised, match=text) as raised:
            t.play(copy(t), [every_row(4)])
        assert (raised.value.stage, raised.value.types[0]) == ("submit", kind)
        assert worker.alive


def test_what_a_plugin_prints_does_not_garble_the_wire(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "prints")
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        assert np.array_equal(t.play(copy(t), [every_row(4)]).results[0], X)
        assert "standard output" in worker.output()


def test_writing_to_a_steps_arrays_is_seen(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "scribbles")
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        assert t.play(copy(t), [every_row(4)]).changed == ("positions",)


def test_the_suites_own_failure_is_not_the_candidates(wild: pytest.MonkeyPatch) -> None:
    with Worker("wild") as worker:
        with pytest.raises(HarnessBroke, match="no action nonsense"):
            worker.ask("act", name="nonsense", arguments={})
        with pytest.raises(HarnessBroke, match="no request"):
            worker.ask("nonsense")


@pytest.mark.parametrize(("how", "status"), [("dies", Status.FAIL), ("raises", Status.FAIL), ("", Status.PASS)])
def test_a_run_goes_on_after_a_check_that_lost_its_worker(wild: pytest.MonkeyPatch, how: str, status: Status) -> None:
    wild.setenv("WILD", how)
    done = run("wild", Selection("quick", only=("act.gated", "norm.rms", "dev.manifest_truth")))
    checks = catalogue()
    ended = {r.id: judge(r, checks[r.id], "A1").status for r in done.records if r.mode != "not run"}
    assert ended == {"dev.manifest_truth": Status.PASS, "act.gated": status, "norm.rms": status}


def test_declaring_what_it_refuses_fails(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "lies")
    done = run("wild", Selection("quick", only=("att.sliding_window_edge",)))
    (record,) = [r for r in done.records if r.mode != "not run"]
    assert (record.mode, record.trouble) == ("run", "refused")
    assert judge(record, catalogue()[record.id], "A1").status is Status.FAIL


def test_accepting_what_it_does_not_declare_fails(wild: pytest.MonkeyPatch) -> None:
    wild.setenv("WILD", "takes all")
    check = catalogue()["dev.manifest_truth"]
    done = run("wild", Selection("quick", only=(check.id,)))
    (record,) = [r for r in done.records if r.mode != "not run"]
    judged = judge(record, check, "A1")
    bad = {case.case for case in judged.cases if case.status is Status.FAIL}
    undeclared = {"op:no_such_op", "format:no_such_format", "ranks:2", "dtype:bf16", "dtype:f16", "kv:int8"}
    assert undeclared < bad
    assert any(name.startswith("block_size:") for name in bad), "one past the largest"


def test_a_platform_that_is_not_there_is_told(wild: pytest.MonkeyPatch) -> None:
    with pytest.raises(CandidateRaised, match="platform acme is not installed"):
        Worker("acme")


def test_a_pool_begins_as_nan_the_null_block_too(wild: pytest.MonkeyPatch) -> None:
    spec = Attention(heads=1, kv_heads=1, head_dim=16, scale=1.0)
    with Worker("wild") as worker:
        t = Target(worker, "check", "0")
        case = attention.randn(t, t.rng("case"), spec, (2,))
        ran = attention.play(t, case, [attention.Run(attention.whole(case), read=(0, 1, 2))])[0]
        assert np.isnan(ran.blocks[0]).all() and np.isnan(ran.blocks[2]).all()
        assert np.isfinite(ran.blocks[1][:, :, :2]).all() and np.isnan(ran.blocks[1][:, :, 2:]).all()
        untouched = t.play(attention.model(t, case), [ReadBlock(1)], poison=False).results[0]
        assert not np.isnan(untouched).any()
