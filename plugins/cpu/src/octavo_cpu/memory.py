"""How much memory this process may use: the machine's, or less where a control group says so."""

from __future__ import annotations

import os
from pathlib import Path

from octavo.platform import MemoryReport

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def host_memory(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> MemoryReport:
    """Total and available bytes, the smaller of the machine's and the control group's (version 2)."""
    total, free = _machine(meminfo)
    limit, used = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if limit is not None and used is not None:
        total, free = min(total, limit), min(free, max(0, limit - used))
    return MemoryReport(total, free)


def _machine(meminfo: Path) -> tuple[int, int]:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        total, available = (int(lines[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):  # not Linux: POSIX knows the total, and nobody a portable "available"
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total // 2
    return total, available


def _number(path: Path) -> int | None:
    """The file's number; ``None`` if it is missing or says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
