"""The compiler where there is no chip: what it makes is left in the rank's artifact store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from octavo.errors import PlatformUnavailable, UnsupportedFeature
from octavo.graph import Graph
from octavo.platform import Bucket, KVLayout, MemoryReport, Progress, Rank, StepInput
from octavo.quant import WeightTensor
from octavo_fakechip.compiler import Compiler, Program
from octavo_fakechip.habits import NAME, TARGET
from octavo_fakechip.settings import Settings


class OfflineCompiler:
    """Meets `octavo.platform.Device` as far as one can that has no device. Raises UnsupportedFeature for a target that
    there is not.
    """

    def __init__(self, settings: Settings, rank: Rank) -> None:
        if rank.target != TARGET:
            raise UnsupportedFeature(f"{NAME}: it compiles for {TARGET}, not {rank.target}", feature="target")
        self._compiler = Compiler(rank, settings.compiler, lambda: time.sleep(settings.compile_seconds))

    def memory(self) -> MemoryReport:
        """There is none."""
        return MemoryReport(0, 0)

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> None:
        """Programs hold no weights, so none is read."""

    def compile(self, graph: Graph, bucket: Bucket, weights: None, layout: KVLayout) -> OfflineProgram:
        """See `Device.compile`."""
        return OfflineProgram(self._compiler.program(graph, bucket, layout))

    def allocate_kv(self, layout: KVLayout, blocks: int) -> NoReturn:
        """Nowhere to put it."""
        _refuse()

    def kv_block_bytes(self, layout: KVLayout) -> NoReturn:
        """Nothing is allocated."""
        _refuse()

    def sampler(self) -> None:
        """The host samples."""

    def report(self) -> Mapping[str, str]:
        """See `Device.report`."""
        return {"target": TARGET}

    def health(self) -> str | None:
        """See `Device.health`."""
        return None

    def close(self) -> None:
        """Nothing is held."""


class OfflineProgram:
    """A program that nothing here can run."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def submit(self, step: StepInput, kv: object) -> NoReturn:
        """See `Executable.submit`."""
        _refuse()

    def collect(self, ticket: object) -> NoReturn:
        """See `Executable.collect`."""
        _refuse()


def _refuse() -> NoReturn:
    raise PlatformUnavailable(f"{NAME}: it was opened to compile for {TARGET}, and there is no device")
