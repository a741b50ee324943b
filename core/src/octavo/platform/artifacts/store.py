"""The artifact store: each artifact is made once, and mapped by whoever needs it after that.

One file per key in one folder. What may go wrong with files costs time, never the start or the answers: where the
policy is to use what is there, what the store cannot do is logged as a warning and the artifact is made in memory.

    ====================================  =====================================================================
    several processes need one at once    one makes it, under a lock of the key; the others wait and map its file
    a process is killed while it works    the system frees its lock; its unfinished file is overwritten
    a file is damaged or foreign          it is made again and replaced
    the folder cannot be written to       files that are there are used; nothing is written
    the disk is full, or the limit        nothing is kept, and no part of a file stays
    the folder grows over its limit       the files that were not used for longest go, but none that is mapped
    ====================================  =====================================================================
"""

from __future__ import annotations

import enum
import fcntl
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ArtifactError, ArtifactMissing
from octavo.platform.artifacts import files
from octavo.platform.artifacts.digests import content_digest
from octavo.platform.artifacts.entry import (
    PAGE,
    Array,
    Build,
    Damaged,
    EntryWriter,
    Incompatible,
    InMemory,
    map_entry,
    read_index,
)
from octavo.platform.artifacts.key import ArtifactKey, Verdict, judge

_logger = logging.getLogger(__name__)


class ArtifactPolicy(enum.Enum):
    """What a store does about an artifact that is not there."""

    USE = "use"
    """Make it, keep it if that is possible, and go on."""
    REQUIRE = "require"
    """Raise ArtifactMissing: nothing is made while serving."""
    MAKE = "make"
    """Make it, also in place of a stale one, and raise ArtifactError if it cannot be kept."""


@dataclass(frozen=True)
class Artifact:
    """An artifact, ready to use.

    ``arrays`` are in the order in which they were added; those from a file are a read-only map of it, each on a page
    of its own. ``file`` is ``None`` if they are in memory only. ``key`` is the file's, which differs from the one
    asked for by its compiler if ``verdict`` is stale. ``made`` is whether this process did the work.
    """

    key: ArtifactKey
    arrays: Mapping[str, Array]
    notes: Mapping[str, str]
    file: Path | None = None
    verdict: Verdict = Verdict.GOOD
    made: bool = False


