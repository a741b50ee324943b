"""Activations times packed weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native import budget
from native.kernels import TILE, KernelSet, Quantised
from native.numbers16 import F32, F64, to_bf16
from native.weights import (
    BLOCK,
    FORMATS,
    HALVES,
    INTEGERS,
    PLAIN,
    QUANTIZED,
    Weights,
    integers,
    plain_weights,
    random_weights,
    read,
    unit,
)
from native.yardstick import ULP, activations, exact_product, magnitude, plain_product, product

few = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

Fed = Quantised | npt.NDArray[np.uint16] | F32


def feed(kernels: KernelSet, format: str, x: F32) -> Fed:
    """The activations as the format's kernel takes them, made by the set itself; some quantized groups are refined."""
    if format in QUANTIZED:
        return kernels.refine(x, kernels.quantise(x), 1.2)
    return kernels.to_bf16(x) if format == "bf16" else x


def truth(weights: Weights, x: Fed) -> tuple[F64, F64]:
    """(the product of the very numbers in float64, the sum of its terms' sizes)."""
    if isinstance(x, Quantised):
        return exact_product(weights, x), magnitude(weights, x)
    values = activations(x)
    return values @ weights.values.T, np.abs(values) @ np.abs(weights.values).T


def some_rows(x: Fed, index: slice | list[int]) -> Fed:
    return x.rows(index) if isinstance(x, Quantised) else np.ascontiguousarray(x[index])


@pytest.mark.parametrize("format", FORMATS)
def test_the_product_keeps_the_error_budget(kernels: KernelSet, format: str) -> None:
    rng = np.random.default_rng(7)
    weights = random_weights(rng, format, 96, 1024)
    x = rng.standard_normal((24, 1024)).astype(np.float32)
    x[rng.random(x.shape) < 0.001] *= 30  # outliers
    fed = feed(kernels, format, x)
    y = kernels.matmul(weights, kernels.pack(weights), fed)
    exact, _ = truth(weights, fed)
    reference = (
        product(weights, fed)
        if isinstance(fed, Quantised)
        else plain_product(weights, activations(fed).astype(np.float32))
    )
    budget.check(y, exact, reference)


