"""The rules: from the measurements of a case to its status. Pure, so that anybody can recompute a verdict offline.

    B0     bytes are equal
    X0     integers recovered from a probe are the expected ones
    U(k)   at most k units in the last place from the truth, and not finite in the same places
    R      error budget: the candidate's error over that of a reference of the same precision, both against float64
    Q      codes are the expected ones, but for ties; scales to one unit in the last place
    S      a hypothesis test does not reject, and had the power to
    C      a count or an amount lies within its bounds
    E      what must be refused raises the typed error that names it
    M      two runs of the candidate agree: to the bit, or within the budget of R

Nothing is a pass by default: a case over no elements, a number that is missing or NaN, and a plant that is accepted all
end badly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo_conformance.suite.status import Status
from octavo_conformance.suite.verdict import Metrics, Verdict


@dataclass(frozen=True)
class Tier:
    """How much worse than the reference a candidate may be: factors on rms, maximum and row, and on the bound."""

    rms: float
    largest: float
    row: float
    bound: float


TIERS: Mapping[str, Tier] = {
    "A0": Tier(2.0, 4.0, 4.0, 2.0),
    "A1": Tier(1.5, 2.0, 2.5, 1.0),
    "A2": Tier(1.2, 1.5, 1.5, 1.0),
}
"""Accuracy tiers, from the least to the most strict. A1 is the default; what a platform was judged by is on its
certificate."""

ALPHA = 1e-6
"""Chance that a right candidate fails one statistical test."""
POWER = 0.99
"""Chance that a statistical test must have to see the shift that it names."""
BIAS = 6.0
"""Standard errors that the mean error may lie from zero."""

NOISE = 3.0
"""Standard errors by which the ratio of two rms of few elements may exceed its limit by chance."""

COMMON = 16.0
"""Float32 roundings by which all of a row may be off together: a norm, a softmax, a score of many terms."""

Reasons = list[str]
_Judge = Callable[[Metrics, Tier, float], Reasons]


def decide(verdict: Verdict, tier: str) -> tuple[Status, Reasons]:
    """How a case ended, and why if badly: one sentence a reason."""
    name, parameter = parse_rule(verdict.rule)
    judge, limits = _JUDGES[name], TIERS[tier]
    reasons = _judged(judge, verdict.metrics, limits, parameter)
    if reasons:
        return Status.FAIL, reasons
    if name in NEEDS_PLANTS and not verdict.plants:
        return Status.ERROR, ["vacuous: no wrong answer was tried"]
    accepted = [plant for plant, metrics in verdict.plants.items() if not _judged(judge, metrics, limits, parameter)]
    if accepted:
        return Status.ERROR, [f"vacuous: {', '.join(accepted)} would pass"]
    return Status.PASS, []


def parse_rule(rule: str) -> tuple[str, float]:
    """("U", 4.0) of "U(4)"; (name, 0.0) of a rule without parameter. Raises ValueError for an unknown one."""
    name, _, rest = rule.partition("(")
    if name not in _JUDGES or (bool(rest) != (name in PARAMETRIC)):
        raise ValueError(f"there is no rule {rule!r}; there are {', '.join(_JUDGES)}, with U(k) for k units")
    return name, float(rest.removesuffix(")")) if rest else 0.0


def _judged(judge: _Judge, metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    if any(isinstance(value, float) and math.isnan(value) for value in metrics.values()):
        return [f"{name} is not a number" for name, value in metrics.items() if math.isnan(value)]
    try:
        return judge(metrics, tier, parameter)
    except KeyError as missing:
        return [f"{missing} was not measured"]


def _empty(metrics: Metrics) -> Reasons:
    return [] if metrics["of"] > 0 else ["nothing was compared"]


def _bitwise(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    wrong = metrics["differing"]
    return _empty(metrics) + ([f"{wrong} of {metrics['of']} elements differ"] if wrong else [])


def _exact(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    wrong = metrics["wrong"]
    return _empty(metrics) + ([f"{wrong} of {metrics['of']} are not the expected ones"] if wrong else [])


def _units(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    reasons = _empty(metrics) + _finite(metrics)
    if metrics["ulps"] > parameter:
        reasons.append(f"{metrics['ulps']:.3g} units in the last place from the truth, {parameter:g} allowed")
    return reasons


def _finite(metrics: Metrics) -> Reasons:
    count = metrics["nonfinite"]
    return [f"{count} elements are infinite or NaN where the truth is not, or the reverse"] if count else []


def _budget(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    reasons = _empty(metrics) + _finite(metrics)
    few = 1 + NOISE / math.sqrt(max(metrics["of"], 1))
    for what, error, allowed, factor in (
        ("rms error", "rms", "rms_reference", tier.rms * few),
        ("largest error", "largest", "largest_reference", tier.largest),
    ):
        limit = factor * metrics[allowed]
        if metrics[error] > limit:
            ratio = metrics[error] / metrics[allowed] if metrics[allowed] else math.inf
            reasons.append(f"{what} {metrics[error]:.3g} is {ratio:.3g} times the reference's, {factor:g} allowed")
    if metrics["row_ratio"] > tier.row:
        reasons.append(f"a row has {metrics['row_ratio']:.3g} times the reference's error, {tier.row:g} allowed")
    limit = max(BIAS * max(metrics["rms"], metrics["rms_reference"]) / math.sqrt(max(metrics["of"], 1)),
                2 * metrics["bias_reference"])  # fmt: skip
    if metrics["bias"] > limit:
        reasons.append(f"errors lean to one side by {metrics['bias']:.3g}, {limit:.3g} allowed")
    if "bound_ratio" in metrics and metrics["bound_ratio"] > tier.bound:
        reasons.append(f"an element is {metrics['bound_ratio']:.3g} times its bound away, {tier.bound:g} allowed")
    return reasons


def _codes(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    reasons = _empty(metrics)
    if metrics["wrong"]:
        reasons.append(f"{metrics['wrong']} of {metrics['of']} codes are wrong, ties not counted")
    if metrics["scale_ulps"] > 1:
        reasons.append(f"a scale is {metrics['scale_ulps']:.3g} units in the last place off, 1 allowed")
    return reasons


def _statistic(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    reasons = _empty(metrics)
    if metrics["p"] < ALPHA:
        reasons.append(f"p = {metrics['p']:.3g}, below {ALPHA:g}: this is not the distribution")
    if metrics["power"] < POWER:
        reasons.append(f"the test has a power of {metrics['power']:.3g} only, {POWER:g} wanted")
    return reasons


def _within(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    value, low, high = metrics["value"], metrics["low"], metrics["high"]
    return [] if low <= value <= high else [f"{value:g} is not within {low:g} … {high:g}"]


def _typed_error(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    if not metrics["raised"]:
        return ["nothing was raised"]
    reasons = [] if metrics["typed"] else ["what was raised has not the promised type"]
    return reasons + ([] if metrics["named"] else ["the message does not name what was refused"])


def _metamorphic(metrics: Metrics, tier: Tier, parameter: float) -> Reasons:
    """Two runs, each within its budget of the truth, lie within the sum of both from each other."""
    reasons = _empty(metrics) + _finite(metrics)
    if metrics["differing"] and metrics["rms"] > 2 * tier.rms * metrics["rms_reference"]:
        reasons.append(
            f"two runs that must agree are {metrics['rms']:.3g} apart (rms), "
            f"{2 * tier.rms * metrics['rms_reference']:.3g} allowed"
        )
    return reasons


_JUDGES: Mapping[str, _Judge] = {
    "B0": _bitwise,
    "X0": _exact,
    "U": _units,
    "R": _budget,
    "Q": _codes,
    "S": _statistic,
    "C": _within,
    "E": _typed_error,
    "M": _metamorphic,
}
NEEDS_PLANTS = frozenset({"X0", "U", "R", "Q", "S", "M"})
"""Rules whose cases must reject wrong answers at run time. Bytes that must be equal need none, amounts and errors have
none."""
PARAMETRIC = frozenset({"U"})
