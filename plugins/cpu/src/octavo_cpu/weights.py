"""A model's weights as the native kernels read them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform import DeviceOutOfMemory, Progress
from octavo.quant import WeightTensor, dequantise
from octavo_cpu.binding import FORMATS, aligned, pointer


@dataclass
class NativeWeights:
    """What `load_weights` made; executables keep it alive, for the native code only points into it.

    ``packed`` holds the matrices in tiles, ``tables`` the embedding tables as the checkpoint stores them (usually still
    its memory map), ``vectors`` the small ones (norms, biases, sinks) as float32.
    """

    packed: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    tables: dict[str, WeightTensor] = field(default_factory=dict)
    vectors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)


def matrix_names(graph: Graph) -> list[str]:
    """The weights that linear ops multiply by, in the graph's order."""
    found = {w: None for n in graph.nodes if n.op == "linear" for w in n.weights[: len(n.outputs)]}
    return list(found)


def packed_bytes(library: ctypes.CDLL, graph: Graph) -> int:
    """Bytes that the packed matrices take."""
    sizes = (library.octavo_packed_bytes(*_shape(graph, name)) for name in matrix_names(graph))
    return sum(int(size) for size in sizes)


def load_weights(
    library: ctypes.CDLL, pool: Any, graph: Graph, tensors: Mapping[str, WeightTensor], free: int, progress: Progress
) -> NativeWeights:
    """Pack the graph's weights, one tensor at a time, on all threads of ``pool``.

    Raises DeviceOutOfMemory, before anything is read, if the packed matrices need more than ``free`` bytes.
    """
    needed = packed_bytes(library, graph)
    if needed > free:
        raise DeviceOutOfMemory(
            f"the packed weights need {needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB of memory are free; "
            "free some, or choose a smaller model or a more strongly quantized one"
        )
    matrices = set(matrix_names(graph))
    tables = {n.weights[0] for n in graph.nodes if n.op == "embed"}
    loaded = NativeWeights()
    for done, name in enumerate(graph.weights):
        progress("packing weights", done, len(graph.weights))
        tensor = tensors[name]
        if name in tables:
            loaded.tables[name] = tensor
        if name in matrices:
            loaded.packed[name] = _pack(library, pool, graph, name, tensor)
        elif name not in tables:
            loaded.vectors[name] = dequantise(tensor)
    progress("packing weights", len(graph.weights), len(graph.weights))
    return loaded


def _pack(
    library: ctypes.CDLL, pool: Any, graph: Graph, name: str, tensor: WeightTensor
) -> npt.NDArray[np.uint8]:
    code, outputs, inputs = _shape(graph, name)
    packed = aligned(library.octavo_packed_bytes(code, outputs, inputs))
    rows = np.ascontiguousarray(tensor.data)
    library.octavo_pack(pool, code, pointer(rows), rows.shape[-1], outputs, inputs, pointer(packed))
    return packed


def _shape(graph: Graph, name: str) -> tuple[int, int, int]:
    spec = graph.weights[name]
    outputs, inputs = spec.shape
    return FORMATS.index(spec.format), outputs, inputs