@pytest.mark.parametrize("format", FORMATS)
@given(
    rows=st.integers(1, 40),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 12),
    tail=st.integers(0, 31),
    seed=st.integers(0, 2**32 - 1),
)
@few
def test_any_shape_stays_within_the_bound_of_rounding(
    kernels: KernelSet, format: str, rows: int, outputs: int, groups: int, tail: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = unit(format) * (groups if unit(format) == 32 else 1 + groups % 3)
    inputs += tail if format in PLAIN else 0
    weights = random_weights(rng, format, outputs, inputs)
    x = (rng.standard_normal((rows, inputs)) * 10.0 ** rng.integers(-6, 6, (rows, 1))).astype(np.float32)
    fed = feed(kernels, format, _padded(x) if format == "bf16" else x)
    y = kernels.matmul(weights, kernels.pack(weights), fed)
    exact, size = truth(weights, some_columns(fed, inputs))
    terms = inputs if format in PLAIN else 3 * inputs // 32
    budget.within(y[:, :outputs], exact, (terms + 2) * ULP / 2 * size + 1e-37)
    assert not y[:, outputs:].any(), "outputs beyond the last are zero"


def _padded(x: F32) -> F32:
    """Rows of a whole number of groups, as the engine's buffers are, with what an earlier step may have left there."""
    rows, inputs = x.shape
    out = np.full((rows, -(-inputs // 32) * 32), np.nan, np.float32)
    out[:, :inputs] = x
    return out


def some_columns(x: Fed, columns: int) -> Fed:
    return x if isinstance(x, Quantised) else np.ascontiguousarray(x[:, :columns])


@pytest.mark.parametrize("format", QUANTIZED)
def test_integers_come_out_exact(kernels: KernelSet, format: str) -> None:
    """Scales of one and whole activations: every sum fits a float's 24 bits, so nothing may be rounded."""
    rng = np.random.default_rng(8)
    weights = random_weights(rng, format, 48, 256, scale=1.0)
    if format in ("q4_k", "q5_k", "q6_k"):  # sub-scales are whole numbers too, up to 63 or 127
        x = rng.integers(-3, 4, (9, 256)).astype(np.float32)
        x[:, ::32] = 127
        x[:, 1::32] = -127
    else:
        x = rng.integers(-127, 128, (9, 256)).astype(np.float32)
        x[:, ::32] = 127
    fed = kernels.quantise(x)
    assert (fed.scales == 1).all() and (fed.codes == x).all()
    y = kernels.matmul(weights, kernels.pack(weights), fed)
    assert np.abs(exact_product(weights, fed)).max() > 1000
    assert (magnitude(weights, fed).max() < 2**24) or format in ("q5_k", "q6_k")
    assert np.array_equal(y, exact_product(weights, fed))


@pytest.mark.parametrize("format", QUANTIZED)
@pytest.mark.parametrize("code", ["lowest", "highest"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_codes_do_not_saturate(kernels: KernelSet, format: str, code: str, sign: int) -> None:
    """All weights of one extreme code, all activations 127: pairs of products are as large as they get."""
    weights = _extreme(format, code)
    fed = kernels.quantise(np.full((5, 512), 127.0 * sign, np.float32))
    y = kernels.matmul(weights, kernels.pack(weights), fed)
    assert np.array_equal(y, exact_product(weights, fed))


def _extreme(format: str, code: str) -> Weights:
    """[32, 512] of the lowest or highest code, as far from its zero point as a format allows."""
    if format in INTEGERS:
        groups = 1 if format == "int8" else 512 // unit(format)
        value, zero = (0, 16) if code == "lowest" else (255 if format == "int8" else 15, 0)
        return integers(
            format, np.full((32, 512), value), np.ones((32, groups), np.float32), np.full((32, groups), zero)
        )
    elements, size = BLOCK[format]
    blocks = np.full((32, 512 // elements, size), 0x00 if code == "lowest" else 0xFF, np.uint8)
    if format == "q8_0":
        blocks[...] = 0x80 if code == "lowest" else 0x7F
    if format in ("q4_k", "q5_k"):
        blocks[:, :, 4:16] = 0x41  # small sub-scales and minimums, so that the sum stays exact
    if format == "q6_k":
        blocks[:, :, 192:208] = 1
    for at in HALVES[format]:
        blocks[:, :, at : at + 2] = np.array([1.0 if at != 2 else 0.0], "<f2").view(np.uint8)
    return read(format, blocks.reshape(32, -1))


@pytest.mark.parametrize("format", FORMATS)
@given(rows=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@few
def test_a_row_is_the_same_bits_whatever_comes_with_it(kernels: KernelSet, format: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = random_weights(rng, format, 33, 512)
    packed = kernels.pack(weights)
    fed = feed(kernels, format, rng.standard_normal((rows, 512)).astype(np.float32))
    together = kernels.matmul(weights, packed, fed)
    order = rng.permutation(rows)
    assert (
        kernels.matmul(weights, packed, some_rows(fed, list(order))).tobytes()
        == np.ascontiguousarray(together[order]).tobytes()
    )
    for row in {0, rows // 2, rows - 1}:
        alone = kernels.matmul(weights, packed, some_rows(fed, slice(row, row + 1)))
        assert alone.tobytes() == together[row].tobytes()
    cut = int(rng.integers(0, rows))
    parts = [kernels.matmul(weights, packed, some_rows(fed, part)) for part in (slice(0, cut), slice(cut, rows))]
    assert np.concatenate(parts).tobytes() == together.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_tiles_apart_are_the_bits_of_tiles_together(kernels: KernelSet, format: str) -> None:
    rng = np.random.default_rng(9)
    weights = random_weights(rng, format, 5 * TILE - 3, 256)
    packed = kernels.pack(weights)
    fed = feed(kernels, format, rng.standard_normal((7, 256)).astype(np.float32))
    together = kernels.matmul(weights, packed, fed)
    for first, last in ((0, 1), (1, 2), (1, 5), (4, 5), (2, 2)):
        part = kernels.matmul(weights, packed, fed, first=first, last=last)
        assert np.array_equal(part, together[:, first * TILE : last * TILE])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_bad_activation_reaches_its_own_row_and_all_of_it(kernels: KernelSet, format: str, bad: float) -> None:
    rng = np.random.default_rng(10)
    weights = random_weights(rng, format, 40, 512)
    packed = kernels.pack(weights)
    x = rng.standard_normal((21, 512)).astype(np.float32)
    sound = kernels.matmul(weights, packed, feed(kernels, format, x))
    worse = x.copy()
    worse[3, 77] = worse[18, 511] = bad
    y = kernels.matmul(weights, packed, feed(kernels, format, worse))
    assert not np.isfinite(y[[3, 18], :40]).any()
    others = np.delete(np.arange(21), [3, 18])
    assert np.ascontiguousarray(y[others]).tobytes() == np.ascontiguousarray(sound[others]).tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_a_bad_weight_reaches_its_own_output(kernels: KernelSet, format: str) -> None:
    """A scale (or a value) that is NaN or infinite in the file: the outputs beside it are untouched."""
    rng = np.random.default_rng(11)
    weights = random_weights(rng, format, 20, 512)
    x = feed(kernels, format, rng.standard_normal((3, 512)).astype(np.float32))
    sound = kernels.matmul(weights, kernels.pack(weights), x)
    if format in INTEGERS:
        at = 0 if format == "int8" else weights.data.shape[1] // (512 // unit(format)) * 2  # the third group's scale
    else:
        _, size = BLOCK[format]
        at = (1 if format[-1] == "k" else 5) * size + (HALVES[format][0] if format in QUANTIZED else 0)
    bits = b"\0\0\xc0\x7f" if format in ("f32", *INTEGERS) else b"\xc0\x7f" if format == "bf16" else b"\0\x7e"
    data = weights.data.copy()
    data[7, at : at + len(bits)] = np.frombuffer(bits, np.uint8)
    y = kernels.matmul(weights, kernels.pack(Weights(format, data, weights.codes, weights.scale, weights.minimum)), x)
    assert np.isnan(y[:, 7]).all()
    assert np.delete(y, 7, 1).tobytes() == np.delete(sound, 7, 1).tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_zeros_give_zeros(kernels: KernelSet, format: str) -> None:
    weights = random_weights(np.random.default_rng(12), format, 32, 256)
    fed = feed(kernels, format, np.zeros((3, 256), np.float32))
    assert not kernels.matmul(weights, kernels.pack(weights), fed).any()


@pytest.mark.parametrize("format", ["f32", "f16", "bf16"])
def test_sums_that_cancel_lose_no_more_than_rounding(kernels: KernelSet, format: str) -> None:
    """Large terms of both signs whose sum is small: an accumulator narrower than float32 would show at once."""
    rng = np.random.default_rng(13)
    half = rng.standard_normal((32, 512)).astype(np.float32) * 1000
    weights = plain_weights(format, np.concatenate([half, -half], 1))
    x = np.repeat(rng.standard_normal((4, 512)).astype(np.float32), 2, 0)
    x = np.concatenate([x, x], 1)
    x[:, -1] += 1
    fed = feed(kernels, format, x)
    exact, size = truth(weights, fed)
    budget.within(kernels.matmul(weights, kernels.pack(weights), fed), exact, 1026 * ULP / 2 * size)


@pytest.mark.parametrize("format", QUANTIZED)
def test_a_set_adds_the_same_integers_as_its_scalar_twin(kernels: KernelSet, generic: KernelSet, format: str) -> None:
    """Scales are powers of two and groups few, so that what floats do cannot hide a difference of one."""
    rng = np.random.default_rng(14)
    weights = random_weights(rng, format, 64, 256, scale=1.0)
    x = rng.standard_normal((17, 256)).astype(np.float32)
    one, other = kernels.quantise(x), generic.quantise(x)
    for mine, twin in zip(one.arrays, other.arrays, strict=True):
        assert mine.tobytes() == twin.tobytes()
    fixed = Quantised(
        one.codes,
        np.ones_like(one.scales),
        one.half_sums.reshape(17, -1, 2).sum(2).astype(np.float32) / 32,
        one.half_sums,
    )
    packed = generic.pack(weights)
    assert np.array_equal(kernels.matmul(weights, packed, fixed), generic.matmul(weights, packed, fixed))


def test_bf16_subnormals_count_as_zero_or_as_themselves(kernels: KernelSet) -> None:
    """The processors' bf16 products take subnormal numbers for zeros; more than their size may not be lost."""
    tiny = np.full((16, 64), 1e-39, np.float32)
    weights = plain_weights("bf16", tiny)
    y = kernels.matmul(weights, kernels.pack(weights), np.repeat(to_bf16(np.full((1, 64), 1.0, np.float32)), 3, 0))
    assert (np.abs(y - 64e-39) <= 65e-39).all()
