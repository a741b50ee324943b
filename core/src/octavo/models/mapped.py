"""Files of a checkpoint as memory maps."""

from __future__ import annotations

import mmap
from pathlib import Path

from octavo.errors import CheckpointError


def memory_map(path: Path) -> mmap.mmap | bytes:
    """The file's bytes, read-only; ``b""`` for an empty file. CheckpointError if it cannot be opened."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
