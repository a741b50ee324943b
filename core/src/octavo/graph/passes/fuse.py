"""fuse: fewer, larger ops with the same meaning.

Two rewrites: linear maps of one input become one op with several weights (QKV, gate and up), and an add whose
sum is normed becomes the norm's residual input. What a platform does with the larger op is its own choice.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.graph.ir import Graph, Node


def fuse(graph: Graph) -> Graph:
    """An equal graph with merged linears and add+norm pairs. Idempotent."""
    return replace(graph, nodes=tuple(_merge_adds(_merge_linears(graph.nodes))))


def _merge_linears(nodes: tuple[Node, ...]) -> list[Node]:
    """Merge linears that read the same value, into the place of the first.

    Moving a later linear up is safe: its only value input is the one the first already reads.
    """
    merged: list[Node] = []
    first_at: dict[tuple[str, bool], int] = {}
    for node in nodes:
        key = (node.inputs[0], bool(node.attrs.get("bias"))) if node.op == "linear" else None
        if key is None or key not in first_at:
            if key is not None:
                first_at[key] = len(merged)
            merged.append(node)
            continue
        at = first_at[key]
        merged[at] = _join(merged[at], node)
    return merged


def _join(a: Node, b: Node) -> Node:
    """One linear with a's maps, then b's; matrices first, then biases."""
    half_a, half_b = len(a.outputs), len(b.outputs)
    weights = a.weights[:half_a] + b.weights[:half_b] + a.weights[half_a:] + b.weights[half_b:]
    return replace(a, weights=weights, outputs=a.outputs + b.outputs)


def _merge_adds(nodes: list[Node]) -> list[Node]:
    """Fold ``s = add(a, b)`` into the first ``rms_norm(s)``, which then yields the sum as well.

    Only where the norm is the first reader of the sum, so that no one needs it earlier. From the last node to the
    first, because folding an add moves its reading of a and b down to the norm, and that may free an earlier add.
    """
    kept = dict(enumerate(nodes))
    first_reader: dict[str, int] = {}
    for index, node in reversed(list(enumerate(nodes))):
        reader = first_reader.get(node.outputs[0]) if node.op == "add" else None
        if reader is not None and _takes_residual(kept[reader]):
            norm = kept[reader]
            del kept[index]
            index = reader
            node = kept[index] = replace(norm, inputs=node.inputs, outputs=norm.outputs + node.outputs)
        for value in node.inputs:
            first_reader[value] = min(index, first_reader.get(value, index))
    return [kept[index] for index in sorted(kept)]


def _takes_residual(node: Node) -> bool:
    """Whether it is a norm that has no residual input yet."""
    return node.op == "rms_norm" and len(node.inputs) == 1
