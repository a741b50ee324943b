"""shard: one rank's part of a graph under tensor parallelism.

As Megatron-LM does it (Shoeybi et al. 2019): the matrices into a layer's heads and into its MLP are split by rows,
those out of them by columns, and each pair ends in one sum over the ranks. The embedding table and the output matrix
are split by the vocabulary. What may be split, and where, is said by the weights' axes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from octavo.errors import GraphError
from octavo.graph.ir import Attribute, Axis, Graph, Node, Part, TensorType, WeightSpec
from octavo.graph.ops import OPS
from octavo.quant import format_named

GROUP = "tp"
"""The axis of the mesh along which `shard` splits."""

_SPLIT = ("heads", "kv_heads", "mlp", "vocab")
# Ops that work on each element, or each head, by itself: what they read may be split.
_ELEMENTWISE = ("activation", "gated_activation", "add", "mul", "scale", "softcap", "rope", "take_rows", "rms_norm")


def shard(graph: Graph, rank: int, ranks: int) -> Graph:
    """The part of ``graph`` that rank ``rank`` of ``ranks`` computes; an equal graph for one rank.

    All ranks' graphs have the same nodes and shapes, so that one program runs on all of them where its ``first`` of the
    embedding is an argument. Every rank has the whole outputs. Where there are fewer KV heads than ranks, several ranks
    keep the same head. The vocabulary and the width of the MLP are padded with zeros up to what divides evenly, which
    for quantized weights are whole blocks. A bias that is added to a sum over ranks is rank 0's, and zero on others.

    Raises GraphError naming the axis or the op that cannot be split so.
    """
    if not 0 <= rank < ranks:
        raise GraphError(f"there is no rank {rank} among {ranks}")
    return graph if ranks == 1 else _Shard(graph, rank, ranks).run()


class _Shard:
    """The pass at work. ``split`` has, for each value of which the rank holds only a part, the axis that is split."""

    def __init__(self, graph: Graph, rank: int, ranks: int) -> None:
        self._graph = graph
        self._rank = rank
        self._ranks = ranks
        self._nodes: list[Node] = []
        self._types = dict(graph.types)
        self._split: dict[str, Axis] = {}
        self._units = self._units_of_axes()
        self._weights = {name: self._weight(name, spec) for name, spec in graph.weights.items()}

    def run(self) -> Graph:
        graph = self._graph
        for node in graph.nodes:
            handler = self._HANDLERS.get(node.op, _Shard._other)
            handler(self, node)
        outputs = {name: self._whole(value, graph.types[value]) for name, value in graph.outputs.items()}
        heads = {axis.count: self._units[axis] for axis in self._units if axis.name == "kv_heads"}
        kv = tuple(replace(layer, kv_heads=heads[layer.kv_heads]) for layer in graph.kv)
        made = {*graph.inputs, *(value for node in self._nodes for value in node.outputs)}
        types = {name: t for name, t in self._types.items() if name in made}
        return replace(graph, weights=self._weights, nodes=tuple(self._nodes), types=types, outputs=outputs, kv=kv)

    # -- how much of an axis a rank has ------------------------------------------------------------

    def _units_of_axes(self) -> dict[Axis, int]:
        """The units of each split axis that a rank has. Padded for the MLP and the vocabulary."""
        blocks: dict[Axis, int] = {}  # columns of weights are cut between their blocks only
        for spec in self._graph.weights.values():
            for dim, axis in enumerate(spec.axes):
                if axis is not None and axis.name in _SPLIT:
                    last = dim == len(spec.shape) - 1
                    block = format_named(spec.format).block_elements if last else 1
                    blocks[axis] = math.lcm(block, blocks.get(axis, 1))
        units = {}
        for axis, block in blocks.items():
            if axis.name in ("mlp", "vocab"):
                units[axis] = -(-axis.count // (self._ranks * block)) * block
            elif axis.count % self._ranks == 0:
                units[axis] = axis.count // self._ranks
            elif axis.name == "kv_heads" and self._ranks % axis.count == 0:
                units[axis] = 1
            else:
                raise GraphError(
                    f"{self._graph.name}: {axis.count} {axis.name.replace('_', ' ')} cannot be split over "
                    f"{self._ranks} ranks"
                )
        return units

    def _first(self, axis: Axis) -> int:
        """The first unit of a split axis that this rank has."""
        if axis.name == "kv_heads":  # with fewer heads than ranks, each is several ranks'
            return self._rank * axis.count // self._ranks
        return self._rank * self._units[axis]

    def _weight(self, name: str, spec: WeightSpec) -> WeightSpec:
        shape, axes, parts = list(spec.shape), list(spec.axes), []
        for dim, axis in enumerate(spec.axes):
            if axis is None or axis.name not in _SPLIT:
                continue
            unit = spec.shape[dim] // axis.count
            if unit * axis.count != spec.shape[dim]:
                raise GraphError(f"{self._graph.name}: {name} has {spec.shape[dim]} of {axis.count} {axis.name}")
            first, count = self._first(axis), self._units[axis]
            shape[dim] = count * unit
            axes[dim] = Axis(axis.name, count)
            parts.append(Part(dim, min(first, axis.count) * unit, min(first + count, axis.count) * unit))
            block = format_named(spec.format).block_elements
            if dim == len(spec.shape) - 1 and shape[dim] % block:
                raise GraphError(
                    f"{self._graph.name}: {name} cannot be split over {self._ranks} ranks: {shape[dim]} columns a rank "
                    f"are no whole number of {spec.format} blocks of {block}"
                )
        return replace(spec, shape=tuple(shape), axes=tuple(axes), parts=tuple(parts))

    # -- nodes -------------------------------------------------------------------------------------

    def _embed(self, node: Node) -> None:
        spec = self._graph.weights[node.weights[0]]
        axis = spec.axes[0]
        if axis is None or axis not in self._units:
            self._emit(node)
            return
        self._emit_summed(replace(node, attrs={**node.attrs, "first": self._first(axis)}))

    def _linear(self, node: Node) -> None:
        count = len(node.outputs)
        specs = [self._graph.weights[name] for name in node.weights]
        columns = specs[0].axes[1]
        held = self._split.get(node.inputs[0])
        if columns in self._units:
            if held != columns or any(spec.axes[1] != columns for spec in specs[:count]):
                raise self._error(node, f"its columns are split along {columns}, and what it reads along {held}")
            for name in node.weights[count:] if self._rank else ():  # a bias is added once
                self._weights[name] = _nothing(self._weights[name])
            self._emit_summed(node)
            return
        if held is not None:
            raise self._error(node, f"it needs all of its input, which is split along {held.name}")
        for value, spec in zip(node.outputs, specs, strict=False):
            rows = spec.axes[0]
            if rows is not None and rows in self._units:
                self._split[value] = rows
        self._emit(node)

    def _attention(self, node: Node) -> None:
        heads = self._split.get(node.inputs[0])
        kv_heads = self._split.get(node.inputs[1])
        if heads is None or kv_heads is None or self._split.get(node.inputs[2]) != kv_heads:
            raise self._error(node, "its queries, keys and values are not split by heads")
        attrs = {**node.attrs, "heads": self._units[heads], "kv_heads": self._units[kv_heads]}
        self._emit(replace(node, attrs=attrs))
        self._split[node.outputs[0]] = heads

    def _each(self, node: Node) -> None:
        """An op that works on each element or head by itself."""
        hidden = [v for v in node.inputs if self._graph.types[v].dtype != "i32"]
        held = [self._split.get(value) for value in hidden]
        if node.op == "rope":
            self._split.update((out, axis) for out, axis in zip(node.outputs, held, strict=True) if axis is not None)
        elif any(held):
            if len(set(held)) > 1:
                raise self._error(node, f"its inputs are split differently: {', '.join(map(str, held))}")
            width = self._types[hidden[0]].width  # that of whole heads, unless the norm is over all of them
            if node.op == "rms_norm" and width % self._graph.weights[node.weights[0]].shape[0]:
                raise self._error(node, "it norms over what is split")
            self._split.update((out, axis) for out in node.outputs if (axis := held[0]) is not None)
        self._emit(node)

    def _other(self, node: Node) -> None:
        """An op that needs all of its inputs."""
        held = next((axis for value in node.inputs if (axis := self._split.get(value)) is not None), None)
        if held is not None:
            raise self._error(node, f"it needs all of its input, which is split along {held.name}")
        self._emit(node)

    _HANDLERS: Mapping[str, Callable[[_Shard, Node], None]] = {
        "embed": _embed,
        "linear": _linear,
        "attention": _attention,
        **dict.fromkeys(_ELEMENTWISE, _each),
    }

    # -- emitting ----------------------------------------------------------------------------------

    def _emit(self, node: Node) -> None:
        inputs, weights = [self._types[v] for v in node.inputs], [self._weights[w] for w in node.weights]
        self._types.update(zip(node.outputs, OPS[node.op].infer(inputs, weights, node.attrs), strict=True))
        self._nodes.append(node)

    def _emit_summed(self, node: Node) -> None:
        """A node of whose outputs each rank has a summand, and the sums."""
        summands = tuple(f"{value}.summand" for value in node.outputs)
        self._emit(replace(node, outputs=summands))
        for summand, value in zip(summands, node.outputs, strict=True):
            self._join("all_reduce", summand, value, {})

    def _whole(self, value: str, whole: TensorType) -> str:
        """The value with all its columns."""
        if value not in self._split:
            return value
        self._join("all_gather", value, f"{value}.whole", {"width": whole.width})
        return f"{value}.whole"

    def _join(self, op: str, value: str, result: str, attrs: Mapping[str, Attribute]) -> None:
        known = {"group": GROUP, "ranks": self._ranks, **attrs}
        last = self._nodes[-1]
        self._emit(Node(op, (value,), (), known, (result,), last.scope, last.layer))

    def _error(self, node: Node, message: str) -> GraphError:
        return GraphError(f"{self._graph.name}: {node.op} in {node.scope or 'the top scope'}: {message}")


def _nothing(spec: WeightSpec) -> WeightSpec:
    """The same weight, of which nothing is read: all zeros."""
    return replace(spec, parts=tuple(Part(dim, 0, 0) for dim in range(len(spec.shape))))
