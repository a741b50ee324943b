"""Who makes and who reads the values of a graph, and when nobody needs them any more."""

from __future__ import annotations

from octavo.graph.ir import Graph, Node


def makers(graph: Graph) -> dict[str, Node]:
    """The node that makes each value. The graph's inputs are made by none."""
    return {value: node for node in graph.nodes for value in node.outputs}


def dead_after(graph: Graph) -> list[list[str]]:
    """For each node the values that nobody reads after it: neither a later node nor the graph's outputs. The graph's
    inputs are not among them.
    """
    kept = set(graph.outputs.values())
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.inputs, *node.outputs):
            last[value] = index
    dead: list[list[str]] = [[] for _ in graph.nodes]
    for value, index in last.items():
        if value not in kept and value not in graph.inputs:
            dead[index].append(value)
    return dead
