"""The protocols: what core calls on a platform, and when.

A plugin implements `Platform` and `Device`; it may take `Executable` and `KVStore` from `octavo.platform.reference`
until it has its own. Every member is required: what a platform cannot do is a field of its `Capabilities`, not a
missing method.

The order of calls, each in its process and none skipped but where it says so:

    ===============================  =============================================================================
    any process, any number of times ``info``, ``probe``, ``capabilities``, ``negotiate``: quick, and no vendor SDK
                                     is imported
    the process that serves, once    ``open``, then on its device ``memory``, ``load``, ``compile`` for each bucket,
    for each rank                    ``memory`` again, ``kv_block_bytes``, ``allocate_kv``, ``sampler``
    while serving                    ``submit`` and ``collect``, over and over; ``health`` after a step that raised
    at the end                       `KVStore.close`, `Device.close`; after a failed start `Device.close` alone
    ahead of time, with no device    ``open`` with a `Rank.target`, ``load``, ``compile`` for each bucket, ``close``;
                                     what counts is what that leaves in `Rank.artifacts`, and no executable is run
    ===============================  =============================================================================

Calls on one device and on what it made never overlap, but they may come from different threads: a device is opened in
one and serves in another. A call that waits or computes for long lets Python's other threads run (it releases the GIL),
or nobody can notice that it does not come back. An exception that is not an `octavo.errors.OctavoError` counts as a bug
of the plugin; it is reported with its traceback.

A process that is forked after `open` need not have the device, but it must not wait for what a fork leaves behind, such
as threads: there a step works or raises PlatformUnavailable, and `Device.health` says why. Other processes open the
device anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.graph import Graph
from octavo.platform.artifacts import ArtifactStore
from octavo.platform.buckets import Bucket
from octavo.platform.info import Capabilities, PlatformInfo, Probe
from octavo.platform.layout import KVLayout
from octavo.platform.negotiate import Plan, PlanRequest, Unsupported
from octavo.platform.step import Samples, SamplingBatch, StepInput, StepOutput
from octavo.quant import WeightTensor

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) during long work, ``what`` in the words of a progress bar ("loading weights").
``done`` and ``total`` have the same unit; the last call has them equal."""


@dataclass(frozen=True)
class Rank:
    """Which part of a model a device runs: its ``index``, of ``count`` ranks.

    ``device`` is an index into `Probe.devices`. ``threads`` is how many of the host's cores the device may keep busy;
    ``None`` leaves that to the platform. ``artifacts`` is where the device finds, and keeps, what it compiles or packs;
    the default keeps nothing. ``target`` is set where core compiles ahead of time: one of `Capabilities.targets`, the
    kind of device to compile for (and the ``device`` of the artifact keys). No device is there then, none is touched.
    """

    index: int = 0
    count: int = 1
    device: int = 0
    threads: int | None = None
    artifacts: ArtifactStore = field(default_factory=ArtifactStore, compare=False, repr=False)
    target: str | None = None

    @property
    def mesh(self) -> tuple[int, int]:
        """The rank and how many there are, as artifact keys have them."""
        return self.index, self.count


@dataclass(frozen=True)
class MemoryReport:
    """Device memory in bytes.

    ``total`` is what ``memory_utilization`` is a part of, ``free`` what an allocation could get now.
    """

    total: int
    free: int


class KVStore(Protocol):
    """The block pool on a device. Core decides which block means what; the store only holds and moves them.

    What a block holds before it is written is undefined, and a freed block keeps what it held: attention must let
    nothing through from beyond a row's context, not even as 0 * NaN.
    """

    layout: KVLayout
    blocks: int
    """Number of blocks, the null block included; ids are 0 to ``blocks - 1``."""

    def read_block(self, block: int) -> npt.NDArray[Any]:
        """A host copy of one block, float32 [2, slots, block_size, kv_heads, head_dim]: keys, then values.

        Tests compare by it, and later the tiers below the device are filled through it. Waits for the steps in flight.
        """

    def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
        """Set one block from an array as `read_block` gives it, rounded to the layout's dtype."""

    def close(self) -> None:
        """Free the memory. No step is in flight, and none follows."""


class Executable(Protocol):
    """A model compiled for one bucket."""

    def submit(self, step: StepInput, kv: Any) -> object:
        """Start a step in this bucket and return a ticket, at once where the device works on its own.

        ``kv`` is what the device's `Device.allocate_kv` returned. The step's arrays are the caller's again when
        `submit` returns. Steps take effect in the order of their submission: block copies first, then each layer
        writes the keys and values of the step's tokens before its attention reads.

        Core may submit a step before it has collected the one before. A step that raises, here or in `collect`, may
        have made its copies and written its own slots, and nothing else; its rows run again unless `Device.health` is
        bad. DeviceOutOfMemory says that there was no room for this step, PlatformUnavailable that the device is lost.
        """

    def collect(self, ticket: Any) -> StepOutput:
        """Wait for a step and return what it brings. Each ticket is collected once, in the order of submission.

        The arrays are the caller's, who may overwrite them; the device does not touch them until the next `collect`.
        """


