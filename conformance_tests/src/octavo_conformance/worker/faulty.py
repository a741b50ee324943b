"""Faults around any device: what core sees of a device that fails, whatever it is made of."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.errors import DeviceOutOfMemory, PlatformUnavailable
from octavo.platform import Device, Executable, KVStore, Platform, StepInput, StepOutput
from octavo_conformance.mutants.wrapped import Altered, Wrapped


@dataclass(frozen=True)
class Planted:
    """``kind`` is raise, oom, lost, hang or slow. It strikes once, at step ``step`` (from 1) or the first after it that
    is no repetition of a step that another struck; with ``step`` 0 every step, with ``token`` those that hold it.
    ``late``: only when the device has done the work.
    """

    kind: str
    step: int = -1
    token: int = -1
    late: bool = False
    seconds: float = 0.0


class Faulty(Wrapped):
    """Any platform, with faults planted around what its device does."""

    def __init__(self, inner: Platform, faults: Sequence[Planted]) -> None:
        super().__init__(inner)
        self.faults = list(faults)
        self.steps = 0
        self.struck = 0
        self.lost = ""
        self.released = threading.Event()
        self._late: dict[int, Planted] = {}
        self._repeated = 0
        """Steps to come that repeat the rows of one that failed."""

    def device(self, device: Device) -> Device:
        mutant = self

        class Failing(Altered):
            def health(self) -> str | None:
                health: str | None = mutant.lost or self.inner.health()
                return health

        return Failing(device)  # the rest of it is the inner one's

    def submit(self, executable: Executable, step: StepInput, store: KVStore) -> Any:
        self.steps += 1
        live = step.tokens[: int(step.query_starts[-1])]
        fault = next((f for f in self.faults if self._strikes(f, live)), None)
        self._repeated = max(0, self._repeated - 1)
        if fault is not None and fault.step > 0:
            self.faults.remove(fault)
            self._repeated = int((np.diff(step.query_starts) > 0).sum())
        if fault is not None and not fault.late:
            self._suffer(fault)
        ticket = executable.submit(step, store)
        if fault is not None and fault.late:
            self._late[id(ticket)] = fault
        return ticket

    def collect(self, executable: Executable, ticket: Any) -> StepOutput:
        output = executable.collect(ticket)
        fault = self._late.pop(id(ticket), None)
        if fault is not None:
            self._suffer(fault)
        return output

    def _strikes(self, fault: Planted, live: np.ndarray[Any, Any]) -> bool:
        due = 0 < fault.step <= self.steps and not self._repeated
        return due or fault.step == 0 or bool((live == fault.token).any())

    def _suffer(self, fault: Planted) -> None:
        self.struck += 1
        match fault.kind:
            case "raise":
                raise RuntimeError("a kernel failed (a planted fault)")
            case "oom":
                raise DeviceOutOfMemory("a step needs 64 MiB and 0 are free (a planted fault)")
            case "lost":
                self.lost = "the device fell off the bus (a planted fault)"
                raise PlatformUnavailable(self.lost)
            case "hang":
                self.released.wait()
            case "slow":
                time.sleep(fault.seconds)
            case other:
                raise ValueError(f"there is no fault {other!r}")
