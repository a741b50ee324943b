"""add, mul, scale, softcap, activation, gated_activation, take_rows, pool: one value in, one out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from octavo.errors import GraphError
from octavo.graph.ir import TensorType, WeightSpec
from octavo.graph.ops.spec import Array, Attrs, Call, Case, Floats, Infer, OpSpec, Sizes, check, elements, number

_erf = np.frompyfunc(math.erf, 1, 1)


def silu(x: Floats) -> Floats:
    """x * sigmoid(x), without overflow for large negative x."""
    exponential = np.exp(-np.abs(x))
    y: Floats = x * np.where(x >= 0, 1, exponential) / (1 + exponential)
    return y


def gelu(x: Floats) -> Floats:
    """x * Phi(x), exact (Hendrycks & Gimpel, 2016)."""
    y: Floats = x * (1 + _erf(x / math.sqrt(2)).astype(x.dtype)) / 2
    return y


def gelu_tanh(x: Floats) -> Floats:
    """The tanh approximation of GELU, from the same paper."""
    y: Floats = x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))) / 2
    return y


def relu(x: Floats) -> Floats:
    """max(x, 0); NaN stays NaN."""
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu": relu,
}  # fmt: skip


def _kind(attrs: Attrs) -> Callable[[Floats], Floats]:
    kind = attrs.get("kind")
    if kind not in ACTIVATIONS:
        raise GraphError(f"activation {kind!r} is not known; known: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[str(kind)]


def _same(count: int, required: Attrs) -> Infer:
    """The shape rule of ``count`` equal inputs; ``required`` has the attributes that must be there."""

    def infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
        check(len(inputs) == count, f"takes {count} inputs, not {len(inputs)}")
        check(len(set(inputs)) == 1, f"inputs must have one type, not {', '.join(map(str, inputs))}")
        for name in required:
            if name == "kind":
                _kind(attrs)
            else:
                number(attrs, name)
        return (inputs[0],)

    return infer


def _op(
    name: str, schema: str, count: int, meaning: Callable[[Call], Floats], attrs: Attrs, cost: float = 1.0
) -> OpSpec:
    """An op over equal shapes; ``attrs`` as its cases have them, ``cost`` operations an element."""

    def generate(rng: np.random.Generator, sizes: Sizes) -> Case:
        return Case([rng.standard_normal((sizes.tokens, 16)) * 3 for _ in range(count)], [], attrs)

    return OpSpec(
        name,
        schema,
        _same(count, attrs),
        lambda call: (meaning(call),),
        lambda inputs, w, a, sizes: cost * elements(inputs[0], sizes),
        generate,
    )


ADD = _op("add", "(a[N, W], b[N, W]) -> [N, W]", 2, lambda c: c.floats(0) + c.floats(1), {})
MUL = _op("mul", "(a[N, W], b[N, W]) -> [N, W]", 2, lambda c: c.floats(0) * c.floats(1), {})
SCALE = _op(
    "scale",
    "(x[N, W]; factor) -> [N, W]",
    1,
    lambda c: c.floats(0) * np.asarray(c.number("factor"), c.dtype),
    {"factor": 1.5},
)
SOFTCAP = _op(
    "softcap",
    "(x[N, W]; cap) -> [N, W]    cap * tanh(x / cap)",
    1,
    lambda c: c.number("cap") * np.tanh(c.floats(0) / c.number("cap")),
    {"cap": 2.0},
    8.0,
)
ACTIVATION = _op(
    "activation",
    "(x[N, W]; kind: silu|gelu|gelu_tanh|relu) -> [N, W]",
    1,
    lambda c: _kind(c.attrs)(c.floats(0)),
    {"kind": "gelu"},
    8.0,
)
GATED_ACTIVATION = _op(
    "gated_activation",
    "(gate[N, W], up[N, W]; kind) -> [N, W]    activation(gate) * up",
    2,
    lambda c: _kind(c.attrs)(c.floats(0)) * c.floats(1),
    {"kind": "silu"},
    9.0,
)


def _take_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    check(inputs[1].dtype == "i32" and len(inputs[1].shape) == 1, "take_rows takes a vector of indices")
    return (TensorType((inputs[1].shape[0], inputs[0].width), inputs[0].dtype),)


def _take_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    rows = rng.integers(0, sizes.tokens, sizes.samples, dtype=np.int32)
    return Case([rng.standard_normal((sizes.tokens, 16)), rows])


TAKE_ROWS = OpSpec(
    "take_rows",
    "(x[T, W], rows i32[S]) -> [S, W]",
    _take_infer,
    lambda call: (call.floats(0)[call.inputs[1].astype(np.int64)],),
    lambda i, w, a, s: 0.0,
    _take_generate,
)


def _pool_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    check(attrs.get("kind") in ("mean", "first", "last"), f"pool {attrs.get('kind')!r} is not mean, first or last")
    return (TensorType(("R", inputs[0].width), inputs[0].dtype),)


def _pool(call: Call) -> tuple[Array, ...]:
    x, starts = call.floats(0), call.inputs[1].astype(np.int64)
    pooled = np.zeros((len(starts) - 1, x.shape[1]), x.dtype)
    for row, (start, end) in enumerate(pairwise(starts)):
        if end > start:
            tokens = x[start:end]
            pooled[row] = {"mean": tokens.mean(0), "first": tokens[0], "last": tokens[-1]}[str(call.attrs["kind"])]
    return (pooled,)


def _pool_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    starts = np.linspace(0, sizes.tokens, sizes.rows + 1).astype(np.int32)
    return Case([rng.standard_normal((sizes.tokens, 16)), starts], [], {"kind": "mean"})


POOL = OpSpec(
    "pool",
    "(x[T, W], query_starts i32[R+1]; kind: mean|first|last) -> [R, W]",
    _pool_infer,
    _pool,
    lambda inputs, w, a, sizes: elements(inputs[0], sizes),
    _pool_generate,
)
