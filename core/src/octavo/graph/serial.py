"""A graph as JSON and back, and its canonical hash.

The hash names what a compiled artifact depends on: ops, attributes, shapes, weight formats. It does not depend on
weight values, nor on how values happen to be named, so an artifact serves every fine-tune of a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from octavo.errors import GraphError
from octavo.graph.ir import DIALECT, Axis, Graph, KVLayerSpec, Node, Part, TensorType, WeightSpec, freeze


def to_json(graph: Graph) -> str:
    """The graph as one JSON object, keys sorted; `from_json` restores an equal graph."""
    return json.dumps(_encode(graph), sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> Graph:
    """The graph that `to_json` wrote. Raises GraphError for malformed text or another dialect."""
    try:
        raw = json.loads(text)
        major = str(raw["dialect"]).split(".")[0]
        if major != DIALECT.split(".")[0]:
            raise GraphError(f"the graph speaks dialect {raw['dialect']}, this version {DIALECT}")
        return Graph(
            name=raw["name"],
            dtype=raw["dtype"],
            inputs={k: _type(v) for k, v in raw["inputs"].items()},
            weights={
                k: WeightSpec(tuple(v["shape"]), _axes(v["axes"]), v["format"], tuple(Part(*p) for p in v["parts"]))
                for k, v in raw["weights"].items()
            },
            nodes=tuple(_node(n) for n in raw["nodes"]),
            types={k: _type(v) for k, v in raw["types"].items()},
            outputs=dict(raw["outputs"]),
            kv=tuple(KVLayerSpec(**layer) for layer in raw["kv"]),
            dialect=raw["dialect"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"this is no graph in JSON: {error}") from error


def graph_hash(graph: Graph) -> str:
    """SHA-256 of the graph's meaning, in hexadecimal. Which part of a stored weight is read is no matter of it."""
    names = {name: f"i:{name}" for name in graph.inputs}
    for node in graph.nodes:
        for output in node.outputs:
            names[output] = str(len(names))
    canonical = _encode(graph)
    del canonical["name"]
    canonical["types"] = {names[k]: v for k, v in canonical["types"].items() if k in names}
    canonical["outputs"] = {k: names[v] for k, v in graph.outputs.items()}
    for weight in canonical["weights"].values():
        del weight["parts"]
    for node in canonical["nodes"]:
        del node["scope"], node["layer"]
        node["inputs"] = [names[v] for v in node["inputs"]]
        node["outputs"] = [names[v] for v in node["outputs"]]
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _encode(graph: Graph) -> dict[str, Any]:
    return {
        "dialect": graph.dialect,
        "name": graph.name,
        "dtype": graph.dtype,
        "inputs": {k: asdict(v) for k, v in graph.inputs.items()},
        "weights": {k: _weight(v) for k, v in graph.weights.items()},
        "nodes": [
            {
                "op": n.op,
                "inputs": list(n.inputs),
                "weights": list(n.weights),
                "attrs": _thaw(n.attrs),
                "outputs": list(n.outputs),
                "scope": n.scope,
                "layer": n.layer,
            }
            for n in graph.nodes
        ],
        "types": {k: asdict(v) for k, v in graph.types.items()},
        "outputs": dict(graph.outputs),
        "kv": [asdict(layer) for layer in graph.kv],
    }


def _weight(spec: WeightSpec) -> dict[str, Any]:
    axes = [None if axis is None else (axis.name, axis.count) for axis in spec.axes]
    return {"shape": spec.shape, "axes": axes, "format": spec.format, "parts": spec.parts}


def _thaw(value: object) -> Any:
    if isinstance(value, Mapping):
        return {k: _thaw(v) for k, v in value.items()}
    return [_thaw(v) for v in value] if isinstance(value, tuple) else value


def _axes(raw: Sequence[Sequence[Any] | None]) -> tuple[Axis | None, ...]:
    return tuple(None if axis is None else Axis(*axis) for axis in raw)


def _type(raw: Mapping[str, Any]) -> TensorType:
    return TensorType(tuple(raw["shape"]), raw["dtype"])


def _node(raw: Mapping[str, Any]) -> Node:
    attrs = {k: freeze(v) for k, v in sorted(raw["attrs"].items())}
    return Node(
        raw["op"], tuple(raw["inputs"]), tuple(raw["weights"]), attrs, tuple(raw["outputs"]), raw["scope"], raw["layer"]
    )
