"""pooled: a language model as an encoder. Its last hidden states, one vector per row, in place of logits."""

from __future__ import annotations

from dataclasses import replace

from octavo.errors import GraphError
from octavo.graph.ir import Graph, Node, TensorType


def pooled(graph: Graph, kind: str) -> Graph:
    """The graph with the output ``pooled`` [R, width] in place of ``hidden`` [T, width] or ``logits`` [S, vocab].

    Of the latter what is pooled is what the output matrix multiplies; where one token stands for its row it is taken
    where ``take_rows`` was, so that what follows (the last norm) runs for it alone. ``kind`` is that of the op
    ``pool``. Raises GraphError for a graph whose logits are not made that way.
    """
    if "hidden" in graph.outputs:
        states = graph.outputs["hidden"]
        vector = f"{states}.pooled"
        pool = Node("pool", (states, "query_starts"), (), {"kind": kind}, (vector,))
        types = {**graph.types, vector: _moved(graph.types[states], "T", "R")}
        return replace(graph, nodes=(*graph.nodes, pool), types=types, outputs={"pooled": vector})
    take, head = _take_and_head(graph)
    (sampled,) = take.outputs
    averaged = kind == "mean"
    tail = _readers(graph, head)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node in tail or (averaged and node is take):
            continue
        if node is take:
            node = replace(node, op="pool", inputs=(take.inputs[0], "query_starts"), attrs={"kind": kind})
        elif averaged:
            node = replace(node, inputs=tuple(take.inputs[0] if v == sampled else v for v in node.inputs))
        nodes.append(node)
    rows = "T" if averaged else "R"  # of what was made for the rows to sample
    types = {name: t if name in graph.inputs else _moved(t, "S", rows) for name, t in graph.types.items()}
    vector = head.inputs[0]
    if averaged:
        states = take.inputs[0] if vector == sampled else vector
        vector = head.outputs[0]  # a name that is free now
        types[vector] = _moved(types[states], "T", "R")
        nodes.append(Node("pool", (states, "query_starts"), (), {"kind": kind}, (vector,), head.scope))
    read = {weight for node in nodes for weight in node.weights}
    known = {*graph.inputs, *(value for node in nodes for value in node.outputs)}
    return replace(
        graph,
        nodes=tuple(nodes),
        weights={name: spec for name, spec in graph.weights.items() if name in read},
        types={name: t for name, t in types.items() if name in known},
        outputs={"pooled": vector},
    )


def _take_and_head(graph: Graph) -> tuple[Node, Node]:
    """The node that takes the rows to sample, and the output matrix."""
    maker = {value: node for node in graph.nodes for value in node.outputs}
    head = maker.get(graph.outputs.get("logits", ""))
    while head is not None and head.op in ("softcap", "scale"):
        head = maker.get(head.inputs[0])
    takes = [node for node in graph.nodes if node.op == "take_rows"]
    if head is None or head.op != "linear" or len(head.outputs) != 1 or len(takes) != 1:
        raise GraphError(
            f"{graph.name}: its hidden states cannot be pooled, which takes a graph with one take_rows whose logits "
            "are one linear map"
        )
    return takes[0], head


def _readers(graph: Graph, head: Node) -> list[Node]:
    """The output matrix and all that follows from it."""
    made = set(head.outputs)
    tail = [head]
    for node in graph.nodes:
        if made.intersection(node.inputs):
            tail.append(node)
            made.update(node.outputs)
    return tail


def _moved(tensor: TensorType, old: str, new: str) -> TensorType:
    """The type with another symbol."""
    return replace(tensor, shape=tuple(new if dim == old else dim for dim in tensor.shape))
