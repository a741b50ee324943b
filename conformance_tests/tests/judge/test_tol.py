"""Rules: each rejects what it is for, and none is a pass by default."""

from __future__ import annotations

import numpy as np
import pytest

from octavo_conformance.judge import measure, stats, tol
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.status import Status
from octavo_conformance.suite.verdict import Verdict

X = Rng("rules").normal(8, 64)


def status(verdict: Verdict, tier: str = "A1") -> Status:
    return tol.decide(verdict, tier)[0]


def test_nothing_compared_is_no_pass() -> None:
    empty = np.zeros((0, 4))
    assert status(measure.bitwise("c", empty, empty)) is Status.FAIL
    assert status(measure.integers("c", np.zeros(0), np.zeros(0))) is Status.FAIL
    assert status(measure.budget("c", empty, empty, empty, "f32")) is Status.FAIL
    assert status(stats.fit("c", np.zeros(4), np.full(4, 0.25))) is Status.FAIL


@pytest.mark.parametrize("rule", ["B0", "X0", "U(2)", "R", "Q", "S", "C", "E", "M"])
def test_a_verdict_without_measurements_is_no_pass(rule: str) -> None:
    assert status(Verdict("c", rule, {})) is Status.FAIL


@pytest.mark.parametrize("rule", sorted(tol.NEEDS_PLANTS - {"U"}))
def test_a_verdict_without_plants_is_an_error(rule: str) -> None:
    good = {
        "of": 4, "wrong": 0, "nonfinite": 0, "rms": 0.0, "rms_reference": 1.0, "largest": 0.0, "largest_reference": 1.0,
        "row_ratio": 0.0, "bias": 0.0, "bias_reference": 0.0, "scale_ulps": 0.0, "p": 0.5, "power": 1.0, "differing": 0,
    }  # fmt: skip
    assert tol.decide(Verdict("c", rule, good), "A1") == (Status.ERROR, ["vacuous: no wrong answer was tried"])
    assert status(Verdict("c", rule, good, {"plant": good})) is Status.ERROR
    assert status(Verdict("c", rule, good, {"plant": {}})) is Status.PASS


def test_a_case_whose_wrong_answers_pass_is_vacuous() -> None:
    """The truth is all but nothing beside the reference's own error: zeros would do."""
    noise = Rng("noise").normal(8, 64)
    exact = X * 1e-6
    ended, reasons = tol.decide(measure.budget("c", exact + noise * 0.1, exact, exact + noise, "f32"), "A1")
    assert ended is Status.ERROR
    assert "zeros" in reasons[0]


def test_an_unknown_rule_is_refused() -> None:
    for rule in ("Z", "U", "R(3)"):
        with pytest.raises(ValueError, match="there is no rule"):
            tol.decide(Verdict("c", rule, {}), "A1")


def test_nan_where_the_truth_has_none_fails_even_if_the_reference_has_it_too() -> None:
    exact, own, y = X, X.copy(), X.copy()
    own[0, 0] = y[0, 0] = np.nan
    assert status(measure.budget("c", y, exact, own, "f32")) is Status.FAIL
    truth = X.copy()
    truth[0, 0] = np.nan
    assert status(measure.budget("c", X, truth, X, "f32")) is Status.FAIL  # and the reverse


def test_a_result_of_another_shape_fails() -> None:
    for verdict in (
        measure.budget("c", X[:, :-1], X, X, "f32"),
        measure.units("c", X[:-1], X, "f32", 2),
        measure.integers("c", np.arange(3), np.arange(4)),
        measure.bitwise("c", X[:4], X),
        measure.metamorphic("c", X[:4], X, X, X, "f32"),
    ):
        assert status(verdict) is Status.FAIL, verdict.rule


def test_one_wrong_row_among_many_fails() -> None:
    rng = Rng("rows")
    exact = rng.normal(500, 64)
    own = exact + 1e-3 * rng.normal(500, 64)
    y = exact + 1e-3 * rng.normal(500, 64)
    assert status(measure.budget("c", y, exact, own, "f32")) is Status.PASS
    y[77] = exact[77] + 4e-3 * rng.normal(64)
    ended, reasons = tol.decide(measure.budget("c", y, exact, own, "f32"), "A1")
    assert ended is Status.FAIL and any("a row has" in reason for reason in reasons)


