"""Jobs of the artifact checks: processes that die while they write, several that write at once, keys with one field
changed, files that others made.

What is written are artifacts that the platform made before, read from a folder; only their writing is repeated, so that
processes can be forked: nothing of the device is touched in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

from octavo.config import EngineConfig
from octavo.engine.ahead import compile_ahead
from octavo.errors import ArtifactMissing
from octavo.platform import ArtifactKey, ArtifactPolicy, ArtifactStore, ArtifactWriter, Bucket, KVLayout, Platform
from octavo.platform.artifacts import files
from octavo.platform.artifacts.entry import EntryWriter, map_entry
from octavo_conformance.worker.actions import action
from octavo_conformance.worker.candidate import candidate


@action("compile ahead")
def ahead(platform: Platform, arguments: Mapping[str, Any]) -> None:
    """`octavo compile` of a model that does not exist: what it refuses, it refuses before."""
    known = mock.patch("octavo.engine.ahead.select_compiler", return_value=platform)
    with known, candidate("compile_ahead"):
        config = EngineConfig(model="no-such-model", platform=platform.info.name)
        compile_ahead(config, Path("no-such-folder"), arguments["target"], lambda what, done, total: None)


def _contents(folder: str) -> list[tuple[ArtifactKey, Callable[[ArtifactWriter], None]]]:
    """The key of each artifact of a folder, and what makes it again."""
    found: list[tuple[ArtifactKey, Callable[[ArtifactWriter], None]]] = []
    for path in files.entries(Path(folder)):
        with files.reading(path) as descriptor:
            index, arrays = map_entry(descriptor, 1)

        def build(writer: ArtifactWriter, arrays: Mapping[str, Any] = arrays, notes: Any = index.notes) -> None:
            for name, array in arrays.items():
                writer.add(name, array)
            for name, value in notes.items():
                writer.note(name, value)

        found.append((index.key, build))
    return found


def _forked(work: Callable[[], None]) -> int:
    """Run ``work`` in a child that ends with it; its process id."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


@action("artifacts.killed")
def killed(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, int]:
    """Write the first artifact of ``source`` into ``folder`` in one child after another, each killed at a later one of
    the calls that change a file, until one gets through. After each the folder must hold nothing or a whole artifact.
    """
    key, build = _contents(arguments["source"])[0]
    folder = Path(arguments["folder"])
    path = files.entry_path(folder, key.id)
    points = torn = 0
    while True:
        points += 1
        child = _forked(partial(_write_until, points, folder, key, build))
        _, status = os.waitpid(child, 0)
        if path.exists():
            with files.reading(path) as descriptor:
                try:
                    map_entry(descriptor, 1)
                except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not whole
                    torn += 1
            path.unlink()
        if not os.WIFSIGNALED(status) or points > 200:
            left = [p.name for p in folder.iterdir()]
            return {"points": points, "torn": torn, "left": len(left), "ended": int(os.WIFEXITED(status))}


def _write_until(point: int, folder: Path, key: ArtifactKey, build: Callable[[ArtifactWriter], None]) -> None:
    """Write, and die before the ``point``-th of the calls that change a file."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **more)

        return call

    names = ("write", "fsync", "ftruncate", "lseek", "posix_fallocate", "replace", "rename", "unlink", "mkdir")
    for name in names:
        if hasattr(os, name):
            mock.patch.object(os, name, counted(getattr(os, name))).start()
    for name in ("replace", "rename", "unlink"):
        mock.patch.object(Path, name, counted(getattr(Path, name))).start()
    ArtifactStore(folder).open(key, build)


@action("artifacts.race")
def race(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Several children want the first artifact of ``source`` in an empty ``folder`` at once. Each tells what it got."""
    key, build = _contents(arguments["source"])[0]
    folder, told = Path(arguments["folder"]), Path(arguments["told"])
    told.mkdir()

    def slowly(writer: ArtifactWriter) -> None:
        time.sleep(0.1)  # so that the others come while it is made
        build(writer)

    def child(number: int) -> None:
        found = ArtifactStore(folder).open(key, slowly)
        content = {name: hash_of(array) for name, array in found.arrays.items()}
        (told / f"{number}.json").write_text(json.dumps([found.made, content]), encoding="utf-8")

    children = [_forked(lambda number=number: child(number)) for number in range(arguments["count"])]  # type: ignore[misc]
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(told.iterdir())]
    return {
        "failed": sum(status != 0 for status in statuses),
        "made": sum(made for made, _ in answers),
        "contents": len({json.dumps(content, sort_keys=True) for _, content in answers}),
        "files": len(files.entries(folder)),
    }


