"""map_ids, embed, linear: from ids to rows of a table, and the ops that read large weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.graph.ir import TensorType, WeightSpec
from octavo.graph.ops.spec import Array, Attrs, Call, Case, OpSpec, Sizes, check, elements, number, weight_bytes


def _map_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    check(inputs[0].dtype == "i32" and len(inputs[0].shape) == 1, "map_ids takes a vector of ids")
    for name in ("divide", "modulo"):
        check(attrs.get(name) is None or number(attrs, name) >= 1, f"{name} must be at least 1, not {attrs.get(name)}")
    return (inputs[0],)


def _map_ids(call: Call) -> tuple[Array, ...]:
    ids = call.inputs[0].astype(np.int64) // int(number(call.attrs, "divide", 1))
    if call.attrs.get("modulo") is not None:
        ids %= call.integer("modulo")
    return ((ids + int(number(call.attrs, "add", 0))).astype(np.int32),)


def _map_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    ids = rng.integers(0, 200, sizes.tokens, dtype=np.int32)
    return Case([ids], [], {"divide": 3, "modulo": 11, "add": 2})


def _embed_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    check(inputs[0].dtype == "i32" and len(inputs[0].shape) == 1, "embed takes a vector of ids")
    return (TensorType((inputs[0].shape[0], weights[0].shape[1]), str(attrs["dtype"])),)


def _embed(call: Call) -> tuple[Array, ...]:
    table = call.weights[0]
    ids = call.inputs[0].astype(np.int64) - int(number(call.attrs, "first", 0))
    outside = (ids < 0) | (ids >= len(table)) if "first" in call.attrs else np.zeros(len(ids), bool)
    rows = table[np.where(outside, 0, ids)]
    rows[outside] = 0
    return (rows,)


def _embed_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    return Case([rng.integers(0, 40, sizes.tokens, dtype=np.int32)], [rng.standard_normal((40, 16))], {"dtype": "f32"})


def _embed_bytes(weights: Sequence[WeightSpec], sizes: Sizes) -> float:
    """One row a token, not the table."""
    return sizes.tokens * weight_bytes(weights[0]) / weights[0].shape[0]


def _split(weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[Sequence[WeightSpec], Sequence[WeightSpec]]:
    """Matrices and biases: with ``bias`` the second half of the weights are biases."""
    half = len(weights) // 2 if attrs.get("bias") else len(weights)
    return weights[:half], weights[half:]


def _linear_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    matrices, biases = _split(weights, attrs)
    check(len(biases) in (0, len(matrices)), f"{len(matrices)} weights need a bias for each, not {len(biases)}")
    x = inputs[0]
    for matrix in matrices:
        check(len(matrix.shape) == 2 and matrix.shape[1] == x.width, f"weight {matrix.shape} cannot multiply {x}")
    for matrix, bias in zip(matrices, biases, strict=False):
        check(bias.shape == matrix.shape[:1], f"bias {bias.shape} does not fit weight {matrix.shape}")
    return tuple(TensorType((x.shape[0], matrix.shape[0]), x.dtype) for matrix in matrices)


def _linear(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    half = len(call.weights) // 2 if call.attrs.get("bias") else len(call.weights)
    outputs = [x @ matrix.T for matrix in call.weights[:half]]
    for output, bias in zip(outputs, call.weights[half:], strict=False):
        output += bias
    return tuple(outputs)


def _linear_operations(
    inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs, sizes: Sizes
) -> float:
    rows = elements(inputs[0], sizes) / inputs[0].width
    return sum(2.0 * rows * m.shape[0] * m.shape[1] for m in _split(weights, attrs)[0])


def _linear_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    x = rng.standard_normal((sizes.tokens, 16))
    return Case([x], [rng.standard_normal(s) for s in ((24, 16), (8, 16), (24,), (8,))], {"bias": True})


MAP_IDS = OpSpec(
    "map_ids",
    "(ids i32[T]; divide=1, modulo?, add=0) -> i32[T]    ids // divide, its rest by modulo, plus add",
    _map_infer,
    _map_ids,
    lambda i, w, a, s: 0.0,
    _map_generate,
)
EMBED = OpSpec(
    "embed",
    "(ids i32[T]; table[V, W]; dtype, first?) -> [T, W]    with first: rows of ids from there on, 0 for others",
    _embed_infer,
    _embed,
    lambda i, w, a, s: 0.0,
    _embed_generate,
    stored_bytes=_embed_bytes,
)
LINEAR = OpSpec(
    "linear",
    "(x[N, K]; w0[M0, K], …, b0[M0]?, …; bias: bool) -> [N, M0], …    y_i = x @ w_i.T + b_i",
    _linear_infer,
    _linear,
    _linear_operations,
    _linear_generate,
)