def test_errors_that_lean_to_one_side_fail() -> None:
    rng = Rng("bias")
    exact = rng.normal(100, 64)
    own = exact + 1e-3 * rng.normal(100, 64)
    ended, reasons = tol.decide(measure.budget("c", exact + 9e-4, exact, own, "f32"), "A1")
    assert ended is Status.FAIL and any("lean to one side" in reason for reason in reasons)


def test_an_element_beyond_its_bound_fails() -> None:
    rng = Rng("bound")
    exact = rng.normal(100, 64)
    own = exact + 1e-3 * rng.normal(100, 64)
    y = exact + 1e-3 * rng.normal(100, 64)
    bound = np.full(exact.shape, 1e-2)
    assert status(measure.budget("c", y, exact, own, "f32", bound=bound)) is Status.PASS
    bound[5, 5] = 1e-9
    assert status(measure.budget("c", y, exact, own, "f32", bound=bound)) is Status.FAIL


def test_integers_within_a_half_are_the_integers() -> None:
    assert status(measure.integers("c", [1.4, 2.6], [1, 3])) is Status.PASS
    assert status(measure.integers("c", [1.5, 3.0], [1, 3])) is Status.FAIL
    assert status(measure.integers("c", [np.nan, 3.0], [1, 3])) is Status.FAIL


def test_bytes_tell_negative_zero_and_nan_apart() -> None:
    nan = np.array([np.nan], np.float32)
    assert status(measure.bitwise("c", nan, nan)) is Status.PASS
    assert status(measure.bitwise("c", np.array([-0.0]), np.array([0.0]))) is Status.FAIL
    assert status(measure.bitwise("c", np.zeros(2, np.float32), np.zeros(2))) is Status.FAIL


def test_units_in_the_last_place() -> None:
    exact = X.astype(np.float32).astype(np.float64)
    unit = 2.0 ** np.floor(np.log2(np.abs(exact))) * 2.0**-23
    assert status(measure.units("c", exact + 2 * unit, exact, "f32", 2)) is Status.PASS
    assert status(measure.units("c", exact + 3 * unit, exact, "f32", 2)) is Status.FAIL
    large = np.array([[1e39, 1.0]])
    assert status(measure.units("c", [[np.inf, 1.0]], large, "f32", 2)) is Status.PASS  # beyond the type's range
    assert status(measure.units("c", [[-np.inf, 1.0]], large, "f32", 2)) is Status.FAIL
    assert status(measure.units("c", [[3e38, 1.0]], large, "f32", 2)) is Status.FAIL


def test_codes_may_differ_at_ties_only() -> None:
    exact = np.array([[1.2, 2.5, -3.4999999, 7.0]])
    scales = np.array([0.5])
    assert status(measure.codes("c", [[1, 3, -4, 7]], exact, scales, scales)) is Status.PASS
    assert status(measure.codes("c", [[2, 2, -3, 7]], exact, scales, scales)) is Status.FAIL
    assert status(measure.codes("c", [[1, 2, -3, 7]], exact, scales * 1.4, scales)) is Status.FAIL


def test_amounts_include_their_bounds() -> None:
    assert status(measure.within("c", 3, 3, 3)) is Status.PASS
    assert status(measure.within("c", 2, 3, 4)) is Status.FAIL
    assert status(measure.within("c", float("nan"), 3, 4)) is Status.FAIL
    assert status(measure.holds("c", False, "a thing")) is Status.FAIL


def test_two_runs_agree_within_both_their_budgets() -> None:
    rng = Rng("runs")
    own = X + 1e-3 * rng.normal(8, 64)
    assert status(measure.metamorphic("c", X + 1e-3 * rng.normal(8, 64), X, X, own, "f32")) is Status.PASS
    assert status(measure.metamorphic("c", X + 1e-2 * rng.normal(8, 64), X, X, own, "f32")) is Status.FAIL
    assert status(measure.metamorphic("c", X, X, X, own, "f32")) is Status.PASS


def test_the_lattice_takes_the_worst_and_silence_for_an_error() -> None:
    assert Status.worst([Status.PASS, Status.FAIL, Status.REFUSED_OK]) is Status.FAIL
    assert Status.worst([]) is Status.ERROR
    assert sorted(Status) == [
        Status.PASS, Status.REFUSED_OK, Status.INFO, Status.NOT_RUN, Status.FAIL, Status.ERROR,
    ]  # fmt: skip
