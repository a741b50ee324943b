"""Artifacts to test a store with: small, and different for each seed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.platform import Artifact, ArtifactKey, ArtifactPolicy, ArtifactStore, ArtifactWriter, Bucket, KVLayout

KEY = ArtifactKey(
    kind="program",
    platform="acme",
    device="A1",
    compiler="acme-cc 4.1",
    graph="c0ffee",
    dialect="1.0",
    formats=("f32", "q8_0"),
    bucket=Bucket(8, 2, 2, 4),
    layout=KVLayout(16, 2, 4, 64, "bf16"),
    mesh=(0, 2),
    checkpoint="feed",
    options={"opt": "2"},
    abi="runtime 3",
)
PATH = f"{KEY.id}.artifact"


class Builder:
    """Makes three arrays and a note that depend on a seed, and counts how often it does."""

    def __init__(self, seed: int = 0) -> None:
        self.calls = 0
        rng = np.random.default_rng(seed)
        self.arrays: dict[str, npt.NDArray[Any]] = {
            "code": rng.integers(0, 256, 70_001, dtype=np.uint8),
            "table": rng.standard_normal((3, 64)).astype(np.float32),
            "empty": np.empty((0, 4), np.uint8),
        }
        self.notes = {"memory": f"{seed} bytes"}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    def __call__(self, writer: ArtifactWriter) -> None:
        self.calls += 1
        for name, array in self.arrays.items():
            writer.add(name, array.copy())
        for name, value in self.notes.items():
            writer.note(name, value)

    def check(self, artifact: Artifact) -> None:
        """The artifact is what this builder makes, to the bit."""
        assert list(artifact.arrays) == list(self.arrays)
        assert artifact.notes == self.notes
        for name, array in self.arrays.items():
            found = artifact.arrays[name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


def store(folder: Path, policy: ArtifactPolicy = ArtifactPolicy.USE, **options: Any) -> ArtifactStore:
    """A store of its own in a folder."""
    return ArtifactStore(folder, policy=policy, **options)


def names(folder: Path) -> list[str]:
    """What lies in a folder; nothing if it is not there."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def flip(path: Path, at: int) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def script(code: str) -> list[str]:
    """The command that runs ``code`` in a process of its own, with everything from here at hand."""
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
    return [sys.executable, "-c", path + "from artifacts.samples import *\n" + textwrap.dedent(code)]


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own."""
    return subprocess.run(script(code), capture_output=True, text=True, check=False, timeout=120)
