"""all_reduce, all_gather: what the ranks of a group do together. Sums are taken in the order of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from octavo.graph.ir import TensorType, WeightSpec
from octavo.graph.ops.spec import Array, Attrs, Call, Case, OpSpec, Sizes, check, elements, number


def _group(attrs: Attrs) -> int:
    """How many ranks take part; GraphError for attributes that name no group."""
    check(isinstance(attrs.get("group"), str), f"group must name an axis of the mesh, not {attrs.get('group')!r}")
    ranks = int(number(attrs, "ranks"))
    check(ranks >= 1, f"ranks must be at least 1, not {ranks}")
    return ranks


def _reduce_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    _group(attrs)
    check(inputs[0].dtype != "i32" and len(inputs[0].shape) == 2, f"all_reduce takes hidden states, not {inputs[0]}")
    return (inputs[0],)


def _reduce(calls: Sequence[Call]) -> list[tuple[Array, ...]]:
    total = calls[0].floats(0).copy()
    for call in calls[1:]:
        total += call.floats(0)
    return [(total.copy(),) for _ in calls]


def _gather_infer(inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs) -> tuple[TensorType, ...]:
    ranks, width = _group(attrs), int(number(attrs, "width"))
    x = inputs[0]
    check(0 < width <= ranks * x.width, f"width must be at most {ranks * x.width}, not {width}")
    return (replace(x, shape=(*x.shape[:-1], width)),)


def _gather(calls: Sequence[Call]) -> list[tuple[Array, ...]]:
    joined = np.concatenate([call.floats(0) for call in calls], axis=-1)[:, : calls[0].integer("width")]
    return [(joined.copy(),) for _ in calls]


def _generate(attrs: dict[str, int | str], rng: np.random.Generator, sizes: Sizes) -> Case:
    return Case([rng.standard_normal((sizes.tokens, 16))], [], attrs)


ALL_REDUCE = OpSpec(
    "all_reduce",
    "(x[N, W]; group, ranks) -> [N, W]    the sum over the ranks of the group",
    _reduce_infer,
    lambda call: _reduce([call])[0],
    lambda inputs, weights, attrs, sizes: elements(inputs[0], sizes) * (number(attrs, "ranks") - 1),
    lambda rng, sizes: _generate({"group": "tp", "ranks": 1}, rng, sizes),
    across=_reduce,
)
ALL_GATHER = OpSpec(
    "all_gather",
    "(x[N, W]; group, ranks, width) -> [N, width]    columns of all ranks of the group in their order, the first width",
    _gather_infer,
    lambda call: _gather([call])[0],
    lambda inputs, weights, attrs, sizes: 0.0,
    lambda rng, sizes: _generate({"group": "tp", "ranks": 1, "width": 13}, rng, sizes),
    across=_gather,
)
