"""Faults at the seams that are made for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.runner.sampler import HostSampler


class Faulty:
    """A sampler at the runner's seam that fails, or spoils the logits, for draws of one seed."""

    def __init__(self, seed: int, *, raises: bool) -> None:
        self._seed, self._raises = seed, raises

    def sample(self, logits: Any, batch: Any) -> Any:
        hit = batch.seed == self._seed
        if hit.any() and self._raises:
            raise RuntimeError("planted")
        logits[batch.row[hit]] = np.nan
        return HostSampler().sample(logits, batch)
