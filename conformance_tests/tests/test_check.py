"""The catalogue: what a check must say of itself, and what the lock sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from octavo.platform import REFERENCE_CAPABILITIES, Capabilities
from octavo_conformance import mutants
from octavo_conformance.harness.target import Target
from octavo_conformance.judge import measure
from octavo_conformance.suite import capability, lock
from octavo_conformance.suite.check import LEVELS, Check, check
from octavo_conformance.suite.record import Record, judge
from octavo_conformance.suite.registry import catalogue, selected
from octavo_conformance.suite.status import Status
from octavo_conformance.suite.verdict import Verdict

CHECKS = catalogue()
SOME = CHECKS["norm.rms"]


def nothing(target: Target) -> Iterator[Verdict]:
    yield measure.holds("case", True, "always")


@pytest.mark.parametrize("id", CHECKS)
def test_every_check_is_complete(id: str) -> None:
    c = CHECKS[id]
    assert c.level in LEVELS
    assert all(capability.split(token) for token in c.requires)
    assert c.rules and "MUST" in c.spec and c.cost > 0


def test_every_mutant_names_checks_that_there_are_and_they_name_it() -> None:
    for mutant in mutants.catalogue().values():
        for name in mutant.killed_by:
            assert name in CHECKS, f"{mutant.id} is to be killed by {name}"
            assert mutant.id in CHECKS[name].kills, f"{name} does not name {mutant.id}"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": "norm.rms"}, "two checks called norm.rms"),
        ({"id": "No Id"}, "is no check id"),
        ({"id": "new.one", "spec": "It may."}, "what MUST hold"),
        ({"id": "new.one", "rules": ()}, "needs rules"),
        ({"id": "new.one", "rules": ("allclose",)}, "no rule"),
    ],
)
def test_an_incomplete_check_is_refused(changes: dict[str, object], complaint: str) -> None:
    given = {"id": "new.one", "level": "L1", "module": "OPS", "since": "1.0", "rules": ("C",), "spec": "It MUST."}
    with pytest.raises(ValueError, match=complaint):
        check(**{**given, **changes})(nothing)  # type: ignore[arg-type]


# -- the lock ---------------------------------------------------------------------------------------


def test_the_lock_is_that_of_the_catalogue() -> None:
    """`octavo conformance lock --write` renews it, which changes what every certificate is compared with."""
    assert lock.differences(lock.installed(), CHECKS) == []
    assert lock.ids(lock.installed()) == set(CHECKS)


@pytest.mark.parametrize(
    "change", [{"spec": "It MUST less."}, {"rules": ("C",)}, {"grade": "informational"}, {"requires": ("op:add",)}]
)
def test_the_lock_sees_a_check_that_was_loosened(change: dict[str, object]) -> None:
    changed = {**CHECKS, SOME.id: replace(SOME, **change)}  # type: ignore[arg-type]
    assert lock.differences(lock.installed(), changed) == [f"{SOME.id} is not what was locked"]


def test_the_lock_sees_a_check_that_is_gone_or_new() -> None:
    fewer = {name: c for name, c in CHECKS.items() if name != SOME.id}
    assert lock.differences(lock.installed(), fewer) == [f"{SOME.id} is locked and not there"]
    more = {**CHECKS, "norm.new": replace(SOME, id="norm.new")}
    assert lock.differences(lock.installed(), more) == ["norm.new is there and not locked"]


def test_the_lock_sees_a_tolerance_that_was_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo_conformance.judge import tol

    monkeypatch.setattr(tol, "TIERS", {**tol.TIERS, "A1": tol.Tier(3.0, 4.0, 5.0, 2.0)})
    assert lock.differences(lock.installed(), CHECKS) == ["#rules is not what was locked"]


# -- selection, capabilities ------------------------------------------------------------------------


def test_a_selection_is_by_profile_level_and_name() -> None:
    every = CHECKS.values()
    assert selected(every, profile="quick", only=("norm.rms",)) == {"norm.rms"}
    kept = {name for name, check in CHECKS.items() if name.startswith("kv.")}
    assert selected(every, profile="quick", only=("kv.",)) == kept
    assert selected(every, profile="full", levels=("L5",)) == {c.id for c in every if c.level == "L5"}
    slow = replace(SOME, id="norm.slow", profile="full")
    assert selected([slow], profile="quick") == set()
    assert selected([slow], profile="quick", only=("norm.slow",)) == {"norm.slow"}


@pytest.mark.parametrize(
    ("token", "declared"),
    [
        ("op:linear", True), ("op:nothing", False), ("attention:window", True), ("format:q4_k", True),
        ("dtype:bf16", False), ("kv:f32", True), ("kv:int8", False), ("block_size:16", True), ("block_size:17", False),
        ("head_dim:80", True), ("ranks:1", True), ("ranks:2", False), ("sampling", False),
    ],
)  # fmt: skip
def test_capability_tokens(token: str, declared: bool) -> None:
    assert capability.declares(REFERENCE_CAPABILITIES, token) is declared
    assert capability.missing(REFERENCE_CAPABILITIES, (token,)) == (() if declared else (token,))


def test_head_sizes_that_are_listed_are_all_there_are() -> None:
    assert not capability.declares(Capabilities(head_dims=(64, 128)), "head_dim:80")
    with pytest.raises(ValueError, match="there is no capability"):
        capability.split("speed:high")


# -- records ----------------------------------------------------------------------------------------


def holding(truth: bool, case: str = "case") -> Verdict:
    return measure.holds(case, truth, "asked")


def with_rule_c(**changes: object) -> Check:
    return replace(SOME, rules=("C",), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record("x", "run", (holding(True),)), Status.PASS),
        (Record("x", "run", (holding(True), holding(False, "other"))), Status.FAIL),
        (Record("x", "run"), Status.ERROR),
        (Record("x", "run", (holding(True), holding(True))), Status.ERROR),
        (Record("x", "run", (holding(True),), "raised", "boom"), Status.FAIL),
        (Record("x", "run", (holding(True),), "died", "gone"), Status.FAIL),
        (Record("x", "run", (), "hung", "late"), Status.FAIL),
        (Record("x", "run", (), "refused", "no"), Status.FAIL),
        (Record("x", "run", (holding(True),), "broke", "ours"), Status.ERROR),
        (Record("x", "not run", message="left out"), Status.NOT_RUN),
        (Record("x", "refusal", (holding(True),)), Status.ERROR),
        (Record("x", "refusal"), Status.ERROR),
        (Record("x", "refusal", (Verdict("w", "E", {"raised": 1, "typed": 1, "named": 1}),)), Status.REFUSED_OK),
        (Record("x", "refusal", (Verdict("w", "E", {"raised": 0, "typed": 0, "named": 0}),)), Status.FAIL),
        (Record("x", "refusal", (Verdict("w", "E", {"raised": 1, "typed": 1, "named": 0}),)), Status.FAIL),
    ],
)
def test_the_status_of_a_record(record: Record, expected: Status) -> None:
    assert judge(record, with_rule_c(), "A1").status is expected


def test_a_rule_that_the_check_does_not_list_is_an_error() -> None:
    assert judge(Record("x", "run", (holding(True),)), SOME, "A1").status is Status.ERROR


def test_an_informational_check_is_no_pass() -> None:
    record = Record("x", "run", (holding(True),))
    assert judge(record, with_rule_c(grade="informational"), "A1").status is Status.INFO


def test_records_survive_json_exactly() -> None:
    verdict = Verdict("c", "R", {"rms": 0.1 + 0.2, "of": 3, "x": float("inf")}, {"zeros": {"rms": 1e-310}}, "said")
    record = Record("x", "run", (verdict,), "raised", "boom", 1.25)
    assert Record.from_json(record.to_json()) == record
