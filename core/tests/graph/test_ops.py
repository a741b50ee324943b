"""What holds for every op, and the meaning of the small ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from graph.op_calls import evaluate, generated, types_of

from octavo.errors import GraphError
from octavo.graph import OPS, Sizes, TensorType, WeightSpec
from octavo.graph.ops import Case

SIZES = [
    Sizes(tokens=1, rows=1, samples=1, context=7),
    Sizes(tokens=7, rows=3, samples=2, context=9),
    Sizes(tokens=16, rows=4, samples=4, context=10),
    Sizes(tokens=2, rows=5, samples=3, context=8),  # rows with no token
]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: f"T{s.tokens}R{s.rows}S{s.samples}")
@pytest.mark.parametrize("name", OPS)
def test_the_shape_rule_says_what_the_reference_returns(name: str, sizes: Sizes) -> None:
    spec, case, kv = generated(name, sizes)
    inferred = spec.infer(*types_of(case), case.attrs)
    found = evaluate(spec, case, np.float32, kv.copy(np.float32))
    # POOL alone names a symbol: nothing it reads has that size.
    dtypes = {np.dtype(np.float32): "f32", np.dtype(np.int32): "i32"}
    assert [(tuple(map(sizes.resolve, t.shape)), t.dtype) for t in inferred] == [
        (x.shape, dtypes[x.dtype]) for x in found
    ]


@pytest.mark.parametrize("name", OPS)
def test_float32_follows_float64_within_rounding(name: str) -> None:
    spec, case, kv = generated(name, SIZES[2])
    exact = evaluate(spec, case, np.float64, kv.copy(np.float64))
    assert all(x.dtype == (np.int32 if name == "map_ids" else np.float64) for x in exact), "that of the call"
    for single, double in zip(evaluate(spec, case, np.float32, kv.copy(np.float32)), exact, strict=True):
        np.testing.assert_allclose(single, double, rtol=2e-5, atol=2e-5 * np.abs(double).max())


@pytest.mark.parametrize("name", OPS)
def test_cases_are_a_function_of_the_seed(name: str) -> None:
    one, same, other = (generated(name, SIZES[1], seed)[1] for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(one.inputs, same.inputs, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one.inputs, other.inputs, strict=True))


@pytest.mark.parametrize("name", OPS)
def test_a_reference_leaves_its_arguments_alone(name: str) -> None:
    spec, case, kv = generated(name, SIZES[1])
    before = [x.copy() for x in (*case.inputs, *case.weights)]
    evaluate(spec, case, np.float64, kv)
    assert all(np.array_equal(a, b) for a, b in zip(before, (*case.inputs, *case.weights), strict=True))


ACTIVATIONS = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: x if x > 0 else 0.0,
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: str) -> None:
    x = np.linspace(-6, 6, 40).reshape(4, 10)
    up = np.random.default_rng(0).standard_normal((4, 10))
    expected = np.vectorize(ACTIVATIONS[kind])(x)
    (found,) = evaluate(OPS["activation"], Case([x], [], {"kind": kind}))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    (gated,) = evaluate(OPS["gated_activation"], Case([x, up], [], {"kind": kind}))
    np.testing.assert_allclose(gated, expected * up, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations_stay_finite_far_from_zero(kind: str) -> None:
    x = np.array([[-1e4, -100.0, 0.0, 100.0, 1e4]])
    (found,) = evaluate(OPS["activation"], Case([x], [], {"kind": kind}), np.float32)
    np.testing.assert_allclose(found, [[0, 0, 0, 100, 1e4]], atol=1e-30)


def test_elementwise_ops() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4))
    assert np.array_equal(evaluate(OPS["add"], Case([a, b]))[0], a + b)
    assert np.array_equal(evaluate(OPS["mul"], Case([a, b]))[0], a * b)
    assert np.array_equal(evaluate(OPS["scale"], Case([a], [], {"factor": -0.3}))[0], a * -0.3)
    capped = evaluate(OPS["softcap"], Case([a * 100], [], {"cap": 2.5}))[0]
    np.testing.assert_allclose(capped, 2.5 * np.tanh(a * 100 / 2.5), rtol=1e-12)
    assert np.abs(capped).max() <= 2.5


def test_linear_maps_one_input_by_each_weight_in_turn() -> None:
    rng = np.random.default_rng(0)
    x, w0, w1, b0, b1 = (rng.standard_normal(s) for s in ((5, 3), (4, 3), (2, 3), (4,), (2,)))
    found = evaluate(OPS["linear"], Case([x], [w0, w1, b0, b1], {"bias": True}))
    for y, w, b in zip(found, (w0, w1), (b0, b1), strict=True):
        for t, o in np.ndindex(y.shape):
            assert y[t, o] == pytest.approx(sum(x[t, i] * w[o, i] for i in range(3)) + b[o])
    plain = evaluate(OPS["linear"], Case([x], [w0, w1], {"bias": False}))
    np.testing.assert_allclose(plain[1] + b1, found[1])


def test_embed_and_take_rows_pick_rows_in_order() -> None:
    table = np.arange(12.0).reshape(4, 3)
    ids = np.array([3, 0, 3], np.int32)
    assert np.array_equal(evaluate(OPS["embed"], Case([ids], [table], {"dtype": "f32"}))[0], table[[3, 0, 3]])
    assert np.array_equal(evaluate(OPS["take_rows"], Case([table, ids]))[0], table[[3, 0, 3]])


@pytest.mark.parametrize(("kind", "expected"), [("mean", [[1, 2], [0, 0], [7, 8]]), ("first", [[0, 1], [0, 0], [4, 5]]),
                                                ("last", [[2, 3], [0, 0], [10, 11]])])  # fmt: skip
def test_pool_makes_one_vector_a_row_and_zeros_for_an_empty_one(kind: str, expected: list[list[float]]) -> None:
    x = np.arange(12.0).reshape(6, 2)
    starts = np.array([0, 2, 2, 6], np.int32)
    assert evaluate(OPS["pool"], Case([x, starts], [], {"kind": kind}))[0].tolist() == expected


H, I = TensorType(("T", 8), "f32"), TensorType(("T",), "i32")  # noqa: E741
W = WeightSpec((4, 8), (None, None), "f32")


@pytest.mark.parametrize(
    ("name", "inputs", "weights", "attrs", "message"),
    [
        ("linear", [H], [replace(W, shape=(4, 7))], {}, r"\(4, 7\) cannot multiply f32\[T, 8\]"),
        ("linear", [H], [W, replace(W, shape=(5,))], {"bias": True}, r"bias \(5,\) does not fit weight \(4, 8\)"),
        ("linear", [H], [W, W, replace(W, shape=(4,))], {"bias": True}, "a bias for each"),
        ("embed", [H], [W], {"dtype": "f32"}, "vector of ids"),
        ("take_rows", [H, H], [], {}, "vector of indices"),
        ("add", [H], [], {}, "takes 2 inputs, not 1"),
        ("mul", [H, replace(H, dtype="bf16")], [], {}, r"f32\[T, 8\], bf16\[T, 8\]"),
        ("activation", [H], [], {"kind": "tanh"}, "'tanh' is not known; known: silu"),
        ("gated_activation", [H, H], [], {}, "activation None is not known"),
        ("pool", [H, I], [], {"kind": "max"}, "'max' is not mean, first or last"),
        ("rms_norm", [H], [replace(W, shape=(3,))], {"eps": 1e-5}, "width 3 does not divide"),
        ("rms_norm", [H], [replace(W, shape=(8,))], {}, "eps must be a number, not None"),
        ("rms_norm", [H, replace(H, shape=("T", 4))], [replace(W, shape=(4,))], {"eps": 1e-5}, "residual"),
        ("layer_norm", [H], [replace(W, shape=(4,))], {"eps": 1e-5}, "width of x"),
        ("scale", [H], [], {"factor": "2"}, "factor must be a number, not '2'"),
        ("softcap", [H], [], {}, "cap must be a number, not None"),
    ],
)  # fmt: skip
def test_shape_rules_refuse(name: str, inputs: list, weights: list, attrs: dict, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        OPS[name].infer(inputs, weights, attrs)
