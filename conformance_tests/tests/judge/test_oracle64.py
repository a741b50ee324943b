"""The oracles against closed forms, and against Octavo's own reference, which somebody else wrote from the same
meaning."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from octavo.graph import OPS, Call, FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec, Sizes, inverse_frequencies
from octavo_conformance.judge import oracle64
from octavo_conformance.judge.oracle64 import Attention

F64 = npt.NDArray[np.float64]
SIZES = Sizes(tokens=24, rows=3, samples=5, context=8)


def both(op: str, seed: int = 0) -> tuple[list[F64], tuple[F64, ...]]:
    """The arguments of a generated case, and what Octavo's reference makes of them in float64."""
    case = OPS[op].generate(np.random.default_rng(seed), SIZES)
    call = Call(case.inputs, case.weights, case.attrs, np.float64)
    return [*case.inputs, *case.weights], OPS[op].reference(call)


def test_there_is_an_oracle_for_every_op() -> None:
    """But for collectives: an oracle sees one rank."""
    assert set(oracle64.ORACLES) == {name for name, op in OPS.items() if op.across is None}


def close(found: F64, expected: F64) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("op", ["add", "mul"])
def test_sums_and_products(op: str) -> None:
    (a, b), (expected,) = both(op)
    close(oracle64.ORACLES[op](a, b), expected)


def test_scale_softcap_and_taking_rows() -> None:
    (x,), (expected,) = both("scale")
    close(oracle64.scale(x, 1.5), expected)
    (x,), (expected,) = both("softcap")
    close(oracle64.softcap(x, 2.0), expected)
    (x, rows), (expected,) = both("take_rows")
    close(oracle64.take_rows(x, rows), expected)


@pytest.mark.parametrize("kind", list(oracle64.ACTIVATIONS))
def test_activations(kind: str) -> None:
    x = np.linspace(-30, 30, 4001)
    expected = OPS["activation"].reference(Call([x], [], {"kind": kind}, np.float64))[0]
    np.testing.assert_allclose(oracle64.activation(x, kind), expected, rtol=1e-9, atol=1e-15)
    limits = oracle64.activation([-np.inf, np.inf, np.nan, 0.0], kind)
    assert limits[0] == 0 and limits[1] == np.inf and np.isnan(limits[2]) and limits[3] == 0


def test_gelu_keeps_its_digits_far_on_the_left() -> None:
    """1 + erf(x / sqrt 2) is 0 there in float64; the function is not."""
    assert oracle64.activation([-10.0], "gelu")[0] == pytest.approx(-7.619853024160527e-23, rel=1e-12)


def test_gated_activations() -> None:
    (gate, up), (expected,) = both("gated_activation")
    close(oracle64.gated_activation(gate, up, "silu"), expected)


def test_norms() -> None:
    (x, residual, weight), expected = both("rms_norm")
    for found, right in zip(oracle64.rms_norm(x, weight, 1e-5, 1.0, residual), expected, strict=True):
        close(found, right)
    (x, weight, bias), (right,) = both("layer_norm")
    close(oracle64.layer_norm(x, weight, 1e-5, bias), right)
    alone = oracle64.rms_norm([[3.0, 4.0]], [1.0, 2.0], 0.0)[0]
    close(alone, np.array([[3.0, 8.0]]) / math.sqrt(12.5))


def test_linear_maps_and_embeddings() -> None:
    (x, *weights), expected = both("linear")
    for found, right in zip(oracle64.linear(x, weights[:2], weights[2:]), expected, strict=True):
        close(found, right)
    (ids,), (mapped,) = both("map_ids")
    close(oracle64.map_ids(ids, divide=3, modulo=11, add=2), mapped)
    close(oracle64.map_ids([7, 8]), np.array([7.0, 8.0]))
    (ids, table), (right,) = both("embed")
    close(oracle64.embed(ids, table), right)


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_pools(kind: str) -> None:
    case = OPS["pool"].generate(np.random.default_rng(1), SIZES)
    (expected,) = OPS["pool"].reference(Call(case.inputs, case.weights, {"kind": kind}, np.float64))
    close(oracle64.pool(*case.inputs, kind), expected)


@pytest.mark.parametrize(
    "spec",
    [
        RopeSpec(16),
        RopeSpec(16, interleaved=True, theta=500000.0),
        RopeSpec(16, rotary_dim=8),
        RopeSpec(16, scaling=LinearScaling(4.0)),
        RopeSpec(16, scaling=Llama3Scaling(8.0, 1.0, 4.0, 64)),
        RopeSpec(16, scaling=FrequencyFactors((1.0, 1.5, 2.0, 3.0, 1.0, 1.0, 4.0, 8.0))),
    ],
)
def test_rope(spec: RopeSpec) -> None:
    rng = np.random.default_rng(2)
    q, k, positions = rng.standard_normal((6, 64)), rng.standard_normal((6, 32)), np.array([0, 1, 5, 77, 1000, 100_000])
    attrs = spec.to_attrs()
    expected = OPS["rope"].reference(Call([q, k, positions], [], attrs, np.float64))  # type: ignore[arg-type]
    options = {"rotary_dim": spec.turned, "interleaved": spec.interleaved, "scaling": attrs.get("scaling")}
    for x, right in zip((q, k), expected, strict=True):
        np.testing.assert_allclose(
            oracle64.rope(x, positions, 16, spec.theta, **options),
            right,
            rtol=1e-9,
            atol=1e-9,  # type: ignore[arg-type]
        )
    found = oracle64.frequencies(spec.turned, spec.theta, attrs.get("scaling"))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, inverse_frequencies(spec), rtol=1e-12)


