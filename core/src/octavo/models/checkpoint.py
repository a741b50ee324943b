"""What a model's files offer, whatever their format, and how to open them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from octavo.errors import CheckpointError
from octavo.models.gguf_reader import GGUFCheckpoint
from octavo.models.hub import resolve
from octavo.models.safetensors_reader import PICKLE_SUFFIXES, SafetensorsCheckpoint
from octavo.quant import WeightFormat, WeightTensor

__all__ = ["Checkpoint", "open_checkpoint", "resolve"]


class Checkpoint(Protocol):
    """An opened checkpoint. Its tensors are lazy: opening reads headers, `tensor` maps bytes.

    Names and conventions are those of Hugging Face's text-only checkpoints in every format.
    """

    path: Path
    config: Mapping[str, Any]
    """config.json (made from the metadata where the format has none)."""
    generation_config: Mapping[str, Any]
    """generation_config.json; empty where there is none."""

    def names(self) -> Sequence[str]:
        """The names of all weights, those no graph uses included."""
        ...

    def info(self, name: str) -> tuple[WeightFormat, tuple[int, ...]]:
        """Format and logical shape of a weight, without reading it.

        KeyError if there is no such weight, CheckpointError if its format is not supported.
        """
        ...

    def tensor(self, name: str) -> WeightTensor:
        """The weight as `info` describes it: a read-only view of the file where its bytes can be used as
        they are, else a copy that belongs to the caller. Nothing is cached. Errors as for `info`.
        """
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder with config.json and safetensors, or in a .gguf file.

    Raises CheckpointError that names what is missing, damaged or foreign. No code from a checkpoint ever
    runs: no pickles, no modelling files.
    """
    if path.is_dir():
        return SafetensorsCheckpoint(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    if path.suffix in PICKLE_SUFFIXES:
        raise CheckpointError(
            f"{path} looks like a pickle, which Octavo never opens because it can run any code; "
            "convert it to safetensors"
        )
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path} is one file of a model; give its folder, which must hold config.json too")
    return GGUFCheckpoint(path)
