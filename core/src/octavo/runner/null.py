"""The null executable: a device that computes nothing and always answers token 0.

With it the core runs without a model, which is how its own time per step is measured (``octavo bench scheduler``).
"""

from __future__ import annotations

import numpy as np

from octavo.platform import KVStore, StepInput, StepOutput
from octavo.platform.step import Samples


class NullExecutable:
    """Meets `octavo.platform.Executable`."""

    def submit(self, step: StepInput, kv: KVStore) -> int:
        """Remember how many tokens were asked for."""
        return step.sampling.draws

    def collect(self, ticket: int) -> StepOutput:
        """That many zeros."""
        return StepOutput(samples=Samples(np.zeros(ticket, np.int32), np.zeros(ticket, np.bool_)))
