"""Artifacts as one file, to carry to another machine.

A bundle is a plain tar: ``manifest.json``, which lists name, bytes and SHA-256 of each artifact, then the artifacts.
The SHA-256 of the manifest is the bundle's id: who knows it knows all of the content. The same artifacts give the same
bytes. Nothing that a tar can say beyond name, kind and size of a member is believed: neither paths, links, owners nor
permissions.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from octavo.errors import ArtifactError
from octavo.platform.artifacts import files
from octavo.platform.artifacts.entry import Damaged, Incompatible, check_content
from octavo.platform.artifacts.inspect import look
from octavo.platform.artifacts.key import ID, Verdict

_FORMAT, _VERSION = "octavo artifacts", 1
_MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 16 << 20  # bytes that are read on trust
_CHUNK = 4 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class _Member:
    """An artifact in the manifest; ``name`` is its file's."""

    name: str
    bytes: int
    sha256: str


def export_bundle(paths: Sequence[Path], out: Path, *, threads: int = 1) -> str:
    """Write a bundle of these artifacts to ``out``, which appears when it is complete. Returns its id.

    Raises ArtifactError for an artifact that is not good, or if the file cannot be written.
    """
    temporary = out.with_name(f"{out.name}.{os.getpid()}.tmp")
    try:
        members = [_member(path, threads) for path in paths]
        content = {"format": _FORMAT, "version": _VERSION, "artifacts": [asdict(member) for member in members]}
        manifest = json.dumps(content, sort_keys=True, indent=1).encode()
        with temporary.open("xb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.addfile(_header(_MANIFEST, len(manifest)), BytesIO(manifest))
                for path, member in zip(paths, members, strict=True):
                    with path.open("rb") as artifact:
                        tar.addfile(_header(member.name, member.bytes), artifact)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as error:
        raise ArtifactError(f"the bundle {out} cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return _sha256([manifest])


def _member(path: Path, threads: int) -> _Member:
    entry = look(path, check=True, threads=threads)
    if entry.verdict is not Verdict.GOOD:
        raise ArtifactError(
            f"{path} is {entry.verdict.value}: the file {entry.why} (octavo artifacts prune --unusable deletes such)"
        )
    with path.open("rb") as file:
        return _Member(path.name, entry.bytes, _sha256(_chunks(file)))


def import_bundle(
    bundle: Path, folder: Path, *, expected: str | None = None, private: bool = True, threads: int = 1
) -> tuple[list[Path], list[Path]]:
    """Put a bundle's artifacts into a store. Returns those that are new, and those that were there already.

    Everything is checked before anything is written. ``expected`` is the id that the bundle
    must have. Raises ArtifactError for a bundle that is not what it should be, and then imports nothing.
    """
    try:
        members = _check(bundle, expected, threads)
        files.make_folder(folder, private=private)
        new: list[Path] = []
        there: list[Path] = []
        with tarfile.open(bundle, "r:") as tar:
            for member, _, content in _walk(tar, bundle, members):
                path = folder / member.name
                with files.lock(folder, path.stem):
                    if path.exists() and look(path, check=True, threads=threads).verdict is Verdict.GOOD:
                        there.append(path)
                        continue
                    _write(bundle, member, content, path, private=private)
                new.append(path)
    except (tarfile.TarError, EOFError) as error:
        raise ArtifactError(f"{bundle} is no bundle of artifacts: {error}") from error
    except OSError as error:
        raise ArtifactError(f"{bundle} cannot be imported into {folder}: {error}") from error
    return new, there


def _check(bundle: Path, expected: str | None, threads: int) -> dict[str, _Member]:
    """The bundle's members, each as the manifest has it."""
    with tarfile.open(bundle, "r:") as tar:
        manifest = _read_manifest(tar, bundle)
        found = _sha256([manifest])
        if expected is not None and found != expected.lower():
            raise ArtifactError(f"{bundle} has the id {found}, not {expected}: it is another bundle, or was changed")
        members = {member.name: member for member in _parse(manifest, bundle)}
        with bundle.open("rb") as file:
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for member, header, _ in _walk(tar, bundle, members, begun=True):
            content = whole[header.offset_data : header.offset_data + header.size]
            if _sha256([content]) != member.sha256:
                raise ArtifactError(f"{bundle} is damaged: {member.name} does not hold what its manifest says")
            _check_artifact(bundle, member, content, threads)
    return members


def _check_artifact(bundle: Path, member: _Member, content: memoryview, threads: int) -> None:
    try:
        key = check_content(content, threads).key
    except (Damaged, Incompatible) as error:
        raise ArtifactError(f"{bundle} cannot be imported: {member.name} {error}") from error
    if key.id != Path(member.name).stem:
        raise ArtifactError(f"{bundle} is damaged: {member.name} holds {key.id}")


def _read_manifest(tar: tarfile.TarFile, bundle: Path) -> bytes:
    first = tar.next()
    content = tar.extractfile(first) if first is not None and _plain(first) else None
    if first is None or content is None or first.name != _MANIFEST or first.size > _MANIFEST_LIMIT:
        raise ArtifactError(f"{bundle} is no bundle of artifacts: it does not begin with a {_MANIFEST}")
    return content.read()


def _parse(manifest: bytes, bundle: Path) -> list[_Member]:
    try:
        content = json.loads(manifest)
        if content["format"] != _FORMAT or content["version"] != _VERSION:
            raise ArtifactError(
                f"{bundle} is of format {content['format']} {content['version']}, and this octavo reads "
                f"{_FORMAT} {_VERSION}"
            )
        members = [_Member(**raw) for raw in content["artifacts"]]
        sound = all(_sound(member) for member in members) and len({m.name for m in members}) == len(members)
    except (ValueError, TypeError, KeyError) as error:
        raise ArtifactError(f"{bundle} has a manifest that makes no sense: {error}") from error
    if not sound:
        raise ArtifactError(f"{bundle} has a manifest that makes no sense: a name, size or checksum in it is none")
    return members


def _sound(member: _Member) -> bool:
    name, size = Path(member.name), member.bytes
    named = name.name == member.name and name.suffix == files.SUFFIX and ID.fullmatch(name.stem) is not None
    return named and _SHA256.fullmatch(member.sha256) is not None and size >= 0


def _walk(
    tar: tarfile.TarFile, bundle: Path, members: dict[str, _Member], *, begun: bool = False
) -> Iterator[tuple[_Member, tarfile.TarInfo, IO[bytes]]]:
    """Each artifact of the tar, its header and its content. ArtifactError unless they are exactly the manifest's."""
    if not begun:
        _read_manifest(tar, bundle)
    left = dict(members)
    while (header := tar.next()) is not None:
        member = left.pop(header.name, None)
        content = tar.extractfile(header) if _plain(header) else None
        if member is None or content is None or header.size != member.bytes:
            raise ArtifactError(f"{bundle} is damaged: {header.name!r} is not in its manifest as it is in the bundle")
        yield member, header, content
    if left:
        raise ArtifactError(f"{bundle} is damaged: it lacks {', '.join(sorted(left))}")


def _write(bundle: Path, member: _Member, content: IO[bytes], path: Path, *, private: bool) -> None:
    """Publish an artifact that `_check` found good; the sum shows whether it is still the same."""
    with files.publishing(path, member.bytes, private=private) as descriptor:
        digest = hashlib.sha256()
        for chunk in _chunks(content):
            digest.update(chunk)
            rest = memoryview(chunk)
            while rest.nbytes:
                rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
        if digest.hexdigest() != member.sha256:
            raise ArtifactError(f"{bundle} was changed while it was read")


def _plain(header: tarfile.TarInfo) -> bool:
    """Whether a member is a file and nothing cleverer: no link, device, folder or sparse file."""
    return header.type in (tarfile.REGTYPE, tarfile.AREGTYPE)


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size, header.mode = size, 0o644
    return header


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _sha256(chunks: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
