"""Free memory is what the process could really get: the machine's, or less where a control group holds it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.platform import MemoryReport
from octavo.platform.host import Sources, host_memory

MIB = 1 << 20


class Files:
    """The kernel's files of one machine."""

    def __init__(self, root: Path) -> None:
        self.sources = Sources(root / "meminfo", root / "membership", root / "cgroup")
        self.machine(total=1000, available=800)

    def machine(self, total: int, available: int) -> None:
        """Sizes in MiB, here and below."""
        lines = (
            f"MemTotal:  {total << 10} kB\nMemFree:  1 kB\nMemAvailable:  {available << 10} kB\nHugePages_Total:  0\n"
        )
        self.sources.meminfo.write_text(lines)

    def member_of(self, *lines: str) -> None:
        self.sources.membership.write_text("\n".join(lines) + "\n")

    def v2(self, group: str, limit: int | None, used: int = 0, inactive_file: int | None = None) -> None:
        statistics = "" if inactive_file is None else f"anon 5\ninactive_file {inactive_file * MIB}\nactive_file 7\n"
        self._group(group, {
            "memory.max": "max" if limit is None else str(limit * MIB),
            "memory.current": str(used * MIB),
            "memory.stat": statistics,
        })  # fmt: skip

    def v1(self, group: str, limit: int | None, used: int = 0, inactive_file: int = 0) -> None:
        self._group(f"memory/{group}", {
            "memory.limit_in_bytes": str(9223372036854771712 if limit is None else limit * MIB),
            "memory.usage_in_bytes": str(used * MIB),
            "memory.stat": f"inactive_file 3\ntotal_inactive_file {inactive_file * MIB}\n",
        })  # fmt: skip

    def _group(self, group: str, files: dict[str, str]) -> None:
        folder = self.sources.cgroup / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")

    def report(self) -> tuple[int, int]:
        """(total, free) in MiB."""
        report = host_memory(self.sources)
        return report.total // MIB, report.free // MIB


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_with_no_control_group_it_is_the_machine_s(files: Files) -> None:
    assert files.report() == (1000, 800)


def test_a_group_without_a_limit_changes_nothing(files: Files) -> None:
    files.member_of("0::/")
    files.v2("", limit=None, used=999)
    assert files.report() == (1000, 800)


def test_a_limit_below_the_machine_holds(files: Files) -> None:
    files.member_of("0::/")
    files.v2("", limit=500, used=100)
    assert files.report() == (500, 400)


def test_a_limit_above_the_machine_does_not_add_memory(files: Files) -> None:
    files.member_of("0::/")
    files.v2("", limit=5000, used=100)
    assert files.report() == (1000, 800)


def test_file_pages_that_the_kernel_would_give_back_count_as_free(files: Files) -> None:
    """A checkpoint that was just read fills the group with page cache; it must not look like memory in use."""
    files.member_of("0::/")
    files.v2("", limit=500, used=480, inactive_file=400)
    assert files.report() == (500, 420)


def test_a_group_that_is_over_its_limit_has_nothing_free(files: Files) -> None:
    files.member_of("0::/")
    files.v2("", limit=500, used=501)
    assert files.report() == (500, 0)


def test_the_smallest_limit_on_the_way_to_the_root_holds(files: Files) -> None:
    files.member_of("0::/user.slice/session-1.scope")
    files.v2("user.slice/session-1.scope", limit=None, used=50)
    files.v2("user.slice", limit=300, used=200, inactive_file=20)
    assert files.report() == (300, 120)


def test_a_neighbour_s_limit_does_not_count(files: Files) -> None:
    files.member_of("0::/user.slice")
    files.v2("user.slice", limit=None)
    files.v2("system.slice", limit=10, used=10)
    assert files.report() == (1000, 800)


def test_in_a_container_that_sees_the_host_s_path_the_root_of_the_mount_is_its_group(files: Files) -> None:
    files.member_of("0::/docker/0123abcd")
    files.v2("", limit=500, used=100)
    assert files.report() == (500, 400)


def test_version_1_groups_count_too(files: Files) -> None:
    files.member_of("9:name=systemd:/", "4:memory,hugetlb:/jobs/7", "0::/")
    files.v1("", limit=None, used=900)
    files.v1("jobs/7", limit=400, used=300, inactive_file=250)
    assert files.report() == (400, 350)


def test_unreadable_files_are_no_limit(files: Files) -> None:
    files.member_of("nonsense", "0::/")
    files.v2("", limit=500, used=100)
    (files.sources.cgroup / "memory.current").write_text("not a number")
    assert files.report() == (1000, 800)


def test_where_there_is_no_proc_the_total_is_still_known(files: Files) -> None:
    files.sources.meminfo.unlink()
    report = host_memory(files.sources)
    assert 0 < report.free < report.total


def test_this_machine_has_memory() -> None:
    report = host_memory()
    assert isinstance(report, MemoryReport)
    assert 0 < report.free <= report.total
