"""The chip as core drives it: device, block pool, executables."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import UnsupportedFeature
from octavo.graph import Graph
from octavo.platform import (
    Bucket,
    KVLayout,
    MemoryReport,
    Progress,
    Rank,
    Sampler,
    StepInput,
    StepOutput,
)
from octavo.quant import WeightTensor, dequantise
from octavo_fakechip.checks import check_step
from octavo_fakechip.compiler import Compiler, Program
from octavo_fakechip.executor import Pages, copy_blocks, empty_page, run
from octavo_fakechip.faults import Faults
from octavo_fakechip.habits import BLOCK, NAME, padded
from octavo_fakechip.memory import DeviceBuffer, Memory, size_on_chip
from octavo_fakechip.queue import Queue
from octavo_fakechip.settings import Settings

Weights = dict[str, DeviceBuffer]
Ticket = Future[DeviceBuffer]


@dataclass
class Counters:
    """What a chip has done."""

    compiles: int = 0
    """Programs made; those found in the artifact store are not."""
    compiles_after_warmup: int = 0
    """Those after the pool was there: somebody waited for them."""
    steps: int = 0
    most_in_flight: int = 0


class FakeChip:
    """Meets `octavo.platform.FaultyDevice`. Tests plant ``faults`` and read ``counters``."""

    def __init__(self, settings: Settings, rank: Rank) -> None:
        self.faults = Faults(settings.faults)
        self.faults.meet("open")
        self.counters = Counters()
        self.chip_memory = Memory(settings.memory)
        self.queue = Queue(settings.delay)
        self.tickets: deque[Ticket] = deque()
        """Of the steps that are submitted and not collected, in order."""
        self._settings = settings
        self._compiler = Compiler(rank, settings.compiler, self._compiled)
        self._scratch = 0
        self._serving = False
        self._handed_out: npt.NDArray[np.float32] | None = None

    def memory(self) -> MemoryReport:
        """See `Device.memory`."""
        return MemoryReport(self.chip_memory.total, self.chip_memory.total - self.chip_memory.taken)

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> Weights:
        """Every weight in float32. See `Device.load`."""
        self.faults.meet("load")
        self.chip_memory.take(sum(size_on_chip(spec.shape) for spec in graph.weights.values()), "loading the weights")
        loaded: Weights = {}
        for done, name in enumerate(graph.weights):
            progress("loading weights", done, len(graph.weights))
            loaded[name] = self.chip_memory.upload(dequantise(weights[name]))
        progress("loading weights", len(graph.weights), len(graph.weights))
        return loaded

    def compile(self, graph: Graph, bucket: Bucket, weights: Weights, layout: KVLayout) -> ChipExecutable:
        """See `Device.compile`."""
        self.faults.meet("compile")
        program = self._compiler.program(graph, bucket, layout)
        if program.scratch > self._scratch:  # programs run one at a time, in the room of the largest
            self.chip_memory.take(program.scratch - self._scratch, f"a program for {bucket}")
            self._scratch = program.scratch
        return ChipExecutable(self, program, weights)

    def allocate_kv(self, layout: KVLayout, blocks: int) -> ChipKVStore:
        """See `Device.allocate_kv`."""
        if layout.block_size != BLOCK or layout.dtype != "f32":
            raise UnsupportedFeature(
                f"{NAME}: its blocks hold {BLOCK} tokens in f32, not {layout.block_size} in {layout.dtype}",
                feature=f"block_size {layout.block_size}",
            )
        self.faults.meet("kv")
        self._serving = True
        return ChipKVStore(self, layout, blocks)

    def kv_block_bytes(self, layout: KVLayout) -> int:
        """See `Device.kv_block_bytes`: every row is padded to whole lanes."""
        return 2 * layout.slots * layout.block_size * layout.kv_heads * padded(layout.head_dim) * 4

    def sampler(self) -> Sampler | None:
        """The host samples."""
        return None

    def report(self) -> Mapping[str, str]:
        """See `Device.report`."""
        return {
            "memory": f"{self.chip_memory.total / 2**20:.0f} MiB",
            "compiles": str(self.counters.compiles),
            "compiles after warm-up": str(self.counters.compiles_after_warmup),
            "steps": str(self.counters.steps),
        }

    def health(self) -> str | None:
        """See `Device.health`."""
        return self.faults.why_gone()

    def inject(self, kind: str, step: int) -> None:
        """See `FaultyDevice.inject`."""
        self.faults.plant(f"{kind}@step:{self.counters.steps + step}")

    def close(self) -> None:
        """See `Device.close`; what hangs is let go first."""
        self.faults.release()
        self.queue.close()

    def _compiled(self) -> None:
        time.sleep(self._settings.compile_seconds)
        self.counters.compiles += 1
        self.counters.compiles_after_warmup += self._serving

    # -- for what it made ------------------------------------------------------------------------

    def hand_out(self, logits: DeviceBuffer) -> npt.NDArray[np.float32]:
        """Logits in host memory. Those of the collect before are the chip's again, and it makes use of that."""
        if self._handed_out is not None:
            self._handed_out.fill(np.nan)
        self._handed_out = self.chip_memory.download(logits)
        return self._handed_out


