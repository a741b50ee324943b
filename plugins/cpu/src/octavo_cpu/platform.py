"""The platform: the host's processors and memory.

This version runs graphs with the reference device (numpy, float32).
"""

from __future__ import annotations

import os
import platform as host
from importlib import metadata

from octavo.platform import (
    REFERENCE_CAPABILITIES,
    Capabilities,
    Device,
    DeviceInfo,
    Limits,
    Plan,
    PlanRequest,
    PlatformInfo,
    Probe,
    Rank,
    ReferenceDevice,
    Settings,
    Unsupported,
    negotiate_by_declaration,
)
from octavo.platform.host import host_memory

CONTRACT = {"platform": "1.0", "step": "1.0", "kv": "1.0", "sampling": "1.0"}

DEFAULTS = Settings(max_num_seqs=64, memory_utilization=0.5)
"""What a machine that has other work to do is asked for: half of its memory, and rows that numpy can keep up with."""


class CpuPlatform:
    """Meets `octavo.platform.Platform`."""

    @property
    def info(self) -> PlatformInfo:
        """See `Platform.info`."""
        return PlatformInfo("cpu", "Octavo", metadata.version("octavo-cpu"), "host", CONTRACT)

    def probe(self) -> Probe:
        """Always available: the program runs on it."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        name = f"{host.machine()}, {cores} cores"
        return Probe(True, f"{name}; numpy reference executor", (DeviceInfo(name, host_memory().total),))

    def capabilities(self) -> Capabilities:
        """See `Platform.capabilities`."""
        return REFERENCE_CAPABILITIES

    def negotiate(self, request: PlanRequest) -> Plan | Unsupported:
        """See `Platform.negotiate`."""
        return negotiate_by_declaration(request, "cpu", REFERENCE_CAPABILITIES, Limits(), DEFAULTS)

    def open(self, rank: Rank) -> Device:
        """See `Platform.open`."""
        return ReferenceDevice(host_memory)
