"""rms_norm and layer_norm against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from graph.op_calls import Array, evaluate

from octavo.graph import OPS
from octavo.graph.ops import Case

EPS = 1e-2  # large enough to be seen


def rms(x: Array, w: Array, offset: float) -> Array:
    """Each run of ``len(w)`` elements on its own."""
    out, n = np.empty_like(x), len(w)
    for t in range(x.shape[0]):
        for start in range(0, x.shape[1], n):
            run = x[t, start : start + n]
            scale = 1 / math.sqrt(sum(e * e for e in run) / n + EPS)
            for i in range(n):
                out[t, start + i] = run[i] * scale * (offset + w[i])
    return out


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("width", [12, 4], ids=["whole", "per head"])
def test_rms_norm(width: int, offset: float) -> None:
    rng = np.random.default_rng(0)
    x, residual, w = rng.standard_normal((5, 12)), rng.standard_normal((5, 12)), rng.standard_normal(width)
    attrs = {"eps": EPS, "offset": offset}
    (plain,) = evaluate(OPS["rms_norm"], Case([x], [w], attrs))
    np.testing.assert_allclose(plain, rms(x, w, offset), rtol=1e-12)
    normed, total = evaluate(OPS["rms_norm"], Case([x, residual], [w], attrs))
    assert np.array_equal(total, x + residual)
    np.testing.assert_allclose(normed, rms(x + residual, w, offset), rtol=1e-12)


def test_rms_norm_of_zeros_is_zero() -> None:
    (found,) = evaluate(OPS["rms_norm"], Case([np.zeros((2, 4))], [np.ones(4)], {"eps": 1e-6}), np.float32)
    assert not found.any()


@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(bias: bool) -> None:
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((5, 6)) + 3, rng.standard_normal(6), rng.standard_normal(6)
    (found,) = evaluate(OPS["layer_norm"], Case([x], [w, b] if bias else [w], {"eps": EPS, "bias": bias}))
    for t in range(5):
        mean = sum(x[t]) / 6
        deviation = math.sqrt(sum((e - mean) ** 2 for e in x[t]) / 6 + EPS)
        expected = [(e - mean) / deviation * w[i] + (b[i] if bias else 0) for i, e in enumerate(x[t])]
        np.testing.assert_allclose(found[t], expected, rtol=1e-12)
