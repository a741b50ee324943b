"""What is in a store: for people, and for keeping it small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ArtifactError
from octavo.platform.artifacts import files
from octavo.platform.artifacts.entry import Damaged, Incompatible, Index, map_entry, read_index
from octavo.platform.artifacts.key import Verdict


@dataclass(frozen=True)
class Entry:
    """One file of a store. ``used_ns`` is when it was used last, ``why`` says what is wrong with it.

    ``index`` is ``None`` if the file does not give it.
    """

    path: Path
    bytes: int
    used_ns: int
    verdict: Verdict
    why: str = ""
    index: Index | None = None

    @property
    def id(self) -> str:
        """The id of its key, which is its name."""
        return self.path.stem


def look(path: Path, *, check: bool, threads: int = 1) -> Entry:
    """What a file is. With ``check`` every byte is compared with its checksum, else only what it says of itself."""
    size = used = 0
    try:
        facts = path.stat()
        size, used = facts.st_size, facts.st_mtime_ns
        with files.reading(path) as descriptor:
            index = map_entry(descriptor, threads)[0] if check else read_index(descriptor)
    except Damaged as error:
        return Entry(path, size, used, Verdict.DAMAGED, str(error))
    except Incompatible as error:
        return Entry(path, size, used, Verdict.INCOMPATIBLE, str(error))
    except OSError as error:
        return Entry(path, size, used, Verdict.DAMAGED, f"cannot be read: {error.strerror}")
    if index.key.id != path.stem:
        return Entry(path, size, used, Verdict.INCOMPATIBLE, f"holds {index.key.id}", index)
    return Entry(path, size, used, Verdict.GOOD, "", index)


def listing(folder: Path, *, check: bool = False, threads: int = 1) -> list[Entry]:
    """Every artifact of a folder, by name."""
    return [look(path, check=check, threads=threads) for path in files.entries(folder)]


def chosen(folder: Path, prefixes: Sequence[str]) -> list[Path]:
    """The files whose ids begin with the prefixes, one each; all if none is given. ArtifactError for another number."""
    everything = files.entries(folder)
    found = []
    for prefix in prefixes:
        matches = [path for path in everything if path.stem.startswith(prefix)]
        if len(matches) != 1:
            what = f"{len(matches)} artifacts" if matches else "no artifact"
            raise ArtifactError(f"{folder} has {what} whose id begins with {prefix!r}; see: octavo artifacts list")
        found += matches
    return found if prefixes else everything


@dataclass(frozen=True)
class Pruned:
    """What `prune` deleted, and what it would have deleted had it not been in use."""

    gone: tuple[Entry, ...]
    in_use: tuple[Entry, ...]


def prune(
    folder: Path, *, max_bytes: int | None = None, used_before_ns: int | None = None, unusable: bool = False
) -> Pruned:
    """Delete what was last used before a time, what is damaged or incompatible if ``unusable`` (every byte is read
    then), and then the least recently used until the rest takes at most ``max_bytes``. Nothing that is mapped goes.

    What killed processes left behind goes as well. Raises ArtifactError if the folder cannot be written to.
    """
    try:
        return _prune(folder, max_bytes, used_before_ns, unusable)
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be pruned: {error}") from error


def _prune(folder: Path, max_bytes: int | None, used_before_ns: int | None, unusable: bool) -> Pruned:
    files.clear_unfinished(folder)
    kept = sorted(listing(folder, check=unusable), key=lambda entry: entry.used_ns)
    gone: list[Entry] = []
    in_use: list[Entry] = []

    def drop(entry: Entry) -> None:
        kept.remove(entry)
        (gone if files.delete_unless_mapped(entry.path) else in_use).append(entry)

    for entry in list(kept):
        old = used_before_ns is not None and entry.used_ns < used_before_ns
        if old or (unusable and entry.verdict is not Verdict.GOOD):
            drop(entry)
    while max_bytes is not None and kept and sum(entry.bytes for entry in (*kept, *in_use)) > max_bytes:
        drop(kept[0])
    return Pruned(tuple(gone), tuple(in_use))
