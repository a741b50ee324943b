"""How far a kernel may be from the truth: error budgets, not tolerances.

The truth is float64 on the very numbers the kernel was given. The yardstick is a second computation at the kernel's own
precision, in numpy: what it loses, the kernel may lose, times a small factor. A tolerance would have to be as wide as
the worst input; a budget is as wide as this one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from native.numbers16 import F32, F64

_RMS, _LARGEST, _ROW, _BIAS = 1.5, 2.0, 2.5, 6.0


def check(values: F32, exact: F64, reference: F32) -> None:
    """AssertionError if `values` is further from `exact` than its budget allows, or if a wrong answer would pass too.

    Shapes [rows, columns], alike; `reference` is the yardstick.
    """
    found = _excesses(values, exact, reference)
    assert not found, "; ".join(found)
    finite = np.where(np.isfinite(exact), exact, 0.0)
    wrong = {
        "zeros": np.zeros_like(finite),
        "two percent more": finite * 1.02,
        "the columns shifted": np.roll(finite, 1, 1),
    }
    for name, mutant in wrong.items():
        assert _excesses(mutant.astype(np.float32), exact, reference), f"this case is vacuous: {name} would pass"


def within(values: F32, exact: F64, bound: npt.ArrayLike) -> None:
    """AssertionError unless every element lies within its own bound, and is finite where the truth is."""
    assert np.array_equal(np.isfinite(values), np.isfinite(exact)), "not finite in other places than the truth"
    with np.errstate(invalid="ignore"):
        excess = np.abs(values.astype(np.float64) - exact) > bound
    assert not excess.any(), (
        f"{excess.sum()} of {excess.size} elements are beyond their bound; the first, {np.argwhere(excess)[0]}: "
        f"{values[excess][0]!r} for {exact[excess][0]!r}, bound {np.broadcast_to(bound, excess.shape)[excess][0]!r}"
    )


def _excesses(values: F32, exact: F64, reference: F32) -> list[str]:
    finite = np.isfinite(exact)
    if not np.array_equal(np.isfinite(values), finite):
        return ["not finite in other places than the truth"]
    error = np.where(finite, values.astype(np.float64) - exact, 0.0)
    allowed = np.where(finite, reference.astype(np.float64) - exact, 0.0)
    found = []
    if _rms(error) > _RMS * _rms(allowed):
        found.append(
            f"rms error {_rms(error):.3g} is {_rms(error) / _rms(allowed):.3g} times the yardstick's, {_RMS} allowed"
        )
    largest, most = np.abs(error).max(), np.abs(allowed).max()
    if largest > _LARGEST * most:
        found.append(f"largest error {largest:.3g} is {largest / most:.3g} times the yardstick's, {_LARGEST} allowed")
    if error.shape[1] >= 64:
        rows = np.sqrt((error**2).mean(1)) / np.maximum(np.sqrt((allowed**2).mean(1)), 1e-300)
        if rows.max() > _ROW:
            found.append(f"row {rows.argmax()} has {rows.max():.3g} times the yardstick's rms error, {_ROW} allowed")
    bias, own = abs(error.mean()), abs(allowed.mean())
    if bias > max(_BIAS * _rms(error) / np.sqrt(error.size), 2 * own):
        found.append(f"errors lean to one side: mean {bias:.3g} at rms {_rms(error):.3g}")
    return found


def _rms(values: F64) -> float:
    return float(np.sqrt((values**2).mean()))
