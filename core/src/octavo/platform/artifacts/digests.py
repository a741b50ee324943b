"""What files hold, by content: hashed once, and remembered for as long as nobody touches the file.

Hashing takes about a second per gigabyte and core; remembering makes it free from the second start on. A digest is
remembered for a file's device, inode, size and both of its times: the time of the last change of the inode (ctime)
cannot be set back by any program, so a file that is written to in place, or replaced under its name, is hashed again.
A digest is not remembered for a file that changed within the last seconds, since a file system's clock may be too
coarse to tell such a change from the next one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_CHUNK = 4 << 20  # bytes that one thread hashes at a time
_SETTLED_NS = 3 * 10**9  # coarser than the clock of any file system in use (FAT: two seconds)
_BYTES = 32
_HEXADECIMAL = re.compile(rb"[0-9a-f]{%d}" % (2 * _BYTES))

_logger = logging.getLogger(__name__)


def content_digest(files: Iterable[Path], folder: Path | None, threads: int) -> str:
    """A name for the contents of ``files``, wherever they lie, whatever they are called and in whatever order.

    Digests are remembered in ``folder``, which need not exist; None remembers nothing. Raises OSError if a file cannot
    be read.
    """
    return _hash("".join(sorted(file_digest(path, folder, threads) for path in files)).encode())


def file_digest(path: Path, folder: Path | None, threads: int) -> str:
    """The hash of a file's content, 64 hexadecimal digits, from memory if the file has not changed since.

    What cannot be remembered (the folder is not there, read-only or full) is hashed again next time.
    """
    before = path.stat()
    identity = (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns, before.st_ctime_ns)
    remembered = None if folder is None else folder / _hash(repr(identity).encode())[:40]
    if remembered is not None and (known := _recall(remembered)):
        return known
    settled = time.time_ns() - max(before.st_mtime_ns, before.st_ctime_ns) > _SETTLED_NS
    digest = _hash_file(path, before.st_size, threads)
    after = path.stat()
    unchanged = identity == (after.st_dev, after.st_ino, after.st_size, after.st_mtime_ns, after.st_ctime_ns)
    if remembered is not None and settled and unchanged:
        _remember(remembered, digest)
    return digest


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_BYTES).hexdigest()


def _hash_file(path: Path, size: int, threads: int) -> str:
    """The hash of the hashes of the file's chunks, which the threads take in turn."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with ThreadPoolExecutor(threads) as workers:
            chunks = workers.map(lambda at: _hash(os.pread(descriptor, _CHUNK, at)), range(0, size, _CHUNK))
            return _hash("".join(chunks).encode() + str(size).encode())
    finally:
        os.close(descriptor)


def _recall(path: Path) -> str | None:
    try:
        text = path.read_bytes()
    except OSError:
        return None
    return text.decode() if _HEXADECIMAL.fullmatch(text) else None


def _remember(path: Path, digest: str) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_bytes(digest.encode())
        temporary.replace(path)
    except OSError as error:
        _logger.debug("the digest of a checkpoint is not remembered: %s", error)
        with suppress(OSError):
            temporary.unlink()
