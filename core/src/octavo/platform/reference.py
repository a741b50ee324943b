"""The reference device: a whole platform's inside in numpy, float32, on the host.

It is what a new plugin starts from: return `ReferenceDevice` from ``open`` and the first token comes out. Give it
kernels of your own, op by op; then subclass it and replace `load`, `compile` and the store by the device's own, one at
a time. It is slow and right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.config import typed
from octavo.errors import DeviceOutOfMemory, PlatformError, UnsupportedFeature
from octavo.graph import OPS, Graph, Interpreter, Kernel, KVArrays
from octavo.platform.buckets import Bucket
from octavo.platform.contract import MemoryReport, Progress, Sampler
from octavo.platform.info import Capabilities
from octavo.platform.layout import KVLayout
from octavo.platform.step import StepInput, StepOutput
from octavo.quant import FORMATS, WeightTensor, dequantise

REFERENCE_CAPABILITIES = Capabilities(
    ops=frozenset(name for name, op in OPS.items() if op.across is None),  # it spans no ranks
    weight_formats=frozenset(FORMATS),
    block_sizes=(16, 1, 2, 4, 8, 32, 64, 128, 256),
    attention=frozenset({"window", "softcap", "sinks", "bidirectional"}),
)
"""What the reference device can do: everything, in float32. A platform that starts from it declares no more."""

_NO_KERNELS: Mapping[str, Kernel] = MappingProxyType({})


class ReferenceKVStore:
    """A block pool in host memory, per slot two arrays [blocks, block_size, kv_heads, head_dim].

    Its pages take memory only once they are written. Raises UnsupportedFeature for a dtype that is not f32, and
    DeviceOutOfMemory if the system refuses.
    """

    def __init__(self, layout: KVLayout, blocks: int) -> None:
        _require_f32("kv_cache_dtype", layout.dtype)
        self.layout = layout
        self.blocks = blocks
        shape = (blocks, layout.block_size, layout.kv_heads, layout.head_dim)
        try:
            self.keys = [np.zeros(shape, np.float32) for _ in range(layout.slots)]
            self.values = [np.zeros(shape, np.float32) for _ in range(layout.slots)]
        except MemoryError as error:
            raise DeviceOutOfMemory(
                f"there is no memory for a KV pool of {blocks * layout.block_bytes / 2**30:.2f} GiB; "
                f"lower --memory-utilization ({error})"
            ) from error

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
    """Runs a graph in numpy, over the float32 arrays of its weights, and brings its output ``logits`` or ``pooled``.

    The work is done in `submit`; `collect` hands it over. ``kernels`` are used for the ops that they name. Raises
    UnsupportedFeature for an op that is not in the dialect.
    """

    def __init__(
        self, graph: Graph, weights: Mapping[str, npt.NDArray[np.float32]], kernels: Mapping[str, Kernel] = _NO_KERNELS
    ) -> None:
        for node in graph.nodes:
            if node.op not in OPS:
                raise UnsupportedFeature(
                    f"op {node.op} of node {node.scope or '(top)'} -> {', '.join(node.outputs)} is not in the dialect",
                    feature=f"op {node.op}",
                )
        self._interpreter = Interpreter(graph, weights, kernels=kernels)

    def submit(self, step: StepInput, kv: ReferenceKVStore) -> StepOutput:
        """See `Executable.submit`."""
        arrays = KVArrays.over(self._interpreter.graph, kv.keys, kv.values, kv.layout.block_size)
        arrays.copy_blocks(step.copies.tolist())
        outputs = self._interpreter.run(step.graph_inputs(), arrays)
        logits, pooled = (
            outputs[name].astype(np.float32, copy=False) if name in outputs else None for name in ("logits", "pooled")
        )
        return StepOutput(logits=logits, pooled=pooled)

    def collect(self, ticket: StepOutput) -> StepOutput:
        """See `Executable.collect`."""
        return ticket


class ReferenceDevice:
    """The host's memory and numpy as a device. ``memory`` is called for `Device.memory`.

    ``kernels`` run in place of the references, by op. One is given a `octavo.graph.Call` and returns what the op's
    reference (`octavo.graph.OPS`) would. Raises PlatformError for a kernel of an op that there is not.
    """

    def __init__(self, memory: Callable[[], MemoryReport], kernels: Mapping[str, Kernel] = _NO_KERNELS) -> None:
        unknown = sorted(set(kernels) - set(OPS))
        if unknown:
            raise PlatformError(f"there is no op {', '.join(unknown)} to have a kernel for; ops are {', '.join(OPS)}")
        self.memory = memory
        self.kernels = kernels

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> dict[str, npt.NDArray[np.float32]]:
        """Every weight as float32, by name; needs that size and one stored tensor more. See `Device.load`."""
        _require_f32("dtype", graph.dtype)
        loaded = {}
        for done, name in enumerate(graph.weights):
            progress("loading weights", done, len(graph.weights))
            try:
                loaded[name] = dequantise(weights[name])
            except MemoryError as error:
                needed, free = 4 * math.prod(graph.weights[name].shape), self.memory().free
                raise DeviceOutOfMemory(
                    f"weight {name} needs {needed / 2**30:.2f} GiB as float32 and {free / 2**30:.2f} GiB of memory are "
                    "free; free some, or choose a smaller model"
                ) from error
        progress("loading weights", len(graph.weights), len(graph.weights))
        return loaded

    def compile(self, graph: Graph, bucket: Bucket, weights: Any, layout: KVLayout) -> ReferenceExecutable:
        """See `Device.compile`; the interpreter runs any sizes over any pool, so neither changes anything."""
        return ReferenceExecutable(graph, weights, self.kernels)

    def kv_block_bytes(self, layout: KVLayout) -> int:
        """Nothing but the values."""
        return layout.block_bytes

    def allocate_kv(self, layout: KVLayout, blocks: int) -> ReferenceKVStore:
        """See `Device.allocate_kv`. The system may promise more memory than there is, so that is looked at first."""
        needed, total = blocks * self.kv_block_bytes(layout), self.memory().total
        if needed > total:
            raise DeviceOutOfMemory(
                f"a KV pool of {blocks} blocks needs {needed / 2**30:.2f} GiB and there are {total / 2**30:.2f} GiB of "
                "memory; lower --memory-utilization"
            )
        return ReferenceKVStore(layout, blocks)

    def sampler(self) -> Sampler | None:
        """The host samples."""
        return None

    def report(self) -> Mapping[str, str]:
        """See `Device.report`."""
        own = {"own kernels": ", ".join(sorted(self.kernels))} if self.kernels else {}
        rest = ", ".join(sorted(set(OPS) - set(self.kernels))) or "none"
        return {
            "arithmetic": "numpy, float32", **own, "reference kernels": rest,
            "memory free": f"{self.memory().free / 2**30:.1f} GiB",
        }  # fmt: skip

    def health(self) -> str | None:
        """Numpy does not fall ill."""
        return None

    def close(self) -> None:
        """Nothing is held beyond what was handed out."""


def _require_f32(setting: str, dtype: str) -> None:
    if dtype != "f32":
        raise UnsupportedFeature(
            f"{setting} {typed(setting, dtype)} is not supported by the reference device, which computes in float32; "
            "declare f32 alone, or bring a device of your own",
            feature=f"{setting} {typed(setting, dtype)}",
        )
