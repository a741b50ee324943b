"""stage: a graph cut into pipeline stages, each with its share of the layers."""

from __future__ import annotations

from dataclasses import replace

from octavo.errors import GraphError
from octavo.graph.ir import Graph, Node

CARRIED = "carried"
"""What a stage gives to the next: outputs, and inputs there, of the names ``carried.0``, ``carried.1``, …"""


def stage(graph: Graph, stages: int) -> tuple[Graph, ...]:
    """``stages`` graphs that run one after the other, the same graph for one.

    The layers are shared out evenly, the first stages taking one more where that leaves a rest. What stands before the
    first layer is in the first stage, what follows the last layer in the last. Each graph's KV layers are its own, and
    keep the KV groups of the whole model, whose block tables all stages read.

    Raises GraphError for more stages than layers.
    """
    layers = 1 + max((node.layer for node in graph.nodes if node.layer is not None), default=-1)
    if not 1 <= stages <= max(layers, 1):
        raise GraphError(f"{graph.name}: {layers} layers cannot be shared out among {stages} stages")
    if stages == 1:
        return (graph,)
    each, rest = divmod(layers, stages)
    first = [k * each + min(k, rest) for k in range(stages)]
    parts: list[list[Node]] = [[] for _ in range(stages)]
    at = 0
    for node in graph.nodes:
        if node.layer is not None:
            at = max(at, sum(node.layer >= start for start in first[1:]))
        parts[at].append(node)
    return tuple(_part(graph, parts, k) for k in range(stages))


def _part(graph: Graph, parts: list[list[Node]], k: int) -> Graph:
    nodes = parts[k]
    carried_in = _carried(graph, parts, k) if k else []
    carried_out = _carried(graph, parts, k + 1) if k + 1 < len(parts) else []
    made = {value for node in nodes for value in node.outputs}
    known = {value: f"{CARRIED}.{i}" for i, value in enumerate(carried_in)}
    kept = [int(str(node.attrs["layer"])) for node in nodes if node.op == "attention"]
    kv, slots = [], dict.fromkeys(range(len(graph.kv_windows)), 0)
    for layer in (graph.kv[i] for i in kept):
        kv.append(replace(layer, slot=slots[layer.group]))
        slots[layer.group] += 1
    renamed = []
    for node in nodes:
        attrs = (
            {**node.attrs, "layer": kept.index(int(str(node.attrs["layer"])))} if node.op == "attention" else node.attrs
        )
        renamed.append(replace(node, inputs=tuple(known.get(v, v) for v in node.inputs), attrs=attrs))
    outputs = {name: value for name, value in graph.outputs.items() if value in made}
    outputs |= {f"{CARRIED}.{i}": known.get(value, value) for i, value in enumerate(carried_out)}
    inputs = {**graph.inputs, **{known[value]: graph.types[value] for value in carried_in}}
    read = {weight for node in nodes for weight in node.weights}
    return replace(
        graph,
        inputs=inputs,
        weights={name: spec for name, spec in graph.weights.items() if name in read},
        nodes=tuple(renamed),
        types={**inputs, **{value: t for value, t in graph.types.items() if value in made}},
        outputs=outputs,
        kv=tuple(kv),
    )


def _carried(graph: Graph, parts: list[list[Node]], k: int) -> list[str]:
    """The values that are made before stage ``k`` and read in it or later, in the order in which they are made."""
    later = {value for nodes in parts[k:] for node in nodes for value in node.inputs}
    # An output of an early node is carried on to the last stage, which alone gives outputs.
    later |= set(graph.outputs.values())
    return [value for nodes in parts[:k] for node in nodes for value in node.outputs if value in later]
