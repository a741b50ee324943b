"""rms_norm, layer_norm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.graph.ir import TensorType, WeightSpec
from octavo.graph.ops.spec import Array, Attrs, Call, Case, OpSpec, Sizes, check, elements, number


def _rms_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    number(attrs, "eps")
    width = weights[0].shape[0]
    check(inputs[0].width % width == 0, f"a norm of width {width} does not divide {inputs[0]}")
    check(len(set(inputs)) == 1, "the residual must have the type of x")
    return tuple(inputs)


def _rms_norm(call: Call) -> tuple[Array, ...]:
    """With a second input the norm is of the sum, which comes out as well."""
    x = call.floats(0)
    if len(call.inputs) == 2:
        x = x + call.floats(1)
    weight = call.weights[0]
    width = weight.shape[0]
    runs = x.reshape(*x.shape[:-1], x.shape[-1] // width, width)
    mean_square = np.mean(runs * runs, axis=-1, keepdims=True)
    normed = runs / np.sqrt(mean_square + np.asarray(call.number("eps"), x.dtype))
    scaled = (normed * (np.asarray(number(call.attrs, "offset", 0.0), x.dtype) + weight)).reshape(x.shape)
    return (scaled,) if len(call.inputs) == 1 else (scaled, x)


def _rms_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    x, residual = rng.standard_normal((2, sizes.tokens, 32))
    return Case([x, residual], [rng.standard_normal(8)], {"eps": 1e-5, "offset": 1.0})


def _layer_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    number(attrs, "eps")
    check(all(w.shape == (inputs[0].width,) for w in weights), "layer_norm weights must have the width of x")
    return (inputs[0],)


def _layer_norm(call: Call) -> tuple[Array, ...]:
    x = call.floats(0)
    centred = x - x.mean(-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + np.asarray(call.number("eps"), x.dtype)) * call.weights[0]
    return (y + call.weights[1] if call.attrs.get("bias") else y,)


def _layer_generate(rng: np.random.Generator, sizes: Sizes) -> Case:
    weights = list(rng.standard_normal((2, 16)))
    return Case([rng.standard_normal((sizes.tokens, 16))], weights, {"eps": 1e-5, "bias": True})


RMS_NORM = OpSpec(
    "rms_norm",
    "(x[N, W], residual[N, W]?; w[D]; eps, offset=0) -> [N, W], sum[N, W]?    each run of D elements on its own; "
    "x / sqrt(mean(x^2) + eps) * (offset + w)",
    _rms_infer,
    _rms_norm,
    lambda inputs, w, a, sizes: 4.0 * elements(inputs[0], sizes),
    _rms_generate,
)
LAYER_NORM = OpSpec(
    "layer_norm",
    "(x[N, W]; w[W], b[W]?; eps, bias) -> [N, W]",
    _layer_infer,
    _layer_norm,
    lambda inputs, w, a, sizes: 6.0 * elements(inputs[0], sizes),
    _layer_generate,
)
