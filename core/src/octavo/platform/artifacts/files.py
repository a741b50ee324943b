"""The store's folder: names, locks, publishing by rename, and room.

    ID.artifact   an artifact, complete: it appears by rename, when everything is on the disk
    ID.tmp        one being written, by who holds the lock of ID
    ID.lock       the lock of ID; it is freed by the system when its holder dies

Only files of these names are ever deleted.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from octavo.platform.artifacts.key import ID

SUFFIX = ".artifact"
_TEMPORARY = ".tmp"
_LOCK = ".lock"

_logger = logging.getLogger(__name__)


class NoRoom(Exception):
    """The limit does not allow a file of this size."""


def entry_path(folder: Path, key: str) -> Path:
    """Where the artifact of a key's id lies."""
    return folder / f"{key}{SUFFIX}"


def entries(folder: Path) -> list[Path]:
    """The artifacts in a folder, by name; none if there is no folder."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if ID.fullmatch(path.stem))


def used(paths: Iterable[Path]) -> Iterator[tuple[int, int, Path]]:
    """(time of last use in nanoseconds, bytes, path) of each file that is still there."""
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            yield found.st_mtime_ns, found.st_size, path


def can_write(folder: Path) -> bool:
    """Whether files may be made in the folder, or it may be made itself. False on a read-only mount, also for root.

    True where no folder can be: trying then says why.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    effective = os.access in os.supports_effective_ids
    return not folder.is_dir() or os.access(folder, os.W_OK | os.X_OK, effective_ids=effective)


def make_folder(folder: Path, *, private: bool) -> None:
    """Make the folder, for its owner alone if ``private``."""
    folder.mkdir(mode=0o700 if private else 0o755, parents=True, exist_ok=True)


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """A descriptor of the file. While it, or a map made of it, is open, the file is not evicted."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not make us wait
    try:
        with suppress(OSError):  # a file system without locks: an evicted file stays whole for who has it mapped
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def lock(folder: Path, key: str, *, wait: bool = True) -> Iterator[None]:
    """Hold the key's lock, which dies with the process. BlockingIOError if it is taken and ``wait`` is false."""
    path = folder / f"{key}{_LOCK}"
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise
                _logger.info("another process makes the same artifact; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):  # else whoever had it took the file away with it
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def publishing(path: Path, nbytes: int, *, private: bool) -> Iterator[int]:
    """A descriptor of an empty file that becomes ``path`` at the end; if anything is raised, nothing is left of it.

    ``nbytes`` of room are reserved at once. The caller holds the lock, and has the content on the disk at the end.
    """
    temporary = path.with_suffix(_TEMPORARY)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(temporary, flags, 0o600 if private else 0o644)
    try:
        if nbytes and hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(descriptor, 0, nbytes)
        yield descriptor
        temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)  # gone already, unless something failed


def _sync_folder(folder: Path) -> None:
    """Wait until a renamed file is on the disk under its new name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_room(folder: Path, nbytes: int, limit: int | None, *, keep: Path | None = None) -> list[Path]:
    """Delete artifacts until ``nbytes`` more are within ``limit``, least recently used first, but neither ``keep`` nor
    one that is mapped. Returns what was deleted. NoRoom if that is not enough; then as little as possible is gone.
    """
    if limit is None:
        return []
    others = sorted(used(path for path in entries(folder) if path != keep))
    held, gone = sum(length for _, length, _ in others), []
    for _, length, path in others if nbytes <= limit else ():
        if held + nbytes <= limit:
            break
        if delete_unless_mapped(path):
            _logger.info("the artifact %s made room for another", path)
            held -= length
            gone.append(path)
    if held + nbytes > limit:
        raise NoRoom(f"{nbytes} bytes are needed, and the limit is {limit}, of which {held} are in use")
    return gone


def delete_unless_mapped(path: Path) -> bool:
    """Whether the file is gone now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def clear_unfinished(folder: Path, but: str = "") -> None:
    """Delete what processes that were killed left of keys other than ``but``. Those at work hold their key's lock."""
    left = [path for suffix in (_TEMPORARY, _LOCK) for path in folder.glob(f"*{suffix}")]
    for key in {path.stem for path in left if ID.fullmatch(path.stem)} - {but}:
        with suppress(BlockingIOError), lock(folder, key, wait=False):
            (folder / f"{key}{_TEMPORARY}").unlink(missing_ok=True)
