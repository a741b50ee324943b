"""What checks call: arrays in, a `Verdict` out. Every function takes the case's name first.

Arrays are [rows, columns] (or are made so: the last axis is the columns). ``plants`` are wrong answers of the check's
own beside the general ones of `vacuity`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from octavo_conformance.judge import floats, vacuity
from octavo_conformance.judge.floats import F64
from octavo_conformance.judge.tol import COMMON
from octavo_conformance.suite.verdict import Metrics, Verdict

_TINY = 1e-300


def budget(
    case: str,
    values: npt.ArrayLike,
    exact: npt.ArrayLike,
    reference: npt.ArrayLike,
    dtype: str,
    *,
    bound: npt.ArrayLike | None = None,
    plants: Mapping[str, F64] | None = None,
    note: str = "",
) -> Verdict:
    """Rule R. ``values`` is the candidate's, ``exact`` the float64 oracle's, ``reference`` that of `lowp`; ``dtype`` is
    what the output is stored in. ``bound`` allows each element an error, where one can be derived.
    """
    y, truth, own = (_rows(a) for a in (values, exact, reference))
    allowed = None if bound is None else _rows(bound)
    wrong = vacuity.plants(truth, _all_rows(plants))
    return Verdict(
        case,
        "R",
        _budget(y, truth, own, dtype, allowed),
        {name: _budget(answer, truth, own, dtype, allowed) for name, answer in wrong.items()},
        note,
    )


def _budget(y: F64, truth: F64, own: F64, dtype: str, bound: F64 | None) -> dict[str, float | int]:
    if y.shape != truth.shape:
        return {"of": 0, "nonfinite": max(y.size, truth.size), **dict.fromkeys(_BUDGET, float("inf"))}
    finite = np.isfinite(truth)
    mismatched = int((np.isfinite(y) != finite).sum() + (~finite & ~_alike(y, truth)).sum())
    known = finite & np.isfinite(y)
    with np.errstate(invalid="ignore"):
        error, lost = (np.where(known & np.isfinite(a), a - truth, 0.0) for a in (y, own))
    size = np.where(finite, truth, 0.0)
    unit = floats.UNIT[dtype]
    # A right answer is at least rounded once, whatever luck the reference had; and all of a row may be off by one
    # common factor of some float32 roundings (its norm, its softmax), which few rows do not average out: of a norm of
    # 4096 elements the calibration has seen one legal order lose 1.55 times as much as another.
    factor = unit + COMMON * floats.UNIT["f32"]
    rms_floor, largest_floor = factor * _rms(size) / np.sqrt(3), factor * _largest(size)
    rms_reference = max(_rms(lost), rms_floor)
    row_error, row_lost = (np.sqrt(np.mean(e**2, axis=1)) for e in (error, lost))
    # A row is compared with its own budget and everybody's, so that a row in which the reference was lucky is no trap.
    row_size = factor * np.sqrt(np.mean(size**2, axis=1))
    rows = np.sqrt(2.0) * row_error / np.maximum(np.hypot(np.maximum(row_lost, row_size), rms_reference), _TINY)
    metrics: dict[str, float | int] = {
        "of": int(truth.size),
        "nonfinite": mismatched,
        "rms": _rms(error),
        "rms_reference": rms_reference,
        "largest": _largest(error),
        "largest_reference": max(_largest(lost), largest_floor),
        "row_ratio": float(np.quantile(rows, 0.999, method="higher")) if rows.size else float("inf"),
        "bias": float(abs(error.mean())) if error.size else float("inf"),
        "bias_reference": float(abs(lost.mean())) if lost.size else 0.0,
    }
    if bound is not None:
        slack = bound + 2 * unit * np.abs(size)
        metrics["bound_ratio"] = _largest(np.abs(error) / np.maximum(slack, _TINY))
    return metrics


_BUDGET = ("rms", "rms_reference", "largest", "largest_reference", "row_ratio", "bias", "bias_reference")


def units(
    case: str,
    values: npt.ArrayLike,
    exact: npt.ArrayLike,
    dtype: str,
    allowed: float,
    *,
    plants: Mapping[str, F64] | None = None,
    note: str = "",
) -> Verdict:
    """Rule U(allowed): units in the last place of ``dtype``, for ops on single elements. An exact value beyond the
    type's range must come out as infinity.
    """
    y, truth = _rows(values), floats_range(_rows(exact), dtype)
    wrong = vacuity.plants(truth, _all_rows(plants))
    return Verdict(
        case,
        f"U({allowed:g})",
        _units(y, truth, dtype),
        {name: _units(answer, truth, dtype) for name, answer in wrong.items()},
        note,
    )


def floats_range(exact: F64, dtype: str) -> F64:
    """The exact values with those too large for the type as infinities."""
    kept = floats.rounded(exact, dtype)
    return np.where(np.isfinite(kept) | ~np.isfinite(exact), exact, np.copysign(np.inf, exact))


def _units(y: F64, truth: F64, dtype: str) -> Metrics:
    if y.shape != truth.shape:
        return {"of": 0, "nonfinite": max(y.size, truth.size), "ulps": float("inf")}
    finite = np.isfinite(truth) & np.isfinite(y)
    distance = floats.ulps(np.where(finite, y, 0.0), np.where(finite, truth, 0.0), dtype)
    strange = ~finite & ~_alike(y, truth)
    return {"of": int(truth.size), "nonfinite": int(strange.sum()), "ulps": _largest(np.where(finite, distance, 0.0))}


def integers(
    case: str, found: npt.ArrayLike, expected: npt.ArrayLike, *, plants: Mapping[str, npt.ArrayLike] | None = None,
    note: str = "",
) -> Verdict:  # fmt: skip
    """Rule X0: numbers that a probe recovered, which must lie within a half of the expected integers."""
    counts, truth = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    flat = truth.reshape(-1)
    wrong: dict[str, npt.ArrayLike] = {"one more": np.append(flat[:-1], flat[-1:] + 1).reshape(truth.shape)}
    if np.any(truth != 0):
        wrong["zeros"] = np.zeros_like(truth)
    if not np.array_equal(np.roll(flat, 1), flat):
        wrong["moved"] = np.roll(flat, 1).reshape(truth.shape)
    wrong.update(plants or {})
    rejected = {name: _integers(np.asarray(answer, np.float64), truth) for name, answer in wrong.items()}
    return Verdict(case, "X0", _integers(counts, truth), rejected, note)


def _integers(found: F64, expected: F64) -> Metrics:
    if found.shape != expected.shape:
        return {"of": int(expected.size), "wrong": int(max(expected.size, found.size, 1)), "margin": float("inf")}
    distance = np.abs(found - expected)
    return {
        "of": int(expected.size),
        "wrong": int((~(distance < 0.5)).sum()),  # NaN is not below
        "margin": _largest(np.where(np.isnan(distance), np.inf, distance)),
    }


def bitwise(case: str, found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic], *, note: str = "") -> Verdict:
    """Rule B0: same shape, same type, same bytes. NaNs too."""
    return Verdict(case, "B0", {"of": int(expected.size), "differing": _differing(found, expected)}, note=note)


def _differing(found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic]) -> int:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return int(max(expected.size, found.size, 1))
    raw = (np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, a.dtype.itemsize) for a in (found, expected))
    first, second = raw
    return int((first != second).any(-1).sum())


def metamorphic(
    case: str, first: npt.ArrayLike, second: npt.ArrayLike, exact: npt.ArrayLike, reference: npt.ArrayLike, dtype: str,
    *, note: str = "",
) -> Verdict:  # fmt: skip
    """Rule M: two runs of the candidate. Where it declares that they agree to the bit, use `bitwise`.

    The budget is that of R for the same truth, which must itself be tested elsewhere: M sees only that two runs agree.
    """
    a, b, truth, own = (_rows(x) for x in (first, second, exact, reference))
    floor = floats.UNIT[dtype] * _rms(np.where(np.isfinite(truth), truth, 0.0)) / np.sqrt(3)
    allowed = max(_rms(np.where(np.isfinite(own - truth), own - truth, 0.0)), floor)
    wrong = vacuity.plants(b)
    return Verdict(
        case, "M", _apart(a, b, allowed), {name: _apart(answer, b, allowed) for name, answer in wrong.items()}, note
    )


def _apart(a: F64, b: F64, allowed: float) -> Metrics:
    if a.shape != b.shape:
        return {
            "of": 0,
            "nonfinite": max(a.size, b.size),
            "differing": 1,
            "rms": float("inf"),
            "rms_reference": allowed,
        }
    strange = ~(np.isfinite(a) & np.isfinite(b)) & ~_alike(a, b)
    apart = np.where(np.isfinite(a) & np.isfinite(b), a - b, 0.0)
    return {
        "of": int(b.size), "nonfinite": int(strange.sum()), "differing": int((apart != 0).sum()), "rms": _rms(apart),
        "rms_reference": allowed,
    }  # fmt: skip


def codes(
    case: str, found: npt.ArrayLike, exact: npt.ArrayLike, scales: npt.ArrayLike, exact_scales: npt.ArrayLike, *,
    tie: float = 1e-3, note: str = "",
) -> Verdict:  # fmt: skip
    """Rule Q. ``exact`` holds the codes before rounding, in float64; a code may be one off where that lies within
    ``tie`` of a half.
    """
    truth = np.asarray(exact, np.float64)
    truth_scales = np.asarray(exact_scales, np.float64)
    own = _codes(np.asarray(found, np.float64), truth, np.asarray(scales, np.float64), truth_scales, tie)
    right = np.rint(truth)
    wrong = {
        "one more": _codes(right + 1, truth, truth_scales, truth_scales, tie),
        "zeros": _codes(np.zeros_like(right), truth, truth_scales, truth_scales, tie),
        "scaled": _codes(right, truth, truth_scales * 1.02, truth_scales, tie),
    }
    return Verdict(case, "Q", own, wrong, note)


def _codes(found: F64, exact: F64, scales: F64, exact_scales: F64, tie: float) -> Metrics:
    if found.shape != exact.shape or scales.shape != exact_scales.shape:
        return {"of": 0, "wrong": int(max(found.size, exact.size)), "ties": 0, "scale_ulps": float("inf")}
    off = np.abs(found - np.rint(exact))
    near_tie = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < tie
    return {
        "of": int(exact.size), "wrong": int(((off > 0) & ~((off == 1) & near_tie)).sum()),
        "ties": int(((off == 1) & near_tie).sum()), "scale_ulps": _largest(floats.ulps(scales, exact_scales, "f32")),
    }  # fmt: skip


def within(case: str, value: float, low: float, high: float, *, note: str = "") -> Verdict:
    """Rule C: an amount within bounds, both included."""
    return Verdict(case, "C", {"value": value, "low": low, "high": high}, note=note)


def holds(case: str, truth: bool, note: str) -> Verdict:
    """Rule C for a yes or no; ``note`` says what was asked."""
    return within(case, int(truth), 1, 1, note=note)


def _rows(values: npt.ArrayLike) -> F64:
    array = np.asarray(values, np.float64)
    return array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(1, -1)


def _all_rows(plants: Mapping[str, F64] | None) -> dict[str, F64]:
    return {name: _rows(answer) for name, answer in (plants or {}).items()}


def _alike(a: F64, b: F64) -> npt.NDArray[np.bool_]:
    """The same infinity, or both NaN."""
    alike: npt.NDArray[np.bool_] = (np.isnan(a) & np.isnan(b)) | (a == b)
    return alike


def _rms(values: F64) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _largest(values: F64) -> float:
    return float(np.abs(values).max()) if values.size else 0.0
