"""The cost model: what one step of a graph must compute and move.

Divided by a device's measured peak and bandwidth it gives the step's lower bound in seconds, which measured times are
held against (`octavo bench kernels`).
"""

from __future__ import annotations

from octavo.graph.ir import Graph
from octavo.graph.ops import OPS, Cost, Sizes


def step_cost(graph: Graph, sizes: Sizes) -> Cost:
    """The sum over the graph's nodes for a step of ``sizes``."""
    total = Cost()
    for node in graph.nodes:
        inputs = [graph.types[v] for v in node.inputs]
        weights = [graph.weights[w] for w in node.weights]
        total += OPS[node.op].cost(inputs, weights, node.attrs, sizes)
    return total
