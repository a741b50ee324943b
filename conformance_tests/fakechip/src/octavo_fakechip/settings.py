"""How a chip is set up: in code, or by the environment variable that processes inherit."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from octavo.errors import PlatformError
from octavo_fakechip.faults import Fault
from octavo_fakechip.habits import VERSION

VARIABLE = "OCTAVO_FAKECHIP"
_KEYS = "memory, delay, compile, compiler and fault"
_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30}


@dataclass(frozen=True)
class Settings:
    """What a chip has and does."""

    memory: int = 2**30
    """Bytes on the chip."""
    delay: float = 0.0005
    """Seconds that a program waits in the queue, at most."""
    compile_seconds: float = 0.0
    """Seconds that a compilation takes."""
    compiler: str = VERSION
    """Version of the compiler; programs of all of them run."""
    faults: tuple[Fault, ...] = field(default=())

    @classmethod
    def from_environment(cls) -> Settings:
        """What `VARIABLE` says, the defaults where it is silent. Raises PlatformError for what it cannot mean."""
        return cls.parse(os.environ.get(VARIABLE, ""))

    @classmethod
    def parse(cls, text: str) -> Settings:
        """The settings that ``text`` stands for: ``key=value``, with commas between. Raises PlatformError."""
        memory, delay, compile_seconds, compiler = cls.memory, cls.delay, cls.compile_seconds, cls.compiler
        faults: list[Fault] = []
        for part in filter(None, text.split(",")):
            key, _, value = part.strip().partition("=")
            try:
                if key == "memory":
                    unit = _UNITS.get(value[-1:], 1)
                    memory = int(value.rstrip("kmg")) * unit
                elif key == "delay":
                    delay = float(value)
                elif key == "compile":
                    compile_seconds = float(value)
                elif key == "compiler":
                    compiler = value
                elif key == "fault":
                    faults.append(Fault.parse(value))
                else:
                    raise ValueError(f"it has {_KEYS}, not {key!r}")
            except ValueError as error:
                raise PlatformError(f"{VARIABLE}: {part.strip()!r} cannot be used: {error}") from error
        return cls(memory, delay, compile_seconds, compiler, tuple(faults))
