"""How many threads to run, on which cores, and what becomes of them in a fork."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ConfigError
from octavo.platform import PlatformUnavailable


@dataclass(frozen=True)
class Sources:
    """The kernel's files, so that tests can have their own."""

    processors: Path = Path("/sys/devices/system/cpu")
    nodes: Path = Path("/sys/devices/system/node")
    membership: Path = Path("/proc/self/cgroup")
    cgroup: Path = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Threads:
    """The threads of one device.

    ``count`` threads, the caller's among them. ``cores`` is where to pin them, one processor number each; empty where
    they are better left to the scheduler. ``nodes`` is the number of NUMA nodes that the processors lie on. With one
    node, memory is equally near to every core and nothing is done about it; with more the kernel's own placement is
    left to work, and that has never been tried: no such machine was at hand.
    """

    count: int
    cores: tuple[int, ...]
    nodes: int

    def __str__(self) -> str:
        pinned = f"pinned to {','.join(map(str, self.cores))}" if self.cores else "not pinned"
        return (
            f"{self.count} thread{'s' * (self.count != 1)}, {pinned}, {self.nodes} NUMA node{'s' * (self.nodes != 1)}"
        )


def choose_threads(asked: int | None = None, sources: Sources = Sources()) -> Threads:
    """``asked`` threads, or as many as there are physical cores that this process may use.

    A second hardware thread of a core adds nothing: one already keeps the vector units and the memory busy. Cores of
    different speed count alike. What a process may use is what its affinity leaves it, and no more of it than the CPU
    quota of its control groups; part of a core does not count, since all threads wait for the slowest.

    Threads are pinned only if they take every core that the affinity leaves: two engines with half of the cores each
    would otherwise be pinned to the same half.

    Raises ConfigError if more are asked for than there are, or fewer than one.
    """
    allowed = _allowed()
    cores = _physical(allowed, sources.processors)
    quota = _quota(sources)
    usable = len(cores) if quota is None else max(1, min(len(cores), math.floor(quota)))
    count = usable if asked is None else asked
    if not 1 <= count <= usable:
        raise ConfigError(
            f"{count} threads were asked for, and this process may use {_cores(usable)} "
            f"({_why(len(cores), len(allowed), quota)}); ask for 1 to {usable} (--threads)"
        )
    return Threads(count, cores if count == len(cores) else (), _nodes(sources.nodes))


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count != 1)}"


def _why(cores: int, allowed: int, quota: float | None) -> str:
    """Where the limit comes from, for the message."""
    affinity = f"its affinity leaves {_cores(cores)}"
    if allowed > cores:
        affinity += f" with {allowed} hardware threads"
    return affinity + ("" if quota is None else f", its control group {quota:g} CPUs of time")


def _allowed() -> tuple[int, ...]:
    """Numbers of the processors (hardware threads) that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))  # macOS: no affinity, and the count is of cores


def _physical(allowed: Iterable[int], processors: Path) -> tuple[int, ...]:
    """The first allowed processor of each core. Where the topology is not told, each processor is a core."""
    first: dict[str, int] = {}
    for processor in allowed:
        topology = processors / f"cpu{processor}" / "topology"
        siblings = _text(topology / "core_cpus_list") or _text(topology / "thread_siblings_list")  # new name, old name
        first.setdefault(siblings or str(processor), processor)
    return tuple(first.values())


def _quota(sources: Sources) -> float | None:
    """CPUs of time that the control groups grant, the smallest from the process's own to the root; None: no limit.

    Files and units: cgroup-v2 and scheduler/sched-bwc in the kernel's documentation. In a container the path of the
    process's group may be that on the host, which the container does not see; its root is then the process's group.
    """
    return min((*_quotas_v2(sources), *_quotas_v1(sources)), default=None)


def _quotas_v2(sources: Sources) -> Iterator[float]:
    for folder in _groups(sources, "", sources.cgroup):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            yield int(quota) / int(period)


def _quotas_v1(sources: Sources) -> Iterator[float]:
    for folder in _groups(sources, "cpu", sources.cgroup / "cpu"):
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period) > 0:  # a quota of -1 is none
            yield int(quota) / int(period)


def _groups(sources: Sources, controller: str, root: Path) -> Iterator[Path]:
    """The folders of the process's group and those above it, in the hierarchy that is mounted at ``root``.

    The lines of the membership file are ``id:controllers:path``; version 2 has no controllers.
    """
    lines = (line.split(":", 2) for line in _text(sources.membership).splitlines() if line.count(":") >= 2)
    own = next((path for _, names, path in lines if controller in names.split(",")), "/")
    folder = root / own.lstrip("/")
    yield folder
    while folder != root:
        folder = folder.parent
        yield folder


def _nodes(folder: Path) -> int:
    """NUMA nodes with memory; 1 where that is not told."""
    listed = _text(folder / "has_memory") or _text(folder / "online")
    return max(1, sum(1 for _ in _expand(listed)))


def _expand(listed: str) -> Iterator[int]:
    """The numbers of a kernel list such as ``0-3,8``."""
    for part in filter(None, listed.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), int(last or first) + 1)


def _text(path: Path) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


_forks = 0
"""How many forks lie between this process and the one that imported the module."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - what a process inherits through a fork is process-wide state
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class ForkGuard:
    """Remembers in which process a thread pool was started.

    A child of that process has the pool's memory and none of its threads: a call would wait for them for ever, and so
    would freeing the pool. `Device.health` and every native call that uses the pool ask the guard first, and what is
    found ``lost`` is neither called nor freed.
    """

    def __init__(self) -> None:
        self._forks = _forks
        self._process = os.getpid()

    @property
    def lost(self) -> bool:
        """Whether this process is a child of the one that started the pool."""
        return self._forks != _forks

    def problem(self) -> str | None:
        """A sentence on what is wrong, or None."""
        if not self.lost:
            return None
        return (
            f"process {os.getpid()} was forked from process {self._process} after that had started its threads, which "
            "a fork leaves behind; load the model in the process that uses it (multiprocessing: the spawn method)"
        )

    def check(self) -> None:
        """Raise PlatformUnavailable if the pool is lost. Costs one comparison."""
        problem = self.problem()
        if problem is not None:
            raise PlatformUnavailable(problem)
