"""To call one op outside a graph: its generated case as types, and a cache of one layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import OPS, Call, KVLayerSpec, OpSpec, Sizes, TensorType, WeightSpec
from octavo.graph.ops import Case

Array = npt.NDArray[Any]


@dataclass
class OneLayer:
    """A paged cache of one attention layer."""

    keys: Array
    values: Array
    spec: KVLayerSpec

    @property
    def block_size(self) -> int:
        return self.keys.shape[1]

    def layer(self, index: int) -> tuple[KVLayerSpec, Array, Array]:
        assert index == 0
        return self.spec, self.keys, self.values

    def copy(self, dtype: npt.DTypeLike) -> OneLayer:
        return replace(self, keys=self.keys.astype(dtype), values=self.values.astype(dtype))


def random_cache(rng: np.random.Generator, blocks: int, block_size: int, kv_heads: int, head_dim: int) -> OneLayer:
    keys, values = rng.standard_normal((2, blocks, block_size, kv_heads, head_dim))
    return OneLayer(keys, values, KVLayerSpec(kv_heads, head_dim, None, group=0, slot=0))


def generated(name: str, sizes: Sizes, seed: int = 0) -> tuple[OpSpec, Case, OneLayer]:
    """An op, a case of its own making, and the cache that an attention case needs."""
    rng = np.random.default_rng(seed)
    spec = OPS[name]
    return spec, spec.generate(rng, sizes), random_cache(rng, 200, 4, 2, 8)


def evaluate(spec: OpSpec, case: Case, dtype: npt.DTypeLike = np.float64, kv: OneLayer | None = None) -> list[Array]:
    weights = [w.astype(dtype) for w in case.weights]
    return list(spec.reference(Call(case.inputs, weights, case.attrs, dtype, kv)))


def types_of(case: Case) -> tuple[list[TensorType], list[WeightSpec]]:
    inputs = [TensorType(x.shape, "i32" if x.dtype.kind == "i" else "f32") for x in case.inputs]
    return inputs, [WeightSpec(w.shape, (None,) * w.ndim, "f32") for w in case.weights]
