"""The model graph as data: values, weights, nodes, KV layers. No behaviour, no numpy.

Shape legend, everywhere in `octavo.graph`:

    T  tokens in the step            R  rows (sequences) in the step
    S  rows of hidden states to sample    B  KV blocks per row
    G  KV groups

Values are two-dimensional, [T, width] or [S, width]; heads stay flattened in the width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from octavo.errors import GraphError

DIALECT = "2.0"
"""Version of the op set. Minors only add ops or optional attributes."""

Dim: TypeAlias = int | str
"""A size, or one of the symbols T, R, S, B (and R+1 for query starts)."""

Attribute: TypeAlias = "bool | int | float | str | tuple[Attribute, ...] | Mapping[str, Attribute] | None"
"""What a node may carry besides values and weights: exactly what JSON can hold."""


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a value. ``dtype`` is f32, bf16, f16 or i32."""

    shape: tuple[Dim, ...]
    dtype: str

    @property
    def width(self) -> int:
        """The last dimension, which is never symbolic for hidden states; GraphError where it is."""
        last = self.shape[-1]
        if not isinstance(last, int):
            raise GraphError(f"{self} has no fixed width")
        return last

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Axis:
    """The logical axis of a weight's dimension: vocab, embed, heads, kv_heads, mlp or head_dim.

    The dimension consists of ``count`` equal units, which a split over ranks never cuts: a dimension of ``heads`` has
    as many units as there are heads, each of ``head_dim`` rows.
    """

    name: str
    count: int


class Part(NamedTuple):
    """What a rank reads along dimension ``dim`` of a stored weight: ``start : stop``, then zeros up to the rank's
    shape. Quantized formats have the weight 0 where all bytes are 0.
    """

    dim: int
    start: int
    stop: int


@dataclass(frozen=True)
class WeightSpec:
    """A named weight the graph reads. ``shape`` is [outputs, inputs] for matrices.

    ``axes`` has the logical axis of each dimension, or ``None``, which passes map onto a mesh of ranks. ``format``
    names its `octavo.quant` WeightFormat. ``parts`` is what the rank reads of the stored weight, at most one part for
    each dimension; dimensions that it does not name are read whole.
    """

    shape: tuple[int, ...]
    axes: tuple[Axis | None, ...]
    format: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class KVLayerSpec:
    """What one attention layer keeps per token, and where it lives in the block pool.

    ``window`` is how many positions back (itself included) a query sees; ``None``: all. Layers with
    the same window form groups of equally many layers; a block holds the tokens of one group. ``group``
    is the layer's group, ``slot`` its place within it (its tensor in the pool).
    """

    kv_heads: int
    head_dim: int
    window: int | None
    group: int
    slot: int


@dataclass(frozen=True)
class Node:
    """One op applied to values and weights; its outputs are new values.

    ``scope`` says where in the model it stands, for printing and error messages only. ``layer`` is the index of its
    decoder or encoder layer; ``None`` before the first and after the last.
    """

    op: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    attrs: Mapping[str, Attribute]
    outputs: tuple[str, ...]
    scope: str = ""
    layer: int | None = None


@dataclass(frozen=True)
class Graph:
    """A model step: from the step's arrays to named outputs, through the KV cache.

    Nodes are in execution order; every value is written once. Frozen: a pass makes a new graph.
    """

    name: str
    dtype: str
    inputs: Mapping[str, TensorType]
    weights: Mapping[str, WeightSpec]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    """The type of every value, inputs included."""
    outputs: Mapping[str, str]
    """Output name -> value."""
    kv: tuple[KVLayerSpec, ...]
    dialect: str = DIALECT

    @property
    def kv_windows(self) -> tuple[int | None, ...]:
        """The window of each KV group; empty for a model without attention."""
        windows = {layer.group: layer.window for layer in self.kv}
        return tuple(windows[g] for g in sorted(windows))

    @property
    def kv_slots(self) -> int:
        """Layer tensors in the block pool: the layers of the largest group."""
        return max((layer.slot for layer in self.kv), default=-1) + 1


def freeze(value: object) -> Attribute:
    """``value`` as an immutable attribute; GraphError for what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise GraphError(f"an attribute cannot hold {value}")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(freeze(v) for v in value)
    if isinstance(value, Mapping):
        return MappingProxyType({str(k): freeze(v) for k, v in sorted(value.items())})
    raise GraphError(f"an attribute cannot hold a {type(value).__name__}")


def step_inputs(groups: int) -> dict[str, TensorType]:
    """The arrays that every model step reads, by name.

    ``query_starts[r] : query_starts[r + 1]`` are row r's tokens; ``context_lens[r]`` counts its tokens after
    this step; ``slots[g, t]`` is where token t's key and value go (block * block size + offset; -1: nowhere);
    ``block_tables[g, r]`` are the blocks of row r; ``sample_rows[s]`` picks the token whose logits are wanted.
    """
    return {
        "tokens": TensorType(("T",), "i32"),
        "positions": TensorType(("T",), "i32"),
        "query_starts": TensorType(("R+1",), "i32"),
        "context_lens": TensorType(("R",), "i32"),
        "slots": TensorType((groups, "T"), "i32"),
        "block_tables": TensorType((groups, "R", "B"), "i32"),
        "sample_rows": TensorType(("S",), "i32"),
    }


def assign_kv_groups(layers: list[tuple[int, int, int | None]]) -> tuple[KVLayerSpec, ...]:
    """Place (kv_heads, head_dim, window) layers into groups that share one block pool.

    Layers with equal windows share groups; every group has as many layers as the smallest window class,
    the last of a class possibly fewer (its missing tensors are padding). Full attention comes first.
    """
    for index, (heads, dim, _) in enumerate(layers):
        if (heads, dim) != layers[0][:2]:
            raise GraphError(
                f"attention layer {index} keeps {heads} KV heads of {dim}, layer 0 {layers[0][0]} of {layers[0][1]}; "
                "all must be alike to share one block pool"
            )
    classes: dict[int | None, list[int]] = {}
    for index, (_, _, window) in enumerate(layers):
        classes.setdefault(window, []).append(index)
    size = min((len(members) for members in classes.values()), default=1)
    placed: dict[int, tuple[int, int]] = {}
    group = 0
    for window in sorted(classes, key=lambda w: (w is not None, w or 0)):
        members = classes[window]
        for start in range(0, len(members), size):
            for slot, index in enumerate(members[start : start + size]):
                placed[index] = (group, slot)
            group += 1
    return tuple(KVLayerSpec(h, d, w, *placed[i]) for i, (h, d, w) in enumerate(layers))