def sequence(rng: np.random.Generator, length: int, spec: Attention) -> tuple[F64, F64, F64]:
    return (
        rng.standard_normal((length, spec.heads * spec.head_dim)),
        rng.standard_normal((length, spec.kv_heads * spec.head_dim)),
        rng.standard_normal((length, spec.kv_heads * spec.head_dim)),
    )


class Pool:
    """One sequence's blocks for Octavo's reference, which reads attention through a table."""

    def __init__(self, blocks: int, size: int, spec: Attention) -> None:
        from octavo.graph import KVLayerSpec

        self.block_size = size
        shape = (blocks, size, spec.kv_heads, spec.head_dim)
        self.tensors = np.zeros(shape), np.zeros(shape)
        self.spec = KVLayerSpec(spec.kv_heads, spec.head_dim, spec.window, 0, 0)

    def layer(self, index: int) -> tuple[object, F64, F64]:
        return (self.spec, *self.tensors)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 1},
        {"window": 7},
        {"softcap": 1.5},
        {"sinks": (0.5, -2.0, 3.0, 0.0)},
        {"causal": False},
        {"window": 5, "softcap": 2.0, "sinks": (1.0, 1.0, -1.0, 0.0)},
    ],
)
def test_attention_over_a_paged_cache_is_attention_over_the_sequence(options: dict[str, object]) -> None:
    spec = Attention(heads=4, kv_heads=2, head_dim=8, scale=0.3, **options)  # type: ignore[arg-type]
    rng = np.random.default_rng(3)
    q, k, v = sequence(rng, 19, spec)
    table = np.array([[[4, 2, 5, 1, 3]]])
    at = np.arange(19)
    slots = table[0, 0, at // 4] * 4 + at % 4
    attrs = {
        "layer": 0, "heads": 4, "kv_heads": 2, "head_dim": 8, "scale": 0.3, "window": spec.window,
        "softcap": spec.softcap, "causal": spec.causal,
    }  # fmt: skip
    weights = [np.array(spec.sinks)] if spec.sinks else []
    inputs = [q, k, v, np.array([0, 19]), np.array([19]), slots[None], table]
    call = Call(inputs, weights, attrs, np.float64, Pool(6, 4, spec))  # type: ignore[arg-type]
    (expected,) = OPS["attention"].reference(call)
    close(oracle64.attention(q, k, v, spec), expected)
    close(oracle64.attention(q, k, v, spec, queries=[3, 18]), expected[[3, 18]])


def test_attention_in_closed_forms() -> None:
    spec = Attention(heads=1, kv_heads=1, head_dim=2, scale=1.0)
    values = np.array([[1.0, 0.0], [3.0, 2.0], [5.0, 7.0]])
    zeros = np.zeros((3, 2))
    close(oracle64.attention(zeros, zeros, values, spec)[2], values.mean(0))  # equal scores: the mean
    keys = np.array([[0.0, 0.0], [200.0, 0.0], [0.0, 0.0]])
    queries = np.full((3, 2), 1.0)
    close(oracle64.attention(queries, keys, values, spec)[2], values[1])  # one score far above: its value
    sinks = Attention(heads=1, kv_heads=1, head_dim=2, scale=1.0, sinks=(math.log(3),))
    close(oracle64.attention(zeros, zeros, values, sinks)[0], values[0] / 4)  # a sink of weight 3 beside one of 1


def test_each_query_head_reads_its_group() -> None:
    spec = Attention(heads=4, kv_heads=2, head_dim=1, scale=1.0)
    values = np.array([[10.0, 20.0]])
    assert oracle64.attention(np.zeros((1, 4)), np.zeros((1, 2)), values, spec).tolist() == [[10.0, 10.0, 20.0, 20.0]]


@pytest.mark.parametrize(("window", "first"), [(None, [0, 0, 0, 0, 0]), (1, [0, 1, 2, 3, 4]), (3, [0, 0, 0, 1, 2])])
def test_what_is_visible(window: int | None, first: list[int]) -> None:
    spec = Attention(heads=1, kv_heads=1, head_dim=1, scale=1.0, window=window)
    seen = oracle64.visible(spec, np.arange(5), 5)
    assert [np.flatnonzero(row).tolist() for row in seen] == [list(range(a, p + 1)) for p, a in enumerate(first)]
