"""The artifact store of a device's life: where it keeps things, and what is done to it meanwhile.

A request's ``keep`` (``None``: a store that keeps nothing) has ``folder``; ``policy``, ``writable`` and ``limit`` of
the store; ``files``, the checkpoint; ``target``, to compile with no device; ``full``, the bytes after which the disk is
full; ``evict``, to delete all artifacts that may be deleted once the device is ready; ``note``, values of environment
variables.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from octavo.platform import ArtifactPolicy, ArtifactStore, Rank
from octavo.platform.artifacts import entry
from octavo.platform.artifacts.inspect import prune


class Keeping:
    """The rank that a device is opened with, and what its store did."""

    def __init__(self, keep: Mapping[str, Any] | None, rank: Mapping[str, Any]) -> None:
        self._keep = keep or {}
        folder = self._keep.get("folder")
        self.store = ArtifactStore(
            Path(folder) if folder else None,
            policy=ArtifactPolicy(self._keep.get("policy", "use")),
            writable=self._keep.get("writable", True),
            limit=self._keep.get("limit"),
        )
        self.rank = Rank(**rank, artifacts=self.store, target=self._keep.get("target"))
        self.files = [Path(name) for name in self._keep.get("files", ())]
        self.warnings: list[str] = []

    def ready(self) -> None:
        """The device has compiled everything and serves from now on."""
        if self._keep.get("evict"):
            assert self.store.folder is not None
            prune(self.store.folder, max_bytes=0)

    def told(self) -> dict[str, Any]:
        """For the judge."""
        opened = [
            {"key": key.to_dict(), "id": key.id, "file": None if file is None else str(file), "made": made}
            for key, file, made in self.store.opened
        ]
        return {"opened": opened, "warnings": self.warnings}


@contextmanager
def keeping(keep: Mapping[str, Any] | None, rank: Mapping[str, Any]) -> Iterator[Keeping]:
    """A store for one device's life, and the faults around it."""
    kept = Keeping(keep, rank)
    with ExitStack() as stack:
        if keep is not None:
            stack.enter_context(_heard(kept.warnings))
            stack.enter_context(mock.patch.dict(os.environ, keep.get("note", {})))
            if keep.get("full") is not None:
                stack.enter_context(_full_after(keep["full"]))
        yield kept


@contextmanager
def _heard(warnings: list[str]) -> Iterator[None]:
    """Collect what the store warns of."""

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())

    logger, ear = logging.getLogger("octavo.platform.artifacts"), Ear(logging.WARNING)
    logger.addHandler(ear)
    try:
        yield
    finally:
        logger.removeHandler(ear)


@contextmanager
def _full_after(limit: int) -> Iterator[None]:
    """A disk on which the store can write ``limit`` bytes and no more; none at all: it cannot reserve room either."""
    written = 0
    append = entry.EntryWriter._append

    def short(self: entry.EntryWriter, data: bytes | memoryview) -> None:
        nonlocal written
        written += memoryview(data).nbytes
        if written > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, data)

    def none(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(entry.EntryWriter, "_append", short))
        if not limit and hasattr(os, "posix_fallocate"):
            stack.enter_context(mock.patch.object(os, "posix_fallocate", none))
        yield