class Sampler(Protocol):
    """Chooses tokens from logits. The meaning is in `octavo.platform.step.SamplingBatch`: same seeds, same tokens."""

    def sample(self, logits: npt.NDArray[np.float32], batch: SamplingBatch) -> Samples:
        """One token per draw from ``logits`` [S, V] in host memory, which may be overwritten. Called after
        `Executable.collect`.
        """


class Device(Protocol):
    """One opened device."""

    def memory(self) -> MemoryReport:
        """What there is now. Core asks before `load` and after the last `compile`; the pool is sized by the second
        answer.
        """

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> object:
        """Take the graph's weights and return a handle that every `compile` is given. Called once.

        ``graph`` has been through `octavo.graph.fuse`; its activation dtype (``graph.dtype``) and the formats of its
        weights are among those declared. ``weights`` has exactly the names of ``graph.weights`` and reads lazily:
        fetch one tensor, convert it as the device likes, let go of it, so that loading needs the model's own size and
        one tensor more. A tensor's bytes may be a read-only map of the checkpoint. ``files`` are the checkpoint's, for
        a device that keeps what it makes of them in `Rank.artifacts`; empty where the weights come from no file.

        Raises UnsupportedFeature, DeviceOutOfMemory saying how much was needed and how much is free, or what the store
        raises.
        """

    def compile(self, graph: Graph, bucket: Bucket, weights: Any, layout: KVLayout) -> Executable:
        """An executable of the graph for one bucket, over what `load` returned. Called before serving only.

        ``graph`` is the one that was loaded, with its symbols free; `octavo.graph.specialise` fixes them to the
        bucket's sizes. ``layout`` is that of the pool to come; its length is not known yet, and what depends on it is
        finished in `allocate_kv`. Whatever a step needs besides the block pool must be allocated when this returns:
        core gives the pool what `memory` then calls free.

        What takes long to compile is opened through `Rank.artifacts`, under a key of all that it depends on. Raises
        UnsupportedFeature naming the node or format that it cannot run (it must never run one wrong),
        DeviceOutOfMemory, or what the store raises. After an ArtifactMissing core goes on to the next bucket, to name
        all that are missing.
        """

    def kv_block_bytes(self, layout: KVLayout) -> int:
        """What one more block of the pool takes of `memory`, padding, scales and spare copies included; core sizes the
        pool by it. `KVLayout.block_bytes` where a device keeps nothing but the values.
        """

    def allocate_kv(self, layout: KVLayout, blocks: int) -> KVStore:
        """A pool of ``blocks`` blocks, the null block among them. Called once, after the last `compile`.

        The layout is that which `compile` was given. Raises DeviceOutOfMemory.
        """

    def sampler(self) -> Sampler | None:
        """The device's own sampler for logits, or ``None`` to use the host's. Not used for steps that bring samples."""

    def report(self) -> Mapping[str, str]:
        """What the device tells a person who asks how it works: what it chose, what it measured, by name, in order.

        Called outside serving (``octavo platforms explain``); may measure for a few seconds.
        """

    def health(self) -> str | None:
        """``None`` while the device works, else a sentence on what is wrong. Must not raise.

        Asked after a step raised: ``None`` means that the next step can succeed, anything else ends the engine.
        """

    def close(self) -> None:
        """Free everything, the pool and executables included. Called once; the device is not used again, but
        `Platform.open` may be asked for it anew. Must not raise.
        """


class Platform(Protocol):
    """One kind of device, as a plugin presents it."""

    @property
    def info(self) -> PlatformInfo:
        """Who the platform is; constant."""

    def probe(self) -> Probe:
        """Whether this machine can run it, and why or why not. Must not raise.

        It may look at files and devices nodes, but must neither initialise the device nor import an SDK in this
        process: an SDK that may abort, hang or take the device is asked in a subprocess with a timeout.
        """

    def capabilities(self) -> Capabilities:
        """What it can do; constant for a machine. Also asked where `probe` says unavailable."""

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """What core should use for a model and settings, or a refusal. `negotiate_by_declaration` is enough for most.

        Pure: same request, same answer, and a request whose settings are a plan's gets that plan. What the user set
        (not ``None``) stands in the plan unchanged, or is refused. Core compares, and treats a difference as the
        plugin's bug.
        """

    def open(self, rank: Rank) -> Device:
        """Open a device: the first call that may import the SDK and touch it; with a `Rank.target`, one that only
        compiles, and touches none.

        Raises PlatformUnavailable if it cannot be had (busy, lost since the probe), or DeviceOutOfMemory.
        """
