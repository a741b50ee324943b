"""Where the files of a run are: on this machine, or anywhere fsspec reaches.

Most remote stores cannot append. An output that lies on one is written on this machine, and uploaded when the run ends
or is interrupted; a later run takes it up from here, or downloads it.
"""

from __future__ import annotations

import hashlib
import posixpath
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import known_implementations

from octavo import env
from octavo.errors import ConfigError

_PIECE = 1 << 20


class Place:
    """One file. Raises ConfigError for a URL that cannot be reached from here."""

    def __init__(self, url: str) -> None:
        self.url = url
        with _told(url, "reached"):
            self._fs, self._path = cast("tuple[AbstractFileSystem, str]", fsspec.core.url_to_fs(url))
        self.local = isinstance(self._fs, LocalFileSystem)

    @property
    def identity(self) -> str:
        """The same for two URLs of one file."""
        path = str(Path(self._path).resolve()) if self.local else self._path
        return f"{self._fs.protocol}:{path}"

    def open(self) -> BinaryIO:
        """Read it from the start; what is compressed by its name is unpacked."""
        with _told(self.url, "read"):
            return cast("BinaryIO", fsspec.open(self.url, "rb", compression="infer").open())

    @property
    def written(self) -> Path:
        """The file on this machine that is written."""
        if self.local:
            return Path(self._path)
        name = hashlib.sha256(self.identity.encode()).hexdigest()[:24]
        return env.data_folder() / "run-batch" / f"{name}.jsonl"

    def prepare(self, *, fresh: bool) -> None:
        """See to it that `written` can be written, and holds what an earlier run brought, unless it is to be
        ``fresh``.
        """
        with _told(self.url, "written"):
            self.written.parent.mkdir(parents=True, exist_ok=True)
            if fresh:
                self.written.unlink(missing_ok=True)
                if not self.local and self._fs.exists(self._path):
                    self._fs.rm_file(self._path)
            elif not self.local and not self.written.exists() and self._fs.exists(self._path):
                unfinished = self.written.with_suffix(".part")
                with self._fs.open(self._path, "rb") as remote, unfinished.open("wb") as here:
                    shutil.copyfileobj(remote, here, _PIECE)
                unfinished.rename(self.written)

    def publish(self, *, finished: bool) -> None:
        """Upload what was written. Nothing stays here once it is ``finished``."""
        if self.local or not self.written.exists():
            return
        with _told(self.url, f"written (what was to go there is kept in {self.written})"):
            with self.written.open("rb") as here, self._fs.open(self._path, "wb") as remote:
                shutil.copyfileobj(here, remote, _PIECE)
            if finished:
                self.written.unlink()


def beside(url: str) -> str:
    """Where the errors of an output go by default: ``out.jsonl`` has ``out.errors.jsonl``."""
    root, extension = posixpath.splitext(url)
    return f"{root}.errors{extension}"


@contextmanager
def _told(url: str, what: str) -> Iterator[None]:
    """Every failure as a ConfigError: each store has exceptions of its own."""
    try:
        yield
    except ImportError as error:
        protocol = url.partition("://")[0].rpartition("::")[2]
        known = known_implementations.get(protocol, {})
        package = known.get("class", "").partition(".")[0]
        cure = f"pip install {package}" if package and package != "fsspec" else "install what it names"
        raise ConfigError(f"{url} cannot be {what}: {error} ({cure})") from error
    except ConfigError:
        raise
    except FileNotFoundError:
        raise ConfigError(f"{url} cannot be {what}: there is no such file") from None
    except Exception as error:
        raise ConfigError(f"{url} cannot be {what}: {str(error) or type(error).__name__}") from error
