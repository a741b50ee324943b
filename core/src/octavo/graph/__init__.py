"""The model graph: a model as data that any platform can run.

A model file calls a `Builder`; the `Graph` it makes is printed, hashed, rewritten by passes and run by platforms. Each
op's meaning is its numpy reference (`OPS`), which the `reference` module interprets.
"""

from octavo.graph.builder import Builder, Value
from octavo.graph.cost import step_cost
from octavo.graph.ir import DIALECT, Axis, Graph, KVLayerSpec, Node, Part, TensorType, WeightSpec, step_inputs
from octavo.graph.liveness import dead_after, makers
from octavo.graph.ops import OPS, Call, Cost, Kernel, OpSpec, Sizes
from octavo.graph.passes import fuse, pooled, shard, specialise, stage
from octavo.graph.printer import to_text
from octavo.graph.reference import Interpreter, KVArrays, run_ranks
from octavo.graph.rope import FrequencyFactors, LinearScaling, Llama3Scaling, RopeSpec, inverse_frequencies
from octavo.graph.serial import from_json, graph_hash, to_json

__all__ = [
    "DIALECT", "OPS", "Axis", "Builder", "Call", "Cost", "FrequencyFactors", "Graph", "Interpreter", "KVArrays",
    "KVLayerSpec", "Kernel", "LinearScaling", "Llama3Scaling", "Node", "OpSpec", "Part", "RopeSpec", "Sizes",
    "TensorType", "Value", "WeightSpec", "dead_after", "from_json", "fuse", "graph_hash", "inverse_frequencies",
    "makers", "pooled", "run_ranks", "shard", "specialise", "stage", "step_cost", "step_inputs", "to_json", "to_text",
]  # fmt: skip
