"""What a process holds of the machine, so that what a plugin takes and does not give back is seen."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_SELF = Path("/proc/self")
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/pts", "/dev/tty", "/dev/shm")


def census() -> dict[str, int]:
    """Threads, children, open files and device nodes among them, resident bytes, and microseconds of CPU time used.

    Where the kernel does not tell (no /proc), threads are Python's own and the rest is 0.
    """
    paths = _open_files()
    return {
        "threads": len(list((_SELF / "task").iterdir())) if (_SELF / "task").is_dir() else threading.active_count(),
        "children": len(_children()),
        "files": len(paths),
        "nodes": sum(path.startswith("/dev/") and not path.startswith(_HARMLESS) for path in paths),
        "resident": resident(),
        "cpu_us": time.process_time_ns() // 1000,
    }


def resident() -> int:
    """Bytes of memory that the process occupies; 0 if that is not told."""
    try:
        pages = int((_SELF / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _children() -> list[str]:
    try:
        return (_SELF / "task" / str(os.getpid()) / "children").read_text().split()
    except OSError:
        return []


def _open_files() -> list[str]:
    folder = _SELF / "fd"
    links = folder.iterdir() if folder.is_dir() else ()
    return [path for link in links if (path := _target(link))]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # the one that listed them
        return ""
