"""What an op is: schema, shape rule, numpy meaning, cost and an input generator, in one record.

The numpy reference *is* the meaning of an op: a platform's kernel is right when it agrees with it. It computes in the
dtype of its call (float32, or float64 for an oracle) and is written to be read, not to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from octavo.errors import GraphError
from octavo.graph.ir import Attribute, KVLayerSpec, TensorType, WeightSpec
from octavo.quant import format_named

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Attrs: TypeAlias = Mapping[str, Attribute]


class KVCache(Protocol):
    """The paged cache as an op sees it."""

    block_size: int

    def layer(self, index: int) -> tuple[KVLayerSpec, Floats, Floats]:
        """The layer's place and its key and value tensors, each [blocks, block_size, kv_heads, head_dim]."""


@dataclass(frozen=True)
class Call:
    """The arguments of one reference evaluation. ``weights`` are dequantised, in ``dtype``."""

    inputs: Sequence[Array]
    weights: Sequence[Floats]
    attrs: Attrs
    dtype: npt.DTypeLike = np.float32
    kv: KVCache | None = None

    def floats(self, index: int) -> Floats:
        """Input ``index`` as numbers of this call's dtype."""
        return self.inputs[index].astype(self.dtype, copy=False)

    def number(self, name: str) -> float:
        """A numeric attribute."""
        return number(self.attrs, name)

    def integer(self, name: str) -> int:
        """An integer attribute."""
        return int(number(self.attrs, name))


@dataclass(frozen=True)
class Sizes:
    """The symbols of one step, for the cost model. ``context`` is the mean tokens per row after the step."""

    tokens: int
    rows: int
    samples: int
    context: float

    def resolve(self, dim: int | str) -> int:
        """A dimension as a number."""
        known = {"T": self.tokens, "R": self.rows, "S": self.samples, "R+1": self.rows + 1}
        return dim if isinstance(dim, int) else known[dim]


@dataclass(frozen=True)
class Cost:
    """Work of an op or a step: arithmetic operations (a multiply-add is two), and bytes moved by kind."""

    operations: float = 0.0
    weight_bytes: float = 0.0
    activation_bytes: float = 0.0
    kv_bytes: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.operations + other.operations,
            self.weight_bytes + other.weight_bytes,
            self.activation_bytes + other.activation_bytes,
            self.kv_bytes + other.kv_bytes,
        )


@dataclass(frozen=True)
class Case:
    """Generated arguments of one op: arrays that obey its schema."""

    inputs: list[Array]
    weights: list[Floats] = field(default_factory=list)
    attrs: Attrs = field(default_factory=dict)


Infer: TypeAlias = Callable[[Sequence[TensorType], Sequence[WeightSpec], Attrs], tuple[TensorType, ...]]
Kernel: TypeAlias = Callable[[Call], tuple[Array, ...]]
"""One op in numpy: the outputs of a node, in order."""
Across: TypeAlias = Callable[[Sequence[Call]], list[tuple[Array, ...]]]
"""A collective in numpy: the outputs of each rank, in the order of the calls."""
Operations: TypeAlias = Callable[[Sequence[TensorType], Sequence[WeightSpec], Attrs, Sizes], float]
Generate: TypeAlias = Callable[[np.random.Generator, Sizes], Case]


def _every_weight(weights: Sequence[WeightSpec], sizes: Sizes) -> float:
    return float(sum(weight_bytes(w) for w in weights))


@dataclass(frozen=True)
class OpSpec:
    """One op of the dialect.

    ``schema`` is its signature in one line. ``infer`` gives the output types or raises GraphError.
    ``operations`` counts arithmetic; ``generate`` makes seeded arguments. ``stored_bytes`` and ``kv_bytes`` are what a
    step reads of weights and moves through the cache. A collective has ``across``, which is its meaning: the outputs of
    each rank from the calls of all ranks of its group; ``reference`` is that of a group of one.
    """

    name: str
    schema: str
    infer: Infer
    reference: Kernel
    operations: Operations
    generate: Generate
    stored_bytes: Callable[[Sequence[WeightSpec], Sizes], float] = _every_weight
    kv_bytes: Operations = lambda inputs, weights, attrs, sizes: 0.0
    across: Across | None = None

    def cost(self, inputs: Sequence[TensorType], weights: Sequence[WeightSpec], attrs: Attrs, sizes: Sizes) -> Cost:
        """The op's work in a step of ``sizes``. Integer inputs (ids, tables) are too small to count."""
        hidden = [t for t in (*inputs, *self.infer(inputs, weights, attrs)) if t.dtype != "i32"]
        return Cost(
            operations=self.operations(inputs, weights, attrs, sizes),
            weight_bytes=self.stored_bytes(weights, sizes),
            activation_bytes=sum(elements(t, sizes) * dtype_bytes(t.dtype) for t in hidden),
            kv_bytes=self.kv_bytes(inputs, weights, attrs, sizes),
        )


def number(attrs: Attrs, name: str, default: float | None = None) -> float:
    """A numeric attribute; GraphError if it is missing and has no default."""
    value = attrs.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise GraphError(f"attribute {name} must be a number, not {value!r}")
    return value


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return {"f32": 4, "i32": 4, "bf16": 2, "f16": 2}[dtype]


def weight_bytes(weight: WeightSpec) -> int:
    """Bytes of a weight as stored."""
    rows = 1
    for dim in weight.shape[:-1]:
        rows *= dim
    return rows * format_named(weight.format).row_bytes(weight.shape[-1])


def elements(tensor: TensorType, sizes: Sizes) -> float:
    """Number of elements of a value in a step of ``sizes``."""
    count = 1
    for dim in tensor.shape:
        count *= sizes.resolve(dim)
    return float(count)


def check(condition: bool, message: str) -> None:
    """Raise GraphError(message) unless the condition holds."""
    if not condition:
        raise GraphError(message)
