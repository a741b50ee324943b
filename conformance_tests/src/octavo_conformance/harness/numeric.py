"""A small decoder with random weights, and what it must make of any tokens: in float64, and at the platform's own
precision.

It has all that a real one has (norms, rotary positions, grouped heads, a gated layer, residuals), is two layers deep,
and knows no more tokens than an engine tells logprobs of, so that whole distributions can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from octavo.graph import RopeSpec
from octavo.quant import WeightTensor, format_named
from octavo_conformance.harness.engines import VOCAB
from octavo_conformance.harness.probe import Model, Probe
from octavo_conformance.judge import lowp, oracle64, quant
from octavo_conformance.judge.floats import F32, F64
from octavo_conformance.judge.oracle64 import Attention
from octavo_conformance.judge.rng import Rng

if TYPE_CHECKING:
    from octavo_conformance.harness.target import Target

WIDTH = 128
"""Of the residual stream and of the gated layer; the block of a format, where that is larger."""
HEADS, KV_HEADS = 2, 1
"""At least; as many heads more as make their output whole blocks of the format."""
LAYERS = 2
EPS = 1e-6
GAIN = 3.0
"""Of the last norm: how far apart logits lie, so that most tokens win by much more than rounding moves them."""


@dataclass(frozen=True)
class Decoder:
    """A model for a platform, and its weights as numbers."""

    model: Model
    matrices: dict[str, F64]
    format: str
    spec: Attention
    theta: float
    layers: int

    def exact(self, tokens: Sequence[int]) -> F64:
        """Logprobs [tokens, vocabulary] after each token, in float64."""
        return _logprobs(_forward(self, tokens, None))

    def own(self, tokens: Sequence[int], t: Target) -> F64:
        """The same as `judge.lowp` makes them."""
        return _logprobs(_forward(self, tokens, t))


def decoder(t: Target, rng: Rng, format: str | None = None) -> Decoder:
    """A decoder for ``t``, its matrices in ``format`` (one of `quant.FORMATS`, or the plain one).

    One of a quantized format has one layer, and larger embeddings beside what that brings: else so much may be lost by
    storing inputs as small integers that an error of 2 % would not stand out.
    """
    layers = LAYERS if format is None else 1
    head_dim = 64 if t.declares("head_dim:64") else (t.capabilities.head_dims or (64,))[0]
    block = 1 if format is None else quant.FORMATS[format].block
    width = math.lcm(WIDTH, block)
    count = HEADS
    while count * head_dim % block:
        count += HEADS
    spec = Attention(count, KV_HEADS, head_dim, head_dim**-0.5)
    theta = 1000.0
    p = Probe(t, "decoder")
    numbers: dict[str, F64] = {}

    def vector(name: str, size: int, mean: float) -> None:
        numbers[name] = (mean * (1 + 0.1 * rng.normal(size))).astype(np.float32).astype(np.float64)
        p.weight(name, numbers[name])

    def matrix(name: str, rows: int, columns: int) -> None:
        if format is None:
            numbers[name] = t.stored(rng.normal(rows, columns) * columns**-0.5).astype(np.float64)
            p.weight(name, numbers[name])
        else:
            made = quant.FORMATS[format].matrix(rng, rows, columns, balanced=True)
            numbers[name] = made.values
            p.weight(name, WeightTensor(format_named(made.format), made.values.shape, made.data))

    size = 1.0 if format is None else 8.0
    numbers["embed.weight"] = t.stored(size * rng.normal(VOCAB, width)).astype(np.float64)
    x = p.rows("embed", numbers["embed.weight"])
    b = p.build
    heads, kv_heads = count * head_dim, KV_HEADS * head_dim
    # Random codes come in any size; the norms make up for it, so that what a matrix brings is of size 1.
    typical = 1.0
    if format is not None:
        typical = 1 / _size(quant.FORMATS[format].matrix(rng.fork("size"), 64, width, balanced=True).values)
    rope = RopeSpec(head_dim, theta=theta)
    for layer in range(layers):
        at = f"{layer}."
        vector(at + "norm1.weight", width, typical)
        vector(at + "norm2.weight", width, typical)
        for name, rows, columns in (
            ("q", heads, width), ("k", kv_heads, width), ("v", kv_heads, width), ("o", width, heads),
            ("gate", width, width), ("up", width, width), ("down", width, width),
        ):  # fmt: skip
            matrix(f"{at}{name}.weight", rows, columns)
        normed = b.rms_norm(x, at + "norm1", eps=EPS)
        q, k, v = (b.linear(normed, at + name, size) for name, size in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        q, k = b.rope(q, k, rope)
        mixed = b.attention(q, k, v, layer=layer, heads=count, kv_heads=KV_HEADS, head_dim=head_dim, scale=spec.scale)
        x = b.add(x, b.linear(mixed, at + "o", width))
        normed = b.rms_norm(x, at + "norm2", eps=EPS)
        gated = b.gated_activation(b.linear(normed, at + "gate", width), b.linear(normed, at + "up", width), "silu")
        x = b.add(x, b.linear(gated, at + "down", width))
    vector("norm.weight", width, GAIN)
    numbers["head.weight"] = t.stored(rng.normal(VOCAB, width) * width**-0.5).astype(np.float64)
    normed = b.rms_norm(b.take_rows(x), "norm", eps=EPS)
    return Decoder(p.logits(normed, numbers["head.weight"]), numbers, format or "", spec, theta, layers)


def _forward(d: Decoder, tokens: Sequence[int], t: Target | None) -> F64:
    """Logits in float64, or rounded as ``t`` rounds."""
    w, at = d.matrices, np.arange(len(tokens))

    def linear(x: F64, name: str) -> F64:
        if t is None:
            return oracle64.linear(x, [w[name]])[0]
        stored_as = t.linear_input(d.format) if d.format and name != "head.weight" else t.dtype
        return _wide(lowp.linear(x, [w[name]], dtype=t.dtype, stored_as=stored_as)[0])

    def norm(x: F64, name: str, residual: F64 | None = None) -> tuple[F64, ...]:
        if t is None:
            return oracle64.rms_norm(x, w[name], EPS, residual=residual)
        return tuple(map(_wide, lowp.rms_norm(x, w[name], EPS, residual=residual, dtype=t.dtype)))

    def turned(x: F64) -> F64:
        if t is None:
            return oracle64.rope(x, at, d.spec.head_dim, d.theta)
        return _wide(lowp.rope(x, at, d.spec.head_dim, d.theta, dtype=t.dtype))

    def attended(q: F64, k: F64, v: F64) -> F64:
        if t is None:
            return oracle64.attention(q, k, v, d.spec)
        return _wide(lowp.attention(q, k, v, d.spec, dtype=t.dtype, kv_dtype=t.kv_dtype))

    def gated(gate: F64, up: F64) -> F64:
        if t is None:
            return oracle64.gated_activation(gate, up, "silu")
        return _wide(lowp.gated_activation(gate, up, "silu", dtype=t.dtype))

    x = w["embed.weight"][np.asarray(tokens)]
    (normed,) = norm(x, "0.norm1.weight")
    for layer in range(d.layers):
        q, k, v = (linear(normed, f"{layer}.{name}.weight") for name in "qkv")
        mixed = attended(turned(q), turned(k), v)
        normed, x = norm(linear(mixed, f"{layer}.o.weight"), f"{layer}.norm2.weight", x)
        inner = gated(linear(normed, f"{layer}.gate.weight"), linear(normed, f"{layer}.up.weight"))
        last = "norm.weight" if layer == d.layers - 1 else f"{layer + 1}.norm1.weight"
        normed, x = norm(linear(inner, f"{layer}.down.weight"), last, x)
    return linear(normed, "head.weight")


def _wide(x: F32) -> F64:
    return x.astype(np.float64)


def _size(matrix: F64) -> float:
    """How large the products of a row with numbers of size 1 are."""
    return float(np.sqrt(np.mean(matrix**2) * matrix.shape[1]))


def _logprobs(logits: F64) -> F64:
    exact = np.asarray(logits, np.float64)
    peak = exact.max(-1, keepdims=True)
    made: F64 = exact - peak - np.log(np.exp(exact - peak).sum(-1, keepdims=True))
    return made
