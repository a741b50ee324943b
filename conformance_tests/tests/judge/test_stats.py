"""Statistical tests: known values, the false alarms and the power that they claim."""

from __future__ import annotations

import numpy as np
import pytest

from octavo_conformance.judge import stats, tol
from octavo_conformance.suite.status import Status


@pytest.mark.parametrize(
    ("x", "degrees", "tail"),
    [
        (3.841458820694124, 1, 0.05),
        (18.307038053275146, 10, 0.05),
        (124.3421134, 100, 0.05),
        (6.634896601021213, 1, 0.01),
        (0.0, 5, 1.0),
        (23.928, 1, 1e-6),
    ],
)
def test_the_tail_of_chi_square(x: float, degrees: int, tail: float) -> None:
    assert stats.chi2_tail(x, degrees) == pytest.approx(tail, rel=1e-3)


def test_the_quantile_is_the_inverse_of_the_tail() -> None:
    for degrees in (1, 7, 63, 500):
        assert stats.chi2_tail(stats.chi2_quantile(1e-6, degrees), degrees) == pytest.approx(1e-6, rel=1e-6)


def test_power_is_what_simulation_finds() -> None:
    rng = np.random.default_rng(0)
    right = np.full(16, 1 / 16)
    shifted = np.where(np.arange(16) < 8, right * 1.1, right * 0.9)  # 5 % of the mass moved
    limit = stats.chi2_quantile(1e-3, 15)
    counts = rng.multinomial(6000, shifted, 3000)
    statistic = 2 * (counts * np.log(counts / (6000 / 16))).sum(1)
    assert stats.power(6000, 0.05, 15, 1e-3) == pytest.approx((statistic > limit).mean(), abs=0.03)


def test_a_right_sampler_passes_and_a_slightly_wrong_one_fails() -> None:
    rng = np.random.default_rng(1)
    right = rng.dirichlet(np.full(64, 2.0))
    count = 1 << 16
    verdict = stats.fit("c", np.bincount(rng.choice(64, count, p=right), minlength=64), right)
    assert tol.decide(verdict, "A1") == (Status.PASS, [])
    hotter = right**0.9 / (right**0.9).sum()
    verdict = stats.fit("c", np.bincount(rng.choice(64, count, p=hotter), minlength=64), right)
    assert tol.decide(verdict, "A1")[0] is Status.FAIL


def test_p_values_of_right_samplers_are_uniform() -> None:
    rng = np.random.default_rng(2)
    right = np.array([0.5, 0.25, 0.15, 0.1])
    p = np.array([stats.fit("c", rng.multinomial(5000, right), right).metrics["p"] for _ in range(400)])
    assert 0.4 < p.mean() < 0.6
    assert ((p < 0.1).mean(), (p > 0.9).mean()) == (pytest.approx(0.1, abs=0.06), pytest.approx(0.1, abs=0.06))


def test_too_few_draws_fail_for_want_of_power() -> None:
    ended, reasons = tol.decide(stats.fit("c", [50, 50], [0.5, 0.5]), "A1")
    assert ended is Status.FAIL
    assert "power" in reasons[0]


def test_what_cannot_happen_must_not_happen() -> None:
    verdict = stats.fit("c", [50_000, 49_999, 1], [0.5, 0.5, 0.0])
    assert tol.decide(verdict, "A1")[0] is Status.FAIL
    assert tol.decide(stats.fit("c", [50_100, 49_900, 0], [0.5, 0.5, 0.0]), "A1")[0] is Status.PASS


def test_holm_rejects_step_by_step() -> None:
    p = {"a": 0.001, "b": 0.02, "c": 0.9}
    assert stats.family(p, 0.05) == {"a", "b"}
    assert stats.family(p, 0.002) == set()
