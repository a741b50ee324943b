"""The cache of packed weights: the first start of a checkpoint packs and writes them, later ones map the file.

One file per key in one folder. What may go wrong with files costs time, never the start or the answers: whatever the
cache cannot do is logged as a warning, and the weights are packed into memory instead.

    ====================================  =====================================================================
    several processes start at once       one packs, under a lock of the key; the others wait and map its file
    a process is killed while it packs    the system frees its lock; its unfinished file is overwritten
    a file is damaged or foreign          it is packed again and replaced
    the folder cannot be written to       files that are there are used; nothing is written
    the disk is full, or the limit        nothing is cached, and no part of a file stays
    the folder grows over its limit       the files that were not used for longest go, but none that is mapped
    ====================================  =====================================================================
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from octavo_cpu.packed_file import Array, Damaged, PackedFileWriter, file_bytes, map_packed_file

_logger = logging.getLogger(__name__)

DEFAULT_LIMIT = 64 << 30
"""Bytes that the folder may hold: a few large models."""


class Writer(Protocol):
    """Takes what a builder makes, one array at a time."""

    def add(self, name: str, array: Array) -> None:
        """Take over a C-contiguous array, which the caller neither changes nor needs any more."""


Build = Callable[[Writer], None]
"""Makes every array and adds it. May be called twice: into a file, and into memory where the file came to nothing."""


@dataclass(frozen=True)
class Packed:
    """Arrays by name, in the order in which they were added, and where they came from.

    ``file`` is the cache file that they are a read-only map of; None if they are in memory. ``packed`` is whether this
    process did the work.
    """

    arrays: Mapping[str, Array]
    file: Path | None
    packed: bool


class InMemory:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array] = {}

    def add(self, name: str, array: Array) -> None:
        self.arrays[name] = array


class _NoRoom(Exception):
    """The limit does not allow a file of this size."""


def default_folder() -> Path:
    """``octavo`` in the user's cache folder (XDG Base Directory Specification)."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "octavo"


class PackedCache:
    """Files of packed weights in ``folder``, which need not exist, of at most ``limit`` bytes in all.

    With ``writable`` false, files that are there are used and nothing is ever written. ``threads`` check a file.
    """

    def __init__(self, folder: Path, threads: int, *, limit: int = DEFAULT_LIMIT, writable: bool = True) -> None:
        self.folder = folder
        self._threads = threads
        self._limit = limit
        self._writable = writable

    def open(self, key: str, array_bytes: int, arrays: int, build: Build) -> Packed:
        """The arrays that ``build`` makes, from the cache if they are there.

        ``key`` names everything that they depend on (see `octavo_cpu.digests.content_key`); it is a file name.
        ``array_bytes`` in ``arrays`` arrays is how much they will be, so that a disk that is too full is known before
        the work begins. Raises nothing but what ``build`` raises.
        """
        path = self._path(key)
        try:
            found = self._find(path, key) or (self._publish(path, key, file_bytes(array_bytes, arrays), build))
        except (OSError, _NoRoom) as error:
            _logger.warning("packed weights are not cached in %s: %s", self.folder, error)
            found = None
        if found is None:
            memory = InMemory()
            build(memory)
            found = Packed(memory.arrays, None, packed=True)
        return found

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.packed"

    # -- reading ----------------------------------------------------------------------------------

    def _find(self, path: Path, key: str) -> Packed | None:
        """The file's arrays; None if there is no file, or none that can be used."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            # Whoever wants the file's space sees the lock. It belongs to the open file, which the map keeps open.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            arrays = map_packed_file(descriptor, key, self._threads)
        except Damaged as damage:
            _logger.warning("the cache file %s %s; the weights are packed again", path, damage)
            return None
        finally:
            os.close(descriptor)
        with suppress(OSError):  # a folder that is read-only has no order of use either
            os.utime(path)
        return Packed(arrays, path, packed=False)

    # -- writing ----------------------------------------------------------------------------------

    def _publish(self, path: Path, key: str, size: int, build: Build) -> Packed | None:
        """Pack into a file and map it, unless another process has done so meanwhile. OSError or _NoRoom."""
        if not self._writable:
            return None
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock(key):
            found = self._find(path, key)
            if found is not None:
                return found
            self._make_room(path, size)
            temporary = path.with_suffix(".tmp")
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _reserve(descriptor, size)
                writer = PackedFileWriter(descriptor)
                build(writer)
                writer.finish(key)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                temporary.replace(path)
                _sync_folder(self.folder)
                arrays = map_packed_file(descriptor, key, self._threads)
            except Damaged as damage:
                raise OSError(f"{path}, just written, {damage}") from damage
            finally:
                os.close(descriptor)
                temporary.unlink(missing_ok=True)  # gone already, unless something failed
            return Packed(arrays, path, packed=True)

    @contextmanager
    def _lock(self, key: str, *, wait: bool = True) -> Iterator[None]:
        """Hold the key's lock, which dies with the process. BlockingIOError if it is taken and ``wait`` is false."""
        descriptor = os.open(self.folder / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise
                _logger.info("another process is packing the same weights; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make_room(self, path: Path, size: int) -> None:
        """Delete files until ``size`` more bytes are within the limit, least recently used first. _NoRoom if that
        would take one that is mapped.
        """
        self._clear_unfinished(path)
        others = sorted(_sizes(other for other in self.folder.glob("*.packed") if other != path))
        held = sum(length for _, length, _ in others)
        for _, length, other in others if size <= self._limit else ():
            if held + size <= self._limit:
                break
            if _delete_unless_mapped(other):
                _logger.info("the cache file %s made room for another", other)
                held -= length
        if held + size > self._limit:
            raise _NoRoom(f"{size} bytes are needed, and the limit is {self._limit}, of which {held} are in use")

    def _clear_unfinished(self, path: Path) -> None:
        """Delete what processes that were killed left of other keys. Those at work hold their key's lock."""
        for temporary in self.folder.glob("*.tmp"):
            if temporary.stem != path.stem:
                with suppress(BlockingIOError), self._lock(temporary.stem, wait=False):
                    temporary.unlink(missing_ok=True)


def _sizes(paths: Iterable[Path]) -> Iterator[tuple[int, int, Path]]:
    """(time of last use, bytes, path) of each file that is still there."""
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.stat()
            yield found.st_mtime_ns, found.st_size, path


def _delete_unless_mapped(path: Path) -> bool:
    """Whether the file is gone now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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


def _reserve(descriptor: int, size: int) -> None:
    """Claim the file's space now: a full disk is then known before any work is done."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(descriptor, 0, size)


def _sync_folder(folder: Path) -> None:
    """Wait until a renamed file is on the disk under its new name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
