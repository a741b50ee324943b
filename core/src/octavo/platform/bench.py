"""The ``bench`` facet: a device measures its own kernels, and the parts of a whole step.

A platform whose `PlatformInfo.contract` names the facet meets `BenchDevice` and `BenchExecutable`; others need not.
``octavo bench kernels`` asks, prints and compares; what a kernel is, only the platform knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from octavo.errors import UnsupportedFeature
from octavo.graph import Graph
from octavo.platform.contract import Device, Executable, Platform, Rank
from octavo.platform.step import StepInput

FACET = "bench"


@dataclass(frozen=True)
class KernelTime:
    """One kernel, measured.

    ``kernel`` says what it does ("matmul q4_0"), ``case`` on what ("1536x576, 8 rows"), ``threads`` how many host cores
    did it together, 0 where none did. ``seconds`` is the median, ``fastest`` the shortest of many times. ``bytes`` is
    what it must read and write, ``operations`` what it must compute, in the numbers of ``arithmetic`` ("int8"); a
    multiply-add is two. ``bandwidth`` (bytes per second) and ``peak`` (operations per second) are the device's measured
    ceilings, or ``None``: for a bandwidth where the bytes come from caches.
    """

    kernel: str
    case: str
    threads: int
    seconds: float
    fastest: float
    bytes: float
    operations: float
    arithmetic: str
    bandwidth: float | None
    peak: float | None

    @property
    def bandwidth_share(self) -> float | None:
        """Achieved bytes per second, of those that the memory gives."""
        return self.bytes / self.seconds / self.bandwidth if self.bandwidth else None

    @property
    def peak_share(self) -> float | None:
        """Achieved operations per second, of the most that there are."""
        return self.operations / self.seconds / self.peak if self.peak else None


@dataclass(frozen=True)
class PartTime:
    """All of a step that does one kind of thing, over all layers.

    ``working`` and ``waiting`` are seconds, means over the workers: at work, and until the slowest worker was done.
    ``limit`` is the seconds that the device's measured ceilings allow, ``None`` where they say nothing about the part.
    """

    part: str
    working: float
    waiting: float
    bytes: float
    operations: float
    limit: float | None


@dataclass(frozen=True)
class StepTimes:
    """A step, measured: ``seconds`` is the median and ``fastest`` the shortest of the rounds.

    ``parts`` are those of the median round, the longest first; what they leave of ``seconds`` is spent outside of them.
    """

    seconds: float
    fastest: float
    parts: tuple[PartTime, ...]


class BenchDevice(Device, Protocol):
    """A device whose platform names the ``bench`` facet. Its `Device.compile` returns a `BenchExecutable`."""

    def kernel_times(self, graph: Graph | None, only: str) -> Iterator[KernelTime]:
        """Measure kernels one after the other, weights and cache coming from memory as they do in a model.

        ``graph``, fused, says which formats and shapes; ``None``: the platform's own choice of common ones. ``only``
        leaves out kernels whose name does not contain it. Takes at most seconds for each. Called outside serving; the
        device need not have loaded anything.
        """


class BenchExecutable(Executable, Protocol):
    """An executable that says where a step's time goes."""

    def step_times(self, step: StepInput, kv: Any, rounds: int) -> StepTimes:
        """Run a step ``rounds`` times, as `Executable.submit` does, and once before to warm up. Not while serving."""


def open_bench(platform: Platform, rank: Rank) -> BenchDevice:
    """Open a device to measure. Raises UnsupportedFeature if its platform does not name the ``bench`` facet."""
    if FACET not in platform.info.contract:
        raise UnsupportedFeature(
            f"{platform.info.name}: it does not measure its kernels (its contract names no {FACET} facet); "
            "octavo bench throughput and latency work on every platform",
            feature=FACET,
        )
    return cast(BenchDevice, platform.open(rank))
