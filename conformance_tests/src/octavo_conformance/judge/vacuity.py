"""Wrong answers. A case counts only if its rule rejects each of them.

The ones here are made from the truth of any case; a check adds those of its own subject (one visible token dropped, the
window one wider), as float64 arrays beside the truth.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo_conformance.judge.floats import F64

SCALED = 1.02


def plants(truth: F64, own: Mapping[str, F64] | None = None) -> dict[str, F64]:
    """The wrong answers for a truth [rows, columns]: zeros, the mean everywhere, 2 % more, rows and columns moved by
    one, and the check's own.

    Of the general ones those are left out that are the truth itself (a constant's mean, one row moved): they would
    not be wrong.
    """
    finite = np.where(np.isfinite(truth), truth, 0.0)
    general = {
        "zeros": np.zeros_like(finite),
        "mean": np.broadcast_to(finite.mean(-1, keepdims=True), finite.shape).copy(),
        "scaled": finite * SCALED,
        "rows moved": np.roll(finite, 1, 0),
        "columns moved": np.roll(finite, 1, -1),
    }
    wrong = {name: answer for name, answer in general.items() if not np.array_equal(answer, finite)}
    return {**wrong, **(own or {})}