class ArtifactStore:
    """Artifacts in ``folder``, which need not exist, of at most ``limit`` bytes in all.

    Core makes it and hands it to the platform in `octavo.platform.Rank`. Without a folder it keeps nothing, and makes
    in memory what it is asked for. With ``writable`` false it never writes, nor where the folder is read-only. Files
    are for their owner only if ``private``. ``digests`` is the folder that remembers what checkpoints contain.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        policy: ArtifactPolicy = ArtifactPolicy.USE,
        limit: int | None = None,
        writable: bool = True,
        private: bool = True,
        digests: Path | None = None,
    ) -> None:
        self.folder = folder
        self.policy = policy
        self.limit = limit
        self.opened: list[tuple[ArtifactKey, Path | None, bool]] = []
        """(key, file, whether it was made here) of each artifact asked for so far; core reports them."""
        self._writable = writable
        self.private = private
        self._digests = digests
        self._told = False  # that the folder is read-only

    def open(self, key: ArtifactKey, build: Build, *, nbytes: int = 0, threads: int = 1) -> Artifact:
        """The artifact of ``key``, found or made by ``build``.

        ``nbytes`` is how much its arrays will be, where that is known: a disk that is too full then shows before the
        work begins. ``threads`` check a file. A stale artifact is used, unless the policy is to make. Raises
        ArtifactMissing or ArtifactError as the policy says, and what ``build`` raises.
        """
        found, why = self._find(key, threads)
        if found is None or (found.verdict is Verdict.STALE and self.policy is ArtifactPolicy.MAKE):
            if self.policy is ArtifactPolicy.REQUIRE:
                raise ArtifactMissing(f"{key}: {why}", key=key.id, device=key.device)
            found = self._make(key, build, nbytes, threads)
        elif found.verdict is Verdict.STALE:
            _logger.warning(
                "%s is used though it is stale: it was made by %s, and this is %s (octavo compile renews it)",
                found.file, found.key.compiler, key.compiler,
            )  # fmt: skip
        self.opened.append((found.key, found.file, found.made))
        return found

    def verdict(self, key: ArtifactKey) -> Verdict | None:
        """What the store has for ``key``, by its key alone (`open` compares checksums too); None if it has nothing."""
        path = self._path(key)
        if path is None or not path.exists():
            return Verdict.STALE if self._stale_paths(key) else None
        try:
            with files.reading(path) as descriptor:
                return judge(read_index(descriptor).key, key)
        except (Damaged, OSError):
            return Verdict.DAMAGED
        except Incompatible:
            return Verdict.INCOMPATIBLE

    def digest(self, paths: Iterable[Path], *, threads: int = 1) -> str:
        """A name for the contents of a checkpoint's files, wherever they lie and whatever they are called.

        Hashing takes about a second per gigabyte and thread; it is remembered for as long as nobody touches a file.
        Raises OSError if one cannot be read.
        """
        return content_digest(paths, self._digests, threads)

    # -- reading ----------------------------------------------------------------------------------

    def _path(self, key: ArtifactKey) -> Path | None:
        return None if self.folder is None else files.entry_path(self.folder, key.id)

    def _stale_paths(self, key: ArtifactKey) -> list[Path]:
        """Files of other compilers that promise to run here as well, newest first."""
        if self.folder is None or not key.abi:
            return []
        sizes = files.used(self.folder.glob(f"{key.family}-*{files.SUFFIX}"))
        return [path for _, _, path in sorted(sizes, reverse=True) if path != self._path(key)]

    def _find(self, key: ArtifactKey, threads: int) -> tuple[Artifact | None, str]:
        """The artifact that is there; else why there is none."""
        path = self._path(key)
        if path is None:
            return None, "no folder for artifacts is given"
        found, why = self._read(path, key, threads)
        for other in self._stale_paths(key) if found is None else ():
            found, _ = self._read(other, key, threads)
            if found is not None:
                break
        return found, why or f"there is none in {self.folder}"

    def _read(self, path: Path, key: ArtifactKey, threads: int, *, told: bool = False) -> tuple[Artifact | None, str]:
        """The artifact in ``path``, if it can be used for ``key``; else why not, empty if there is no file."""
        try:
            with files.reading(path) as descriptor:
                index, arrays = map_entry(descriptor, threads)
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except Damaged as error:
            return None, _unusable(path, Verdict.DAMAGED, str(error), told=told)
        except Incompatible as error:
            return None, _unusable(path, Verdict.INCOMPATIBLE, str(error), told=told)
        except OSError as error:
            return None, _unusable(path, Verdict.DAMAGED, f"cannot be read: {error}", told=told)
        verdict = judge(index.key, key)
        if verdict is Verdict.INCOMPATIBLE:
            differences = "; ".join(index.key.differences(key))
            return None, _unusable(path, verdict, f"holds another artifact: {differences}", told=told)
        if self._can_write():
            with suppress(OSError):  # somebody else's file has no order of use
                os.utime(path)
        return Artifact(index.key, arrays, index.notes, path, verdict), ""

    # -- writing ----------------------------------------------------------------------------------

    def _can_write(self) -> bool:
        return self.folder is not None and self._writable and files.can_write(self.folder)

    def _make(self, key: ArtifactKey, build: Build, nbytes: int, threads: int) -> Artifact:
        made, why = None, "no folder for artifacts is given"
        if self._can_write():
            try:
                made = self._publish(key, build, nbytes, threads)
            except (OSError, files.NoRoom) as error:
                why = f"{self.folder}: {error}"
                _logger.warning("%s is not kept in %s", key, why)
        elif self.folder is not None:
            why = f"{self.folder} is read-only"
            if not self._told and self.policy is ArtifactPolicy.USE:
                self._told = True
                _logger.warning("%s: what it lacks is made at every start, in memory (first: %s)", why, key)
        if made is not None:
            return made
        if self.policy is ArtifactPolicy.MAKE:
            raise ArtifactError(f"{key} cannot be kept in {why}; choose another folder (--out)")
        memory = InMemory()
        build(memory)
        return Artifact(key, memory.arrays, memory.notes, made=True)

    def _publish(self, key: ArtifactKey, build: Build, nbytes: int, threads: int) -> Artifact:
        """Make a file and map it, unless another process has done so meanwhile. OSError or NoRoom."""
        assert self.folder is not None
        files.make_folder(self.folder, private=self.private)
        path = files.entry_path(self.folder, key.id)
        with files.lock(self.folder, key.id):
            found, _ = self._read(path, key, threads, told=True)
            if found is not None and found.verdict is Verdict.GOOD:
                return found
            files.clear_unfinished(self.folder, but=key.id)
            files.make_room(self.folder, nbytes + 2 * PAGE, self.limit, keep=path)
            with files.publishing(path, nbytes + 2 * PAGE, private=self.private) as descriptor:
                writer = EntryWriter(descriptor)
                build(writer)
                length = writer.finish(key)
                files.make_room(self.folder, length, self.limit, keep=path)
                fcntl.flock(descriptor, fcntl.LOCK_SH)  # before anybody can see it, so that nobody evicts it
                try:
                    index, arrays = map_entry(descriptor, threads)
                except (Damaged, Incompatible) as error:
                    raise OSError(f"the file, just written, {error}") from error
        return Artifact(key, arrays, index.notes, path, made=True)


def _unusable(path: Path, verdict: Verdict, why: str, *, told: bool) -> str:
    """A sentence on a file that cannot be used, also logged unless that is ``told`` already."""
    text = f"{path} is {verdict.value}: the file {why}"
    if not told:
        _logger.warning("%s", text)
    return text
