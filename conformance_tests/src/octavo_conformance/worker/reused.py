"""The arrays of steps, used again and again, as an engine that allocates nothing while it serves has them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import StepInput


class Reused:
    """One array for each name and shape. What was submitted is the caller's again: fill and overwrite it freely."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...]], npt.NDArray[Any]] = {}

    def filled(self, step: StepInput) -> StepInput:
        """``step`` in arrays of this object."""
        own: dict[str, Any] = {}
        for name, array in arrays_of(step).items():
            kept = self._arrays.setdefault((name, array.shape), np.zeros_like(array))
            kept[...] = array
            own[name] = kept
        return replace(step, **own)

    def overwrite(self, value: int) -> None:
        """Set every element of every array."""
        for array in self._arrays.values():
            array.fill(value)


def arrays_of(step: StepInput) -> dict[str, npt.NDArray[Any]]:
    """The arrays that a device is given with a step, by the names of their fields."""
    found = {f.name: getattr(step, f.name) for f in fields(step)}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
