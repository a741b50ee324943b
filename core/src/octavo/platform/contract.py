"""The protocols: what core calls on a platform, and when.

A plugin implements `Platform` and `Device`; it may take `Executable` and `KVStore` from `octavo.platform.reference` until
it has its own. Every member is required: what a platform cannot do is a field of its `Capabilities`, not a missing method.

Processes and phases: ``info``, ``probe``, ``capabilities`` and ``negotiate`` are called in any process, before and without
``open``; they must be quick and import no vendor SDK. Only ``open`` may touch the device, once per rank, in the process
that serves. All calls on a device and on what it made come from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform.buckets import Bucket
from octavo.platform.info import Capabilities, PlatformInfo, Probe
from octavo.platform.negotiate import Plan, PlanRequest, Unsupported
from octavo.platform.step import SamplingBatch, Samples, StepInput, StepOutput
from octavo.quant import WeightTensor

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) during long work; total is in the same unit as done."""


@dataclass(frozen=True)
class Rank:
    """Which part of a model a device runs: its index, of how many. ``device`` selects among those the probe listed."""

    index: int = 0
    count: int = 1
    device: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """Device memory in bytes. ``free`` is what an allocation could get now."""

    total: int
    free: int


@dataclass(frozen=True)
class KVLayout:
    """The shape of the block pool.

    A block holds the keys and values of ``block_size`` tokens in the layers of one KV group; the pool has ``slots`` layer
    tensors, so that any block can serve any group. Block 0 is the null block: padding reads it, nobody owns it.
    """

    block_size: int
    slots: int
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all slots, keys and values."""
        element = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1}[self.dtype]
        return 2 * self.slots * self.block_size * self.kv_heads * self.head_dim * element


class KVStore(Protocol):
    """The block pool on a device. Core decides which block means what; the store only holds and moves them."""

    layout: KVLayout
    blocks: int
    """Number of blocks, the null block included."""

    def read_block(self, block: int) -> npt.NDArray[Any]:
        """A host copy of one block, [2, slots, block_size, kv_heads, head_dim] (keys, then values), float32."""

    def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
        """Set one block from an array as `read_block` gives it."""

    def close(self) -> None:
        """Free the memory. No step may be in flight."""


class Executable(Protocol):
    """A model compiled for one bucket."""

    def submit(self, step: StepInput, kv: KVStore) -> object:
        """Start a step and return a ticket, at once where the device works on its own.

        The step's arrays are the caller's again when `submit` returns. Steps take effect in the order of their submission.
        """

    def collect(self, ticket: Any) -> StepOutput:
        """Wait for a step. Each ticket is collected once, in the order of submission. Errors of the step surface here."""


class Sampler(Protocol):
    """Chooses tokens from logits. The reference is `octavo.runner.sampler.HostSampler`: same seeds, same tokens."""

    def sample(self, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
        """One token per draw from ``logits`` [S, V], which may be overwritten."""


class Communicator(Protocol):
    """Collectives among the ranks of one group, over host arrays; every rank calls the same ones in the same order.

    Results are equal on all ranks, bit for bit. A rank that dies makes the others raise within the group's timeout.
    """

    rank: int
    size: int

    def all_reduce(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The sum over ranks, same shape on each."""

    def all_gather(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The ranks' arrays joined along the first axis, in rank order."""

    def reduce_scatter(self, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """This rank's equal share, along the first axis, of the sum."""

    def all_to_all(self, parts: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Part i goes to rank i; returns what each rank sent here, in rank order."""

    def broadcast(self, x: npt.NDArray[Any], root: int) -> npt.NDArray[Any]:
        """The root's array, on every rank."""

    def barrier(self) -> None:
        """Return once every rank has called it."""

    def close(self) -> None:
        """Leave the group."""


class Device(Protocol):
    """One opened device."""

    def memory(self) -> MemoryReport:
        """What there is now."""

    def load(self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress) -> object:
        """Take the graph's weights and return a handle that every `compile` shares.

        ``weights`` reads lazily: fetch one tensor, convert it as the device likes, let go of it, so that loading needs
        the model's own size and one tensor more. Raises UnsupportedFeature, DeviceOutOfMemory.
        """

    def compile(self, graph: Graph, bucket: Bucket, weights: Any) -> Executable:
        """An executable of the graph for one bucket, over what `load` returned. Called before serving only.

        Raises UnsupportedFeature naming the node or format that it cannot run; it must never run one wrong.
        """

    def allocate_kv(self, layout: KVLayout, blocks: int) -> KVStore:
        """A pool of ``blocks`` blocks, the null block among them. Raises DeviceOutOfMemory."""

    def sampler(self) -> Sampler | None:
        """The device's own sampler for logits, or ``None`` to use the host's."""

    def communicator(self, group: Sequence[int]) -> Communicator:
        """Collectives among the ranks of ``group``."""

    def health(self) -> str | None:
        """``None`` while the device works, else a sentence on what is wrong."""

    def close(self) -> None:
        """Free everything. The device is not used again."""


class Platform(Protocol):
    """One kind of device, as a plugin presents it."""

    @property
    def info(self) -> PlatformInfo:
        """Who the platform is; constant."""

    def probe(self) -> Probe:
        """Whether this machine can run it, and why or why not. Never raises."""

    def capabilities(self) -> Capabilities:
        """What it can do; constant for a machine."""

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """What core should use for a model and settings, or a refusal. Pure: same request, same answer."""

    def open(self, rank: Rank) -> Device:
        """Open a device. Raises PlatformUnavailable or DeviceOutOfMemory."""