def hash_of(array: Any) -> str:
    """A name for an array's bytes."""
    return hashlib.sha256(array.tobytes()).hexdigest()


FLIPS: Mapping[str, Callable[[ArtifactKey], Any]] = {
    "kind": lambda k: k.kind + "x",
    "platform": lambda k: k.platform + "x",
    "device": lambda k: k.device + "x",
    "compiler": lambda k: k.compiler + "x",
    "graph": lambda k: k.graph + "0",
    "dialect": lambda k: k.dialect + "1",
    "formats": lambda k: (*k.formats, "other"),
    "bucket": lambda k: Bucket(*((n or 0) + 1 for n in k.bucket or (0,) * 4)),
    "layout": lambda k: replace(k.layout, dtype=k.layout.dtype + "x") if k.layout else KVLayout(16, 1, 1, 64, "f32"),
    "mesh": lambda k: (k.mesh[0], k.mesh[1] + 1),
    "checkpoint": lambda k: k.checkpoint + "x",
    "options": lambda k: {**k.options, "other": "1"},
    "abi": lambda k: k.abi + "x",
}
"""Another value for each field of a key."""


@action("artifacts.flips")
def flips(platform: Platform, arguments: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """For each field of each key in ``folder``: how often a key that differs in it alone was served as if it did
    not.
    """
    served: dict[str, dict[str, int]] = {name: {"asked": 0, "served": 0, "promised": 0} for name in FLIPS}
    store = ArtifactStore(Path(arguments["folder"]), policy=ArtifactPolicy.REQUIRE, writable=False)
    for key, _ in _contents(arguments["folder"]):
        for name, other in FLIPS.items():
            flipped = replace(key, **{name: other(key)})
            served[name]["asked"] += 1
            try:
                store.open(flipped, _never)
            except ArtifactMissing:
                continue
            promise = name == "compiler" and key.abi  # of one abi: stale, and usable
            served[name]["promised" if promise else "served"] += 1
    return served


def _never(writer: ArtifactWriter) -> NoReturn:
    raise AssertionError("nothing is made under this policy")


@action("artifacts.rewrite")
def rewrite(platform: Platform, arguments: Mapping[str, Any]) -> None:
    """Write each artifact of ``folder`` again as if its key had another ``field``: under its old name (a foreign file),
    or, if ``renamed``, under its new one.
    """
    folder = Path(arguments["folder"])
    for old, (key, build) in zip(files.entries(folder), _contents(str(folder)), strict=True):
        field = arguments["field"]
        other = replace(key, **{field: FLIPS[field](key)}) if field else key
        temporary = folder / "rewritten"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            writer = EntryWriter(descriptor)
            build(writer)
            writer.finish(other)
        finally:
            os.close(descriptor)
        old.unlink()
        temporary.replace(files.entry_path(folder, other.id) if arguments["renamed"] else old)


@action("artifacts.version")
def version(platform: Platform, arguments: Mapping[str, Any]) -> None:
    """Give each artifact of ``folder`` another version of the file format, with a header that is whole."""
    for path in files.entries(Path(arguments["folder"])):
        content = bytearray(path.read_bytes())
        header = struct.Struct("<8sIQQQI")
        magic, _, *rest = header.unpack_from(content)
        header.pack_into(content, 0, magic, 99, *rest)
        struct.pack_into("<I", content, header.size, zlib.crc32(bytes(content[: header.size])))
        path.unlink()  # a file that is mapped stays what it is
        path.write_bytes(content)
