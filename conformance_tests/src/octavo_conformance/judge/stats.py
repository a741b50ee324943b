"""Goodness of fit for samplers, with the power stated.

A test that accepts everything also accepts every right sampler: each one here says how small a shift of probability it
sees, with which chance, and a case in which that chance is too small fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge.floats import F64
from octavo_conformance.judge.tol import ALPHA
from octavo_conformance.suite.verdict import Metrics, Verdict

LEAST_EXPECTED = 10.0
"""Bins that expect fewer are joined, so that the statistic has the distribution it is compared with."""


def chi2_tail(x: float, degrees: float) -> float:
    """P(chi-square with ``degrees`` > x)."""
    return _upper_gamma(degrees / 2, x / 2)


def _upper_gamma(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function: a series below a + 1, a continued fraction above."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while abs(term) > abs(total) * 1e-16:
            n += 1
            term *= x / n
            total += term
        return max(0.0, 1 - front * total)
    tiny = 1e-300
    b = x + 1 - a
    c, d = 1 / tiny, 1 / b
    h = d
    for i in range(1, 10_000):
        numerator = -i * (i - a)
        b += 2
        d = 1 / _away_from_zero(numerator * d + b, tiny)
        c = _away_from_zero(b + numerator / c, tiny)
        h *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * h


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny


def chi2_quantile(tail: float, degrees: float) -> float:
    """The x that chi-square exceeds with probability ``tail``."""
    low, high = 0.0, degrees + 10.0
    while chi2_tail(high, degrees) > tail:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if chi2_tail(middle, degrees) > tail else (low, middle)
    return high


def power(count: int, shift: float, degrees: int, alpha: float = ALPHA) -> float:
    """The chance to reject, at ``alpha``, any distribution that differs by ``shift`` in total variation.

    The statistic is then noncentral with at least 4 * count * shift^2, whichever way the probability moved: a mixture
    of central ones with Poisson weights.
    """
    half = 2 * count * shift * shift
    limit = chi2_quantile(alpha, degrees)
    spread = 12 * math.sqrt(half) + 30
    total = 0.0
    for j in range(max(0, int(half - spread)), int(half + spread)):
        weight = math.exp(j * math.log(half) - half - math.lgamma(j + 1)) if half > 0 else float(j == 0)
        total += weight * chi2_tail(limit, degrees + 2 * j)
    return min(total, 1.0)


def fit(
    case: str, counts: npt.ArrayLike, probabilities: npt.ArrayLike, *, shift: float = 0.05, note: str = ""
) -> Verdict:
    """Rule S: a G-test of counts against probabilities. Something of probability 0 that came up has p = 0."""
    seen, right = np.asarray(counts, np.float64), np.asarray(probabilities, np.float64)
    right = right / right.sum()
    total = float(seen.sum())
    wrong: dict[str, F64] = {
        f"{shift:.0%} moved": total * _moved(right, shift),
        "one outcome never": _without(right) * total,
    }
    if np.abs(right - np.roll(right, 1)).sum() > 4 * shift:
        wrong["outcomes moved"] = total * np.roll(right, 1)
    return Verdict(
        case, "S", _g_test(seen, right, shift), {name: _g_test(np.rint(w), right, shift) for name, w in wrong.items()},
        note,
    )  # fmt: skip


def _moved(right: F64, shift: float) -> F64:
    """As little visible a shift of ``shift`` as there is: half of the probability grows in proportion, half shrinks."""
    order = np.argsort(-right)
    grows = np.zeros(len(right), bool)
    held = 0.0
    for i in order.tolist():
        if held + right[i] <= 0.5 + 1e-12:
            grows[i], held = True, held + right[i]
    if held == 0:
        return np.roll(right, 1)
    rest = 1 - held
    return np.where(grows, right * (1 + shift / held), right * (1 - shift / rest))


def _without(right: F64) -> F64:
    """The likeliest outcome never drawn."""
    left = np.where(np.arange(len(right)) == right.argmax(), 0.0, right)
    return left / left.sum() if left.sum() > 0 else np.roll(right, 1)


def _g_test(seen: F64, right: F64, shift: float) -> Metrics:
    count = float(seen.sum())
    if seen.shape != right.shape or count == 0:
        return {"of": 0, "statistic": math.inf, "degrees": 0, "p": 0.0, "power": 0.0, "shift": shift}
    if np.any(seen[right == 0] > 0):
        return {"of": int(count), "statistic": math.inf, "degrees": 0, "p": 0.0, "power": 1.0, "shift": shift}
    observed, expected = _joined(seen[right > 0], right[right > 0] * count)
    degrees = len(observed) - 1
    if degrees < 1:
        return {"of": int(count), "statistic": 0.0, "degrees": 0, "p": 1.0, "power": 0.0, "shift": shift}
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(observed > 0, observed * np.log(observed / expected), 0.0)
    statistic = 2 * float(terms.sum())
    return {
        "of": int(count), "statistic": statistic, "degrees": degrees, "p": chi2_tail(statistic, degrees),
        "power": power(int(count), shift, degrees), "shift": shift,
    }  # fmt: skip


def _joined(observed: F64, expected: F64) -> tuple[F64, F64]:
    """Bins in falling order of what they expect, the small ones joined until each expects enough."""
    order = np.argsort(-expected, kind="stable")
    bins: list[list[float]] = []
    for i in order.tolist():
        if bins and bins[-1][1] < LEAST_EXPECTED:
            bins[-1][0] += observed[i]
            bins[-1][1] += expected[i]
        else:
            bins.append([float(observed[i]), float(expected[i])])
    if len(bins) > 1 and bins[-1][1] < LEAST_EXPECTED:
        last = bins.pop()
        bins[-1] = [bins[-1][0] + last[0], bins[-1][1] + last[1]]
    table = np.array(bins)
    return table[:, 0], table[:, 1]


def proportion(
    case: str, successes: int, trials: int, probability: float, *, shift: float = 0.05, note: str = ""
) -> Verdict:
    """Rule S for a yes or no with a known probability."""
    return fit(case, [successes, trials - successes], [probability, 1 - probability], shift=shift, note=note)


def family(p_values: Mapping[str, float], alpha: float) -> set[str]:
    """Holm's step-down: the names of those that are rejected when the chance of any false alarm is ``alpha``."""
    rejected: set[str] = set()
    for index, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > alpha / (len(p_values) - index):
            break
        rejected.add(name)
    return rejected
