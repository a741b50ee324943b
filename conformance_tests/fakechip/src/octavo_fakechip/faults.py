"""Faults on demand: what goes wrong, and where."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast

from octavo.errors import DeviceOutOfMemory, PlatformUnavailable

Kind = Literal["oom", "lost", "hang", "slow"]
Place = Literal["open", "load", "compile", "kv", "step", "rows", "token"]

_FORM = re.compile(
    r"(?P<kind>oom|lost|hang|slow=(?P<seconds>[\d.]+))@"
    r"(?P<place>open|load|compile|kv|(?P<counted>step|rows|token):(?P<number>\d+)(?P<on>\+?))"
)


@dataclass(frozen=True)
class Fault:
    """One fault: its ``kind``, and the ``place`` where it strikes.

    ``number`` is the step's for ``step`` (from 1; ``on``: this one and all after it), the least rows for ``rows``, the
    id for ``token``.
    """

    kind: Kind
    place: Place
    number: int = 0
    on: bool = False
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Fault:
        """``KIND@PLACE`` as the README says. Raises ValueError."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise ValueError("a fault is oom, lost, hang or slow=SECONDS, @, and a place: see the README of the chip")
        return cls(
            cast(Kind, found["kind"].partition("=")[0]),
            cast(Place, found["counted"] or found["place"]),
            int(found["number"] or 0),
            found["on"] == "+",
            float(found["seconds"] or 0),
        )

    def strikes(self, place: Place, step: int, rows: int, tokens: frozenset[int]) -> bool:
        """Whether this is where it happens. ``step`` is also the place of what counts rows and tokens."""
        match self.place:
            case "step":
                return place == "step" and (step == self.number or (self.on and step > self.number))
            case "rows":
                return place == "step" and rows >= self.number
            case "token":
                return place == "step" and self.number in tokens
            case _:
                return place == self.place


class Faults:
    """The faults of one chip. `plant` and `clear` may be called at any time, from any thread."""

    def __init__(self, planted: Iterable[Fault] = ()) -> None:
        self.planted = tuple(planted)
        self.lost: str | None = None
        """Why the chip is gone, once it is."""
        self.hung = threading.Event()
        """Set while a call does not come back."""
        self._released = threading.Event()
        self._process = os.getpid()

    def plant(self, *faults: str) -> None:
        """Add faults, as the README writes them."""
        self.planted += tuple(map(Fault.parse, faults))

    def clear(self) -> None:
        """Remove all faults; what is lost stays lost."""
        self.planted = ()

    def release(self) -> None:
        """Let go whatever hangs now, and whatever would."""
        self._released.set()

    def meet(self, place: Place, *, step: int = 0, rows: int = 0, tokens: frozenset[int] = frozenset()) -> None:
        """Suffer the faults of a place. Raises DeviceOutOfMemory, or PlatformUnavailable once the chip is lost."""
        self.check()
        for fault in self.planted:
            if fault.strikes(place, step, rows, tokens):
                self._suffer(fault, f"{place} {step}" if place == "step" else place)
        self.check()

    def check(self) -> None:
        """Raise PlatformUnavailable if the chip is lost."""
        why = self.why_gone()
        if why is not None:
            raise PlatformUnavailable(f"fakechip: {why}")

    def why_gone(self) -> str | None:
        """A sentence if the chip cannot be used any more, or not in this process."""
        if os.getpid() != self._process:
            return f"process {os.getpid()} is a fork of process {self._process}, which has the chip; open it anew"
        return self.lost

    def _suffer(self, fault: Fault, where: str) -> None:
        match fault.kind:
            case "slow":
                time.sleep(fault.seconds)
            case "oom":
                raise DeviceOutOfMemory(f"fakechip: {where} needs 64.0 MiB and 0.0 MiB are free (a planted fault)")
            case "lost":
                self.lost = f"the chip fell off the bus at {where}"
            case "hang":
                self.hung.set()
                self._released.wait()
                self.hung.clear()
