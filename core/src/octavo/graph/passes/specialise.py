"""specialise: fix the symbols of a graph to one bucket's sizes, for platforms that compile static shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from octavo.errors import GraphError
from octavo.graph.ir import Graph, TensorType

SYMBOLS = ("T", "R", "S", "B")


def specialise(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with each symbol of ``sizes`` (of T, R, S, B) replaced; the others stay free."""
    unknown = set(sizes) - set(SYMBOLS)
    if unknown:
        raise GraphError(f"a graph has the symbols {', '.join(SYMBOLS)}, not {', '.join(sorted(unknown))}")
    known = dict(sizes)
    if "R" in known:
        known["R+1"] = known["R"] + 1

    def fix(tensor: TensorType) -> TensorType:
        return replace(tensor, shape=tuple(known.get(d, d) if isinstance(d, str) else d for d in tensor.shape))

    return replace(
        graph,
        inputs={name: fix(t) for name, t in graph.inputs.items()},
        types={name: fix(t) for name, t in graph.types.items()},
    )
