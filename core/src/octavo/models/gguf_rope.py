"""Llama 3's rope scaling, from what a GGUF keeps of it.

The converter does not store the numbers of ``rope_scaling``; it stores the tensor ``rope_freqs.weight``, by
whose elements the rope frequencies are divided. The numbers that every published model uses are
recognised, so that a GGUF gives the same graph as its safetensors; any other table is passed on as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.graph.rope import Llama3Scaling, RopeSpec, inverse_frequencies

_LOW, _HIGH, _CONTEXT = 1.0, 4.0, 8192  # of Llama 3.1, 3.2 and 3.3; only the factor differs (8 or 32)
_TOLERANCE = 1e-5  # relative; the stored divisors are float32, computed from float32 frequencies


def rope_scaling(divisors: npt.NDArray[np.float32], theta: float, head_dim: int) -> dict[str, Any]:
    """``rope_parameters`` (without rope_theta) for the stored divisors [head_dim / 2].

    ``rope_type`` is ``default``, ``llama3``, or Octavo's own ``factors`` with a list ``factors``.
    CheckpointError if their number does not fit the heads or one of them is no divisor.
    """
    if divisors.shape != (head_dim // 2,):
        raise CheckpointError(
            f"rope_freqs.weight has shape {divisors.shape}, expected ({head_dim // 2},) for heads of {head_dim}"
        )
    if not np.all(np.isfinite(divisors) & (divisors > 0)):
        raise CheckpointError("rope_freqs.weight holds a value that frequencies cannot be divided by")
    factor = float(divisors.max())
    if np.all(divisors == 1.0):
        return {"rope_type": "default"}
    scaled = inverse_frequencies(RopeSpec(head_dim, theta, Llama3Scaling(factor, _LOW, _HIGH, _CONTEXT)))
    if np.allclose(inverse_frequencies(RopeSpec(head_dim, theta)) / scaled, divisors, rtol=_TOLERANCE, atol=0.0):
        return {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": _LOW,
            "high_freq_factor": _HIGH,
            "original_max_position_embeddings": _CONTEXT,
        }
    return {"rope_type": "factors", "factors": [float(value) for value in divisors]}
