"""How much memory this process may use: the machine's, or less where a control group says so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.platform.contract import MemoryReport


@dataclass(frozen=True)
class Sources:
    """The kernel's files, so that tests can have their own."""

    meminfo: Path = Path("/proc/meminfo")
    membership: Path = Path("/proc/self/cgroup")
    cgroup: Path = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class _Version:
    """How one version of control groups calls its memory files (cgroups(7), kernel documentation of cgroup-v2 and v1).

    ``controller`` is how its line in the membership file is known; ``mount`` is where its tree is mounted below the
    root of all.
    """

    controller: str
    mount: str
    limit: str
    usage: str
    reclaimable: str


_VERSIONS = (
    _Version("", "", "memory.max", "memory.current", "inactive_file"),
    _Version("memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def host_memory(sources: Sources = Sources()) -> MemoryReport:
    """Total and free bytes: the smallest of the machine's and those of the control groups that the process is in.

    A group's usage counts the pages of files it has read. Those not in active use are given back on demand, so
    they count as free, as they do in the machine's own ``MemAvailable``.
    """
    total, free = _machine(sources.meminfo)
    for limit, used in _groups(sources):
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


def _groups(sources: Sources) -> Iterator[tuple[int, int]]:
    """(limit, bytes that cannot be given back) of each control group with a limit, from the process's own to the root.

    In a container the path of the process's group may be that on the host, which the container does not see; its root
    is then the process's group.
    """
    for version in _VERSIONS:
        root = sources.cgroup / version.mount
        own = root / _membership(sources.membership, version.controller).lstrip("/")
        for folder in (own, *own.parents):
            limit, used = _number(folder / version.limit), _number(folder / version.usage)
            if limit is not None and used is not None:
                yield limit, used - min(used, _statistic(folder / "memory.stat", version.reclaimable))
            if folder == root:
                break


def _membership(path: Path, controller: str) -> str:
    """The process's group in the hierarchy of ``controller``, ``/`` if unknown. Lines are ``id:controllers:path``."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return "/"
    groups = (line.split(":", 2) for line in lines if line.count(":") >= 2)
    return next((group for _, names, group in groups if controller in names.split(",")), "/")


def _statistic(path: Path, name: str) -> int:
    """The value of the line ``name value``, 0 if there is none."""
    try:
        fields = dict(line.split(maxsplit=1) for line in path.read_text().splitlines() if " " in line)
        return int(fields[name])
    except (OSError, KeyError, ValueError):
        return 0


def _number(path: Path) -> int | None:
    """The file's number; ``None`` if it is missing or says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