class ChipKVStore:
    """Meets `octavo.platform.KVStore`: a mapping of blocks to pages, of which the queue alone makes another."""

    def __init__(self, chip: FakeChip, layout: KVLayout, blocks: int) -> None:
        self.layout = layout
        self.blocks = blocks
        self._chip = chip
        self._taken = chip.chip_memory.take(blocks * chip.kv_block_bytes(layout), f"a pool of {blocks} blocks")
        self.pages: Pages = {}

    def read_block(self, block: int) -> npt.NDArray[Any]:
        """See `KVStore.read_block`; NaN where nobody wrote."""
        self._chip.faults.check()
        return self._chip.queue.put(lambda: self._read(block)).result()

    def _read(self, block: int) -> npt.NDArray[Any]:
        self._chip.faults.check()
        memory, layout = self._chip.chip_memory, self.layout
        held = [self.pages.get((slot, block)) for slot in range(layout.slots)]
        empty = empty_page(layout.kv_heads, layout.head_dim)
        return np.stack([empty if page is None else memory.download(page) for page in held], axis=1)

    def write_block(self, block: int, data: npt.NDArray[Any]) -> None:
        """See `KVStore.write_block`."""
        self._chip.faults.check()
        new = {
            (slot, block): self._chip.chip_memory.upload(data[:, slot].astype(np.float32))
            for slot in range(self.layout.slots)
        }
        self._chip.queue.put(lambda: self._replace(new)).result()

    def _replace(self, new: Pages) -> None:
        self._chip.faults.check()
        self.pages = {**self.pages, **new}

    def close(self) -> None:
        """See `KVStore.close`."""
        self.pages = {}
        self._chip.chip_memory.give(self._taken)
        self._taken = 0


class ChipExecutable:
    """Meets `octavo.platform.Executable`: one program, and the weights it is run with."""

    def __init__(self, chip: FakeChip, program: Program, weights: Weights) -> None:
        self.program = program
        self._chip = chip
        self._weights = weights

    def submit(self, step: StepInput, kv: ChipKVStore) -> Ticket:
        """See `Executable.submit`: the step's arrays are copied to the chip, the rest happens later."""
        chip = self._chip
        chip.faults.check()
        check_step(step, self.program, kv.blocks)
        chip.counters.steps += 1
        number, copies = chip.counters.steps, step.copies.copy()
        inputs = {name: chip.chip_memory.upload(array) for name, array in step.graph_inputs().items()}
        live = frozenset(step.tokens[: step.query_starts[-1]].tolist())
        rows = int((np.diff(step.query_starts) > 0).sum())

        def work() -> DeviceBuffer:
            chip.faults.meet("step", step=number, rows=rows, tokens=live)
            copied = copy_blocks(kv.pages, copies)
            logits, pages = run(self.program, chip.chip_memory, self._weights, inputs, copied)
            kv.pages = pages  # only now: a step that failed has changed nothing
            return logits

        ticket = chip.queue.put(work)
        chip.tickets.append(ticket)
        chip.counters.most_in_flight = max(chip.counters.most_in_flight, len(chip.tickets))
        return ticket

    def collect(self, ticket: Ticket) -> StepOutput:
        """See `Executable.collect`."""
        if not self._chip.tickets or self._chip.tickets[0] is not ticket:
            raise RuntimeError(f"{NAME}: core broke the contract: steps are collected once, in the order of submission")
        self._chip.tickets.popleft()
        return StepOutput(logits=self._chip.hand_out(ticket.result()))
