"""A graph as text, one line a node, for people and for golden tests."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.graph.ir import Attribute, Graph, Node


def to_text(graph: Graph) -> str:
    """The whole graph: header, weights by format, nodes by scope, outputs."""
    lines = [f"graph {graph.name} dialect {graph.dialect} activations {graph.dtype}"]
    for group, window in enumerate(graph.kv_windows):
        layers = [i for i, layer in enumerate(graph.kv) if layer.group == group]
        seen = "full attention" if window is None else f"window {window}"
        lines.append(f"  kv group {group}: {seen}, layers {', '.join(map(str, layers))}")
    scope: str | None = None
    for node in graph.nodes:
        if node.scope != scope:
            scope = node.scope
            lines.append(f"{scope or '(top)'}:")
        lines.append(f"  {node_text(graph, node)}")
    lines += [f"return {name} = {value}: {graph.types[value]}" for name, value in graph.outputs.items()]
    return "\n".join(lines) + "\n"


def node_text(graph: Graph, node: Node) -> str:
    """One node: ``outputs = op(inputs; weights; attributes): types``."""
    prefix = f"{node.scope}." if node.scope else ""
    weights = [f"{w.removeprefix(prefix)}:{graph.weights[w].format}" for w in node.weights]
    attrs = [f"{k}={_attribute(v)}" for k, v in node.attrs.items()]
    parts = "; ".join(", ".join(p) for p in (node.inputs, weights, attrs) if p)
    types = ", ".join(str(graph.types[v]) for v in node.outputs)
    return f"{', '.join(node.outputs)} = {node.op}({parts}): {types}"


def _attribute(value: Attribute) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}={_attribute(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple) and len(value) > 4:
        return f"({_attribute(value[0])}, … {len(value)} values)"
    return f"{value:.9g}" if isinstance(value, float) else str(value)
