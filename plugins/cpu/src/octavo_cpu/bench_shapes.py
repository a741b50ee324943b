"""The shapes that `octavo_cpu.bench_cases` makes cases of: a model's, or those of common models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from octavo.graph import Graph, Node
from octavo_cpu.binding import FORMATS
from octavo_cpu.lower import lower

SHAPES = ((576, 1536), (2048, 8192))
"""(outputs, inputs) of matrices, where no model says: models of 135 million and of a billion weights."""
HEAD = ("q8_0", 49152, 576)
ATTENTION = ((9, 3, 64), (32, 8, 64))
"""(query heads, KV heads, size of a head) of the same two models."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Shapes:
    """What a model's kernels work on.

    ``matrices``, and ``heads`` that make logits, are (format, outputs, inputs); ``norms`` are (width, elements that are
    normed together), ``gates`` (width, activation), ``attention`` (query heads, KV heads, size of a head).
    """

    matrices: Sequence[tuple[str, int, int]]
    heads: Sequence[tuple[str, int, int]]
    norms: Sequence[tuple[int, int]]
    gates: Sequence[tuple[int, str]]
    attention: Sequence[tuple[int, int, int]]

    @classmethod
    def common(cls) -> Shapes:
        """Every format at the shapes of two common models."""
        matrices = [(name, *shape) for name in FORMATS for shape in SHAPES]
        return cls(matrices, [HEAD], [(n, n) for n, _ in SHAPES], [(n, "silu") for _, n in SHAPES], ATTENTION)

    @classmethod
    def of(cls, graph: Graph) -> Shapes:
        """Those of a fused graph, each once, in its order."""
        linears = [n for n in graph.nodes if n.op == "linear"]
        steps = lower(graph).steps
        return cls(
            _once(m for n in linears if not _on_samples(graph, n) for m in _matrices(graph, n)),
            _once(m for n in linears if _on_samples(graph, n) for m in _matrices(graph, n)),
            _once((s.width, s.run) for s in steps if s.op == "rms_norm"),
            _once((s.width, s.gate) for s in steps if s.op == "gated"),
            _once((s.heads, s.kv_heads, s.head_dim) for s in steps if s.op == "attention"),
        )


def _once(values: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(values))


def _on_samples(graph: Graph, node: Node) -> bool:
    return graph.types[node.outputs[0]].shape[0] == "S"


def _matrices(graph: Graph, node: Node) -> list[tuple[str, int, int]]:
    """(format, outputs, inputs) of a linear's matrices; what follows them are biases."""
    specs = [graph.weights[name] for name in node.weights[: len(node.outputs)]]
    return [(spec.format, spec.shape[0], spec.shape[1]) for spec in specs]
