"""A model's weights as the native kernels read them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform import ArtifactKey, ArtifactStore, ArtifactWriter, DeviceOutOfMemory, Progress
from octavo.quant import WeightTensor, dequantise
from octavo_cpu.binding import FORMATS, aligned, pointer

LAYOUT = 2
"""Version of the packed layout (``csrc/pack.h``); a change raises it, so that no artifact of the old one is used. The
kernels of all instruction sets read the same layout."""

TARGET = "any"
"""The kind of device that packed weights are for."""


@dataclass
class NativeWeights:
    """What `load_weights` made; executables keep it alive, for the native code only points into it.

    ``packed`` holds the matrices in tiles, ``tables`` the embedding tables as the checkpoint stores them (usually still
    its memory map), ``vectors`` the small ones (norms, biases, sinks) as float32.
    """

    packed: Mapping[str, npt.NDArray[np.uint8]]
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
    library: ctypes.CDLL,
    pool: Any,
    graph: Graph,
    tensors: Mapping[str, WeightTensor],
    free: int,
    progress: Progress,
    artifacts: ArtifactStore,
    files: Sequence[Path],
    threads: int,
) -> NativeWeights:
    """The graph's weights: matrices packed on all threads of ``pool``, or mapped from what was packed before.

    What is packed from ``files`` is kept in ``artifacts``. Raises DeviceOutOfMemory, before anything is read, if the
    packed matrices need more than ``free`` bytes.
    """
    needed = packed_bytes(library, graph)
    if needed > free:
        raise DeviceOutOfMemory(
            f"the packed weights need {needed / 2**30:.2f} GiB and {free / 2**30:.2f} GiB of memory are free; "
            "free some, or choose a smaller model or a more strongly quantized one"
        )
    matrices = matrix_names(graph)

    def build(writer: ArtifactWriter) -> None:
        for done, name in enumerate(matrices):
            progress("packing weights", done, len(matrices))
            writer.add(name, _pack(library, pool, graph, name, tensors[name]))
        progress("packing weights", len(matrices), len(matrices))

    # Weights that come from no file have no name to be found by: a store of its own, without a folder, keeps nothing.
    store = artifacts if files else ArtifactStore()
    checkpoint = store.digest(files, threads=threads)
    packed = store.open(artifact_key(graph, checkpoint), build, nbytes=needed, threads=threads).arrays
    loaded = NativeWeights(packed)
    tables = {n.weights[0] for n in graph.nodes if n.op == "embed"}
    for name in graph.weights:
        if name in tables:
            loaded.tables[name] = tensors[name]
        elif name not in packed:
            loaded.vectors[name] = dequantise(tensors[name])
    return loaded


def artifact_key(graph: Graph, checkpoint: str) -> ArtifactKey:
    """Names the packed matrices of this graph, made from these files in this layout."""
    return ArtifactKey.for_graph(
        graph,
        kind="packed weights",
        platform="cpu",
        device=TARGET,
        compiler=f"octavo-cpu, layout {LAYOUT}",
        checkpoint=checkpoint,
    )


def _pack(library: ctypes.CDLL, pool: Any, graph: Graph, name: str, tensor: WeightTensor) -> npt.NDArray[np.uint8]:
    code, outputs, inputs = _shape(graph, name)
    packed = aligned(library.octavo_packed_bytes(code, outputs, inputs))
    rows = np.ascontiguousarray(tensor.data)
    library.octavo_pack(pool, code, pointer(rows), rows.shape[-1], outputs, inputs, pointer(packed))
    return packed


def _shape(graph: Graph, name: str) -> tuple[int, int, int]:
    spec = graph.weights[name]
    outputs, inputs = spec.shape
    return FORMATS.index(spec.format), outputs, inputs
