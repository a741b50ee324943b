"""The reference device: a whole platform's inside in numpy, float32, on the host.

It is what a new plugin starts from: return `ReferenceDevice` from ``open`` and the first token comes out; then replace
`load`, `compile` and the store by the device's own, one at a time. It is slow and right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import DeviceOutOfMemory, UnsupportedFeature
from octavo.graph import OPS, Graph, Interpreter, KVArrays
from octavo.platform.buckets import Bucket
from octavo.platform.contract import Communicator, KVLayout, MemoryReport, Progress, Sampler
from octavo.platform.info import Capabilities
from octavo.platform.step import StepInput, StepOutput
from octavo.quant import FORMATS, WeightTensor, dequantise

CAPABILITIES = Capabilities(
    ops=frozenset(OPS),
    weight_formats=frozenset(FORMATS),
    block_sizes=(16, 1, 2, 4, 8, 32, 64, 128, 256),
    attention=frozenset({"window", "softcap", "sinks", "bidirectional"}),
)
"""What the reference device can do: everything, in float32."""


class ReferenceKVStore:
    """A block pool in host memory. Its pages take memory only once they are written."""

    def __init__(self, layout: KVLayout, blocks: int) -> None:
        self.layout = layout
        self.blocks = blocks
        shape = (blocks, layout.block_size, layout.kv_heads, layout.head_dim)
        try:
            self.keys = [np.zeros(shape, np.float32) for _ in range(layout.slots)]
            self.values = [np.zeros(shape, np.float32) for _ in range(layout.slots)]
        except MemoryError as error:
            raise DeviceOutOfMemory(f"a KV pool of {blocks * layout.block_bytes} bytes: {error}") from error

    def read_block(self, block: int) -> npt.NDArray[Any]:
        """See `KVStore.read_block`."""
        return np.stack([np.stack([t[block] for t in tensors]) for tensors in (self.keys, self.values)])

    def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
        """See `KVStore.write_block`."""
        for tensors, part in zip((self.keys, self.values), data, strict=True):
            for tensor, rows in zip(tensors, part, strict=True):
                tensor[block] = rows

    def close(self) -> None:
        """See `KVStore.close`."""
        self.keys, self.values = [], []


class ReferenceExecutable:
    """Runs a graph in numpy. The work is done in `submit`; `collect` hands it over."""

    def __init__(self, graph: Graph, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
        self._interpreter = Interpreter(graph, weights)

    def submit(self, step: StepInput, kv: ReferenceKVStore) -> StepOutput:
        """See `Executable.submit`."""
        arrays = KVArrays.over(self._interpreter.graph, kv.keys, kv.values, kv.layout.block_size)
        arrays.copy_blocks(step.copies.tolist())
        outputs = self._interpreter.run(step.graph_inputs(), arrays)
        return StepOutput(logits=outputs["logits"].astype(np.float32, copy=False))

    def collect(self, ticket: StepOutput) -> StepOutput:
        """See `Executable.collect`."""
        return ticket


class LocalCommunicator:
    """Collectives in a group of one rank, where each is the identity."""

    rank = 0
    size = 1

    def all_reduce(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """See `Communicator.all_reduce`."""
        return x.copy()

    def all_gather(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """See `Communicator.all_gather`."""
        return x.copy()

    def reduce_scatter(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """See `Communicator.reduce_scatter`."""
        return x.copy()

    def all_to_all(self, parts: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """See `Communicator.all_to_all`."""
        return [part.copy() for part in parts]

    def broadcast(self, x: npt.NDArray[Any], root: int) -> npt.NDArray[Any]:
        """See `Communicator.broadcast`."""
        return x.copy()

    def barrier(self) -> None:
        """See `Communicator.barrier`."""

    def close(self) -> None:
        """See `Communicator.close`."""


class ReferenceDevice:
    """The host's memory and numpy as a device. ``memory`` reports the bytes there are."""

    def __init__(self, memory: Callable[[], MemoryReport]) -> None:
        self.memory = memory

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Dequantise every weight to float32; needs that size and one stored tensor more."""
        loaded = {}
        for done, name in enumerate(graph.weights):
            progress("loading weights", done, len(graph.weights))
            loaded[name] = dequantise(weights[name])
        progress("loading weights", len(graph.weights), len(graph.weights))
        return loaded

    def compile(self, graph: Graph, bucket: Bucket, weights: Any) -> ReferenceExecutable:
        """See `Device.compile`; the interpreter runs any sizes, so the bucket changes nothing."""
        unknown = sorted({n.op for n in graph.nodes} - set(OPS))
        if unknown:
            raise UnsupportedFeature(f"op {', '.join(unknown)} is not in the dialect", feature=unknown[0])
        return ReferenceExecutable(graph, weights)

    def allocate_kv(self, layout: KVLayout, blocks: int) -> ReferenceKVStore:
        """See `Device.allocate_kv`."""
        return ReferenceKVStore(layout, blocks)

    def sampler(self) -> Sampler | None:
        """The host samples."""
        return None

    def communicator(self, group: Sequence[int]) -> Communicator:
        """A group of one; UnsupportedFeature for more."""
        if len(group) != 1:
            raise UnsupportedFeature(f"the reference device spans 1 rank, not {len(group)}", feature="ranks")
        return LocalCommunicator()

    def health(self) -> str | None:
        """Numpy does not fall ill."""
        return None

    def close(self) -> None:
        """Nothing is held beyond what was handed out."""
