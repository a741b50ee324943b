"""The reference interpreter: runs any graph with a paged KV cache in numpy. Slow and right.

A whole sequence, for tests and for the curious::

    logits = run_sequence(graph, {name: dequantise(tensor) for name, tensor in …}, tokens)
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from octavo.errors import GraphError
from octavo.graph.ir import Graph, KVLayerSpec, Node
from octavo.graph.liveness import dead_after
from octavo.graph.ops import OPS, Call, Kernel
from octavo.graph.ops.spec import Array, Floats


class KVArrays:
    """The block pool in host memory: per layer slot a key and a value tensor [blocks, block_size, kv_heads, head_dim].

    Zero pages of a fresh array take no memory until they are written, so a large pool costs what is used of it.
    """

    def __init__(self, graph: Graph, blocks: int, block_size: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.block_size = block_size
        self.layers = graph.kv
        shape = (blocks, block_size, graph.kv[0].kv_heads, graph.kv[0].head_dim) if graph.kv else (0,)
        self.keys: list[Floats] = [np.zeros(shape, dtype) for _ in range(graph.kv_slots)]
        self.values: list[Floats] = [np.zeros(shape, dtype) for _ in range(graph.kv_slots)]

    @classmethod
    def over(cls, graph: Graph, keys: list[Floats], values: list[Floats], block_size: int) -> KVArrays:
        """A view of tensors that somebody else holds, one per layer slot."""
        arrays = cls.__new__(cls)
        arrays.block_size, arrays.layers, arrays.keys, arrays.values = block_size, graph.kv, keys, values
        return arrays

    def layer(self, index: int) -> tuple[KVLayerSpec, Floats, Floats]:
        """The layer's place and its tensors."""
        spec = self.layers[index]
        return spec, self.keys[spec.slot], self.values[spec.slot]

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy (source, destination) blocks one after the other, in every layer slot."""
        for source, destination in copies:
            for tensor in (*self.keys, *self.values):
                tensor[destination] = tensor[source]


class Interpreter:
    """Evaluates a graph node by node.

    ``weights`` maps every weight of the graph to its dequantised array; ``dtype`` is the type of all arithmetic,
    float32, or float64 to serve as an oracle. ``kernels`` are used for the ops that they name, in place of the
    dialect's references.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Floats],
        dtype: npt.DTypeLike = np.float32,
        kernels: Mapping[str, Kernel] = MappingProxyType({}),
    ) -> None:
        missing = [name for name in graph.weights if name not in weights]
        if missing:
            raise GraphError(f"the interpreter lacks the weights {', '.join(missing[:5])}")
        self.graph = graph
        self._dtype = dtype
        self._weights = {name: np.asarray(weights[name], dtype) for name in graph.weights}
        self._kernels = {node.op: kernels.get(node.op, OPS[node.op].reference) for node in graph.nodes}
        self._dead_after = dead_after(graph)

    def run(self, inputs: Mapping[str, Array], kv: KVArrays | None) -> dict[str, Floats]:
        """One step: the graph's outputs for the step's arrays (see `octavo.graph.ir.step_inputs`).

        The keys and values of the step's tokens are written to ``kv``.
        """
        steps = self.evaluate(inputs, kv)
        try:
            node, call = next(steps)
        except StopIteration as done:
            outputs: dict[str, Floats] = done.value
            return outputs
        raise GraphError(
            f"{node.op} joins {call.integer('ranks')} ranks, and one rank alone was run; run_ranks runs them all"
        )

    def evaluate(
        self, inputs: Mapping[str, Array], kv: KVArrays | None
    ) -> Generator[tuple[Node, Call], tuple[Array, ...], dict[str, Floats]]:
        """`run`, piece by piece: yields each collective of several ranks with this rank's call, and is sent the
        outputs of that.
        """
        values: dict[str, Array] = dict(inputs)
        for index, node in enumerate(self.graph.nodes):
            call = Call(
                [values[v] for v in node.inputs],
                [self._weights[w] for w in node.weights],
                node.attrs,
                self._dtype,
                kv,
            )
            joins = OPS[node.op].across is not None and call.integer("ranks") > 1
            made = (yield node, call) if joins else self._kernels[node.op](call)
            values.update(zip(node.outputs, made, strict=True))
            for dead in self._dead_after[index]:
                del values[dead]
        return {name: values[value].astype(self._dtype, copy=False) for name, value in self.graph.outputs.items()}


def run_ranks(
    ranks: Sequence[Interpreter], inputs: Mapping[str, Array], kv: Sequence[KVArrays | None]
) -> list[dict[str, Floats]]:
    """One step on all ranks of one group, in lock step: each rank's outputs. ``kv`` has each rank's part of the cache.

    GraphError if the ranks do not meet in the same collectives.
    """
    running = [rank.evaluate(inputs, own) for rank, own in zip(ranks, kv, strict=True)]
    outputs: list[dict[str, Floats]] = []
    sent: list[tuple[Array, ...] | None] = [None] * len(running)
    while not outputs:
        met: list[tuple[Node, Call]] = []
        for steps, made in zip(running, sent, strict=True):
            try:
                met.append(next(steps) if made is None else steps.send(made))
            except StopIteration as done:  # noqa: PERF203 - how a generator returns
                outputs.append(done.value)
        if (met and outputs) or len({(node.op, *sorted(node.attrs.items())) for node, _ in met}) > 1:
            raise GraphError("the ranks of the group do not meet in the same collectives")
        if met:
            across = OPS[met[0][0].op].across
            assert across is not None, "evaluate yields nothing but collectives"
            if met[0][1].integer("ranks") != len(ranks):
                raise GraphError(f"{met[0][0].op} joins {met[0][1].integer('ranks')} ranks, and {len(ranks)} were run")
            sent = list(across([call for _, call in met]))
    return outputs


def sequence_inputs(graph: Graph, tokens: Sequence[int], block_size: int) -> dict[str, Array]:
    """The arrays of one step that runs a whole sequence from position 0, over blocks 1, 2, … of each group in turn."""
    count = len(tokens)
    groups = len(graph.kv_windows)
    per_group = -(-count // block_size)
    tables = np.arange(1, groups * per_group + 1, dtype=np.int32).reshape(groups, 1, per_group)
    at = np.arange(count)
    return {
        "tokens": np.asarray(tokens, np.int32),
        "positions": at.astype(np.int32),
        "query_starts": np.array([0, count], np.int32),
        "context_lens": np.array([count], np.int32),
        "slots": (tables[:, 0, at // block_size] * block_size + at % block_size).astype(np.int32),
        "block_tables": tables,
        "sample_rows": at.astype(np.int32),
    }


def run_sequence(
    graph: Graph, weights: Mapping[str, Floats], tokens: Sequence[int], dtype: npt.DTypeLike = np.float32
) -> Floats:
    """The logits at every position of ``tokens``, [len(tokens), vocab]."""
    inputs = sequence_inputs(graph, tokens, block_size=16)
    kv = KVArrays(graph, blocks=1 + inputs["block_tables"].size, block_size=16, dtype=dtype)
    return Interpreter(graph, weights, dtype).run(inputs, kv)["logits"]
