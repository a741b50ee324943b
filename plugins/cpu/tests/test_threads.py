"""Threads: one per physical core that the process may use, no more than its quota, none trusted after a fork."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.errors import ConfigError
from octavo.platform import PlatformUnavailable
from octavo_cpu import threads
from octavo_cpu.threads import ForkGuard, Sources, Threads, choose_threads


class Machine:
    """The kernel's files of one machine, and the process's affinity."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.sources = Sources(root / "cpu", root / "node", root / "membership", root / "cgroup")
        self.write(self.sources.membership, "0::/")
        self.cores("0", "1", "2", "3")

    def cores(self, *siblings: str, name: str = "core_cpus_list") -> None:
        """Cores by the list of their hardware threads, all of them allowed."""
        shutil.rmtree(self.sources.processors, ignore_errors=True)
        processors = set()
        for listed in siblings:
            for processor in threads._expand(listed):
                self.write(self.sources.processors / f"cpu{processor}" / "topology" / name, listed)
                processors.add(processor)
        self.allow(*processors)

    def allow(self, *processors: int) -> None:
        self._patch.setattr(os, "sched_getaffinity", lambda _: set(processors), raising=False)

    def group(self, file: str, text: str) -> None:
        self.write(self.sources.cgroup / file, text)

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")

    def choose(self, asked: int | None = None) -> Threads:
        return choose_threads(asked, self.sources)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


# -- how many, and where --------------------------------------------------------------------------


def test_it_takes_every_core_and_pins_to_each(machine: Machine) -> None:
    assert machine.choose() == Threads(4, (0, 1, 2, 3), 1)


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_hardware_threads_of_one_core_count_once(machine: Machine, name: str) -> None:
    machine.cores("0,4", "1,5", "2,6", "3,7", name=name)
    assert machine.choose() == Threads(4, (0, 1, 2, 3), 1)


def test_siblings_may_be_numbered_next_to_each_other(machine: Machine) -> None:
    machine.cores("0-1", "2-3")
    assert machine.choose().cores == (0, 2)


def test_a_core_counts_if_any_of_its_hardware_threads_is_allowed(machine: Machine) -> None:
    machine.cores("0,4", "1,5", "2,6", "3,7")
    machine.allow(1, 4, 5, 7)
    assert machine.choose().cores == (1, 4, 7)


def test_without_a_topology_every_processor_is_a_core(tmp_path: Path, machine: Machine) -> None:
    sources = Sources(tmp_path / "none", tmp_path / "none", tmp_path / "none", tmp_path / "none")
    assert choose_threads(None, sources) == Threads(4, (0, 1, 2, 3), 1)


def test_where_there_is_no_affinity_the_count_is_the_machine_s(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert machine.choose().count == 3


def test_fewer_threads_than_cores_are_left_to_the_scheduler(machine: Machine) -> None:
    assert machine.choose(3) == Threads(3, (), 1)
    assert machine.choose(4).cores == (0, 1, 2, 3)


@pytest.mark.parametrize("asked", [0, -1, 5])
def test_more_threads_than_cores_are_refused_with_both_numbers(machine: Machine, asked: int) -> None:
    with pytest.raises(ConfigError, match=rf"^{asked} threads .* 4 cores .*1 to 4 \(--threads\)$"):
        machine.choose(asked)


def test_the_refusal_says_that_hardware_threads_are_no_cores(machine: Machine) -> None:
    machine.cores("0-1", "2-3")
    with pytest.raises(ConfigError, match=r"4 threads .* 2 cores .*4 hardware threads"):
        machine.choose(4)


# -- control groups -------------------------------------------------------------------------------


def test_a_quota_of_version_2_holds_and_leaves_the_threads_unpinned(machine: Machine) -> None:
    machine.group("cpu.max", "200000 100000")
    assert machine.choose() == Threads(2, (), 1)


def test_a_quota_of_version_1_holds(machine: Machine) -> None:
    machine.write(machine.sources.membership, "4:memory:/jobs\n2:cpu,cpuacct:/jobs/7")
    machine.group("cpu/jobs/7/cpu.cfs_quota_us", "-1")
    machine.group("cpu/jobs/7/cpu.cfs_period_us", "100000")
    machine.group("cpu/jobs/cpu.cfs_quota_us", "150000")
    machine.group("cpu/jobs/cpu.cfs_period_us", "50000")
    assert machine.choose().count == 3


@pytest.mark.parametrize("text", ["max 100000", "", "nonsense", "100000 0", "-1 100000"])
def test_a_group_without_a_limit_changes_nothing(machine: Machine, text: str) -> None:
    machine.group("cpu.max", text)
    assert machine.choose().count == 4


def test_the_smallest_quota_on_the_way_to_the_root_holds(machine: Machine) -> None:
    machine.write(machine.sources.membership, "0::/user/session")
    machine.group("user/session/cpu.max", "350000 100000")
    machine.group("user/cpu.max", "250000 100000")
    machine.group("other/cpu.max", "100000 100000")
    assert machine.choose().count == 2


def test_less_than_a_core_is_one_thread(machine: Machine) -> None:
    machine.group("cpu.max", "50000 100000")
    assert machine.choose().count == 1


def test_the_refusal_names_the_quota(machine: Machine) -> None:
    machine.group("cpu.max", "250000 100000")
    with pytest.raises(ConfigError, match=r"3 threads .* 2 cores .*2\.5 CPUs"):
        machine.choose(3)


# -- nodes, and this machine ----------------------------------------------------------------------


@pytest.mark.parametrize(("listed", "nodes"), [("0", 1), ("0-1", 2), ("0,2-3", 3), ("", 1)])
def test_it_counts_numa_nodes(machine: Machine, listed: str, nodes: int) -> None:
    machine.write(machine.sources.nodes / "has_memory", listed)
    assert machine.choose().nodes == nodes


def test_this_machine_has_a_thread_for_each_pin() -> None:
    found = choose_threads()
    assert 1 <= found.count <= (os.cpu_count() or 1)
    assert len(found.cores) in (0, found.count)
    assert str(found.count) in str(found)


# -- forks ----------------------------------------------------------------------------------------


def in_child(action: Callable[[], int]) -> int:
    """What ``action`` returned in a forked child, as its exit status: 42 for PlatformUnavailable that names a cure."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = action()
        except PlatformUnavailable as error:
            status = 42 if "spawn" in str(error) else 98
        finally:
            os._exit(status)
    signal.alarm(20)  # a child that waits for threads it has not would wait for ever
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        signal.alarm(0)


def test_a_guard_says_nothing_in_its_own_process() -> None:
    guard = ForkGuard()
    guard.check()
    assert guard.problem() is None
    assert not guard.lost


def test_a_child_is_told_what_happened_and_what_to_do() -> None:
    guard = ForkGuard()
    assert in_child(lambda: guard.check() or 0) == 42
    assert in_child(lambda: int(guard.lost)) == 1
    assert in_child(lambda: int(ForkGuard().lost)) == 0, "a pool started in the child is the child's own"
    guard.check()
