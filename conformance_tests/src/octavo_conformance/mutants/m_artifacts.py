"""Faults in what is kept: in the keys of a platform that keeps its graphs, and in the store."""

from __future__ import annotations

import os
import stat
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from octavo.graph import Graph, from_json, to_json
from octavo.platform import (
    ArtifactKey,
    ArtifactStore,
    ArtifactWriter,
    Bucket,
    Capabilities,
    Device,
    Executable,
    KVLayout,
    KVStore,
    Platform,
    Progress,
    Rank,
    StepInput,
)
from octavo.platform.artifacts import Verdict, entry, files, store
from octavo.quant import WeightTensor
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped


class Keeps(Wrapped):
    """A platform that keeps the graphs it compiles, and runs what it finds: so that these faults can be planted in any
    platform. Without one it is right.
    """

    def capabilities(self) -> Capabilities:
        can = super().capabilities()
        return replace(can, targets=can.targets or ("any",))

    def open(self, rank: Rank) -> Device:
        return _Keeping(super().open(rank), self, rank)

    def key(self, key: ArtifactKey) -> ArtifactKey:
        """The key of a program; faults change it."""
        return key


class _Keeping:
    def __init__(self, inner: Device, mutant: Keeps, rank: Rank) -> None:
        self._inner, self._mutant, self._rank = inner, mutant, rank
        self._checkpoint = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load(
        self, graph: Graph, weights: Mapping[str, WeightTensor], progress: Progress, files: Sequence[Path] = ()
    ) -> object:
        self._checkpoint = ArtifactStore().digest(files)
        return self._inner.load(graph, weights, progress, files)

    def compile(self, graph: Graph, bucket: Bucket, weights: Any, layout: KVLayout) -> Executable:
        def build(writer: ArtifactWriter) -> None:
            writer.add("graph", np.frombuffer(to_json(graph).encode(), np.uint8))
            writer.add("room", np.ones(5000, np.uint8))

        key = ArtifactKey.for_graph(
            graph, kind="graph", platform=self._mutant.info.name, device=self._mutant.capabilities().targets[0],
            compiler="keeps 1", bucket=bucket, layout=layout, mesh=self._rank.mesh, checkpoint=self._checkpoint,
        )  # fmt: skip
        kept = self._rank.artifacts.open(self._mutant.key(key), build).arrays
        found = from_json(kept["graph"].tobytes().decode())
        return _Mapped(self._inner.compile(found, bucket, weights, layout), kept["room"])


class _Mapped:
    """Reads what is mapped at each step, so that it matters what becomes of the file."""

    def __init__(self, inner: Executable, room: Any) -> None:
        self._inner, self._room = inner, room

    def submit(self, step: StepInput, kv: KVStore) -> object:
        if int(self._room.sum()) != len(self._room):
            raise RuntimeError("the program is not what it was")
        return self._inner.submit(step, kv)

    def collect(self, ticket: Any) -> Any:
        return self._inner.collect(ticket)


@mutant("M36.graph", "the key of a program does not depend on the graph", killed_by=("art.key_sensitivity",))
class AnyGraph(Keeps):
    """Nor on the weights' formats, which belong to it."""

    def key(self, key: ArtifactKey) -> ArtifactKey:
        return replace(key, graph="", formats=())


@mutant(
    "M36.time",
    "the key of a program depends on when and where it is asked for",
    killed_by=("art.warm_no_compile", "art.key_insensitivity", "art.relocate"),
)
class AnyTime(Keeps):
    """No two lives find the same."""

    lives = 0

    def open(self, rank: Rank) -> Device:
        self.lives += 1
        return super().open(rank)

    def key(self, key: ArtifactKey) -> ArtifactKey:
        return replace(key, options={"life": f"{self.lives} of {os.getpid()}"})


@mutant("M36.compiler", "what any compiler made is taken", killed_by=("art.key_sensitivity", "art.stale_index"))
class AnyCompiler(Keeps):
    """The name of a file leaves the compiler out."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        ArtifactKey.id = property(lambda self: f"{self.family}-{'0' * 16}")  # type: ignore[assignment]


@mutant("M37.atomic", "an artifact is written where it will lie", killed_by=("art.atomic_publish",))
class InPlace(Keeps):
    """Who looks too early finds a part of it."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)

        @contextmanager
        def publishing(path: Path, nbytes: int, *, private: bool) -> Iterator[int]:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

        files.publishing = publishing


@mutant("M37.lock", "nobody waits for who makes the same artifact", killed_by=("art.concurrent_writers",))
class Unlocked(Keeps):
    """All make it."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)

        @contextmanager
        def lock(folder: Path, key: str, *, wait: bool = True) -> Iterator[None]:
            yield

        files.lock = lock


@mutant("M37.corrupt", "checksums are not compared", killed_by=("art.corrupt_detect",))
class Trusting(Keeps):
    """The header alone is looked at."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        entry.check_content = lambda content, threads: entry._index(content)


@mutant("M37.foreign", "whatever lies under the right name is taken", killed_by=("art.foreign_arch_refused",))
class Indifferent(Keeps):
    """The key in the file is not looked at."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        store.judge = lambda found, wanted: Verdict.GOOD  # type: ignore[attr-defined]


@mutant("M37.writes", "a store that must not be written to is", killed_by=("art.readonly_store",))
class Writes(Keeps):
    """Wherever it can."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        ArtifactStore._can_write = lambda self: self.folder is not None  # type: ignore[method-assign]


@mutant("M37.full", "what was written before the disk was full stays", killed_by=("art.full_disk",))
class Litters(Keeps):
    """Under the name of an unfinished file."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        real = files.publishing

        @contextmanager
        def publishing(path: Path, nbytes: int, *, private: bool) -> Iterator[int]:
            try:
                with real(path, nbytes, private=private) as descriptor:
                    yield descriptor
            except OSError:
                path.with_suffix(".tmp").write_bytes(b"a part")
                raise

        files.publishing = publishing


@mutant("M37.evict", "room is made by emptying files that are in use", killed_by=("art.eviction_safe",))
class Empties(Keeps):
    """Who has one mapped reads nothing any more."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)

        def delete(path: Path) -> bool:
            os.truncate(path, 0)
            path.unlink()
            return True

        files.delete_unless_mapped = delete


@mutant("M37.trust", "files that anybody may write to are trusted", killed_by=("art.untrusted_refused",))
class Careless(Keeps):
    """Their permissions are not looked at."""

    def __init__(self, inner: Platform) -> None:
        super().__init__(inner)
        entry.stat = types.SimpleNamespace(S_ISREG=stat.S_ISREG, S_IWOTH=0)  # type: ignore[assignment, attr-defined]
