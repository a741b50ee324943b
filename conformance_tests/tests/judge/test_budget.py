"""The error budget: what a right kernel may do passes, what the documented faults do does not.

The faults are those that tolerances elsewhere let through: a future token admitted among thousands, scores or sums kept
in 16 bits, a scale that is 2 % off.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pytest

from octavo_conformance.judge import lowp, measure, oracle64, tol
from octavo_conformance.judge.floats import rounded
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng
from octavo_conformance.suite.status import Status

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
SPEC = Attention(heads=1, kv_heads=1, head_dim=64, scale=0.125)
QUERIES = 48


def inputs(n: int, seed: int) -> tuple[F32, F32, F32, npt.NDArray[np.int64]]:
    rng = Rng("budget", n, seed)
    q, k, v = (rounded(rng.normal(n, 64), "bf16") for _ in range(3))
    return q, k, v, np.arange(max(1, n - QUERIES), n)


@lru_cache
def judged(n: int, seed: int) -> tuple[F64, F32]:
    """Truth and yardstick of a case."""
    q, k, v, at = inputs(n, seed)
    return (
        oracle64.attention(q, k, v, SPEC, queries=at),
        lowp.attention(q, k, v, SPEC, queries=at, dtype="bf16", kv_dtype="bf16"),
    )


def flash(
    q: F32, k: F32, v: F32, at: npt.NDArray[np.int64], *, tile: int, backwards: bool = False, ahead: int = 0,
    scale: float = 0.125, scores_in: str = "f32", weights_in: str = "bf16", sums_in: str = "f32",
) -> F32:  # fmt: skip
    """Online softmax in tiles, as kernels do it, each of its choices a parameter."""
    out = np.zeros((len(at), 64), np.float32)
    total, peak = np.zeros(len(at), np.float32), np.full(len(at), -np.inf, np.float32)
    starts = list(range(0, len(k), tile))
    for start in reversed(starts) if backwards else starts:
        columns = np.arange(start, min(start + tile, len(k)))
        scores = rounded((q[at] @ k[columns].T) * np.float32(scale), scores_in)
        scores = np.where(columns[None, :] <= at[:, None] + ahead, scores, np.float32(-np.inf))
        new = np.maximum(peak, scores.max(1))
        safe = np.where(np.isfinite(new), new, np.float32(0))
        shrink = np.exp(np.where(np.isfinite(peak), peak - safe, np.float32(-np.inf)))
        shares = np.exp(scores - safe[:, None])
        total = total * shrink + shares.sum(1)
        out = rounded(out * shrink[:, None] + rounded(shares, weights_in) @ v[columns], sums_in)
        peak = new
    return rounded(out / total[:, None], "bf16")


def status(n: int, made: Callable[..., F32], tier: str = "A1", **options: object) -> tuple[Status, list[str]]:
    """The worst of three seeds."""
    worst: tuple[Status, list[str]] = (Status.PASS, [])
    for seed in range(3):
        verdict = measure.budget("case", made(*inputs(n, seed), **options), *judged(n, seed), "bf16")
        worst = max(worst, tol.decide(verdict, tier), key=lambda s: s[0])
    return worst


@pytest.mark.parametrize("n", [64, 512, 4096])
@pytest.mark.parametrize(
    "legal",
    [
        {"tile": 16},
        {"tile": 64},
        {"tile": 128, "backwards": True},
        {"tile": 128, "weights_in": "f32"},
    ],
)
def test_a_legal_kernel_passes(n: int, legal: dict[str, object]) -> None:
    assert status(n, flash, **legal) == (Status.PASS, [])


@pytest.mark.parametrize("n", [512, 4096])
@pytest.mark.parametrize(
    "fault",
    [
        {"scores_in": "bf16"},
        {"sums_in": "bf16"},
        {"scale": 0.125 * 1.02},
        {"ahead": 1},
        {"ahead": -1},
    ],
)
def test_a_fault_fails(n: int, fault: dict[str, object]) -> None:
    ended, reasons = status(n, flash, tile=64, **fault)
    assert ended is Status.FAIL
    assert any("times the reference's" in reason for reason in reasons)


def gemm(x: F32, w: F32, *, parts: int = 1, partials_in: str = "f32", sums_in: str = "f32") -> F32:
    """A split-K product."""
    total = np.zeros((len(x), len(w)), np.float32)
    for columns in np.array_split(np.arange(x.shape[1]), parts):
        total = rounded(total + rounded(x[:, columns] @ w[:, columns].T, partials_in), sums_in)
    return rounded(total, "bf16")


@pytest.mark.parametrize(
    ("right", "made"),
    [
        (True, lambda x, w: gemm(x, w)),
        (True, lambda x, w: gemm(x, w, parts=8)),
        (True, lambda x, w: rounded(x[:, ::-1] @ w[:, ::-1].T, "bf16")),
        (False, lambda x, w: gemm(x, w, parts=64, sums_in="bf16")),
        (False, lambda x, w: rounded(gemm(x, w) * 1.005, "bf16")),
        (False, lambda x, w: gemm(x[:, 8:], w[:, 8:])),
        (False, lambda x, w: np.zeros((len(x), len(w)), np.float32)),
        (False, lambda x, w: np.roll(gemm(x, w), 1, 0)),
    ],
)
def test_products_of_4096_terms(right: bool, made: Callable[[F32, F32], F32]) -> None:
    rng = Rng("gemm")
    x, w = rounded(rng.normal(32, 4096), "bf16"), rounded(rng.normal(48, 4096), "bf16")
    (exact,), (own,) = oracle64.linear(x, [w]), lowp.linear(x, [w], dtype="bf16")
    ended, reasons = tol.decide(measure.budget("case", made(x, w), exact, own, "bf16"), "A1")
    assert ended is (Status.PASS if right else Status.FAIL), reasons


def test_a_candidate_that_is_better_than_the_reference_passes_the_strictest_tier() -> None:
    exact, own = judged(512, 0)
    assert tol.decide(measure.budget("case", rounded(exact, "bf16"), exact, own, "bf16"), "A2") == (Status.PASS, [])


def test_looser_tiers_let_more_through() -> None:
    """The tolerances matter: twice as wide, they would not see what they see."""
    exact, own = judged(512, 0)
    worse = (exact + 1.8 * (own - exact)).astype(np.float32)
    verdict = measure.budget("case", worse, exact, own, "bf16")
    assert tol.decide(verdict, "A0")[0] is Status.PASS
    assert tol.decide(verdict, "A1")[0] is Status.FAIL


def test_int8_codes_that_are_shared_leave_a_budget_of_float_size() -> None:
    """Inputs that the codes hold exactly: the quantisation cancels, and a scale that is 0.1 % off is seen."""
    rng = Rng("shared codes")
    codes = rng.integers(-127, 128, 32, 256)
    codes[:, ::32] = 127
    x, w = codes * 2.0**-6, rounded(rng.normal(48, 256), "f32")
    (exact,), (own,) = oracle64.linear(x, [w]), lowp.linear(x, [w], dtype="f32", stored_as="int8x32")
    right = measure.budget("case", (x.astype(np.float32) @ w.T), exact, own, "f32")
    assert tol.decide(right, "A1") == (Status.PASS, [])
    assert tol.decide(measure.budget("case", exact * 1.001, exact, own, "f32"), "A1")[0] is Status.FAIL


def test_int8_codes_of_any_input_widen_the_budget_by_what_they_lose() -> None:
    rng = Rng("own codes")
    x, w = rounded(rng.normal(32, 256), "f32"), rounded(rng.normal(48, 256), "f32")
    (exact,), (own,) = oracle64.linear(x, [w]), lowp.linear(x, [w], dtype="f32", stored_as="int8x32")
    plain = lowp.linear(x, [w], dtype="f32")[0]
    assert tol.decide(measure.budget("case", own, exact, own, "f32"), "A2") == (Status.PASS, [])
    assert tol.decide(measure.budget("case", own, exact, plain, "f32"), "A0")[0] is Status.FAIL
    assert tol.decide(measure.budget("case", own * 1.02, exact, own, "f32"), "A0")[0] is Status.FAIL
