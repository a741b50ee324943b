"""Checkpoints as Hugging Face folders: config.json and one or many safetensors files, plain or quantized.

Format of a file (source: the safetensors README): eight bytes with the header's length N (little
endian), N bytes of JSON ``{name: {"dtype", "shape", "data_offsets": [begin, end]}}``, then the data;
offsets count from the first byte after the header. Bytes go into a `WeightTensor` as they are, so
bf16 needs no library that knows bf16.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.models.mapped import memory_map
from octavo.models.quantized import QuantizedWeight, Stored, quantization_method
from octavo.quant import BF16, F16, F32, WeightFormat, WeightTensor

_logger = logging.getLogger(__name__)

_LISTED = 5  # tensors that a warning names before it only counts
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
QUANTIZATION_FILES = ("quantize_config.json", "quant_config.json")
"""Where older writers (AutoGPTQ, AutoAWQ) put what is quantization_config in config.json today."""
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

# name-00001-of-00003.safetensors
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")
# Files beside the weights that hold other things: LoRA adapters, the same weights under a publisher's own names.
_OTHER_WEIGHTS = ("adapter_", "consolidated")

_FORMATS: Mapping[str, WeightFormat] = {"F32": F32, "F16": F16, "BF16": BF16}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library; a longer one is no header

# Multimodal checkpoints keep their language model one level down; the prefixes of both generations of
# transformers map onto the names of a text-only checkpoint, which are the ones graphs use.
_TEXT_PREFIXES = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)
# The first BERTs were converted from another framework, with its names.
_NORM_SUFFIXES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


@dataclass(frozen=True)
class _Entry:
    """One tensor of one file: its dtype word, its shape, its bytes as [begin, end) of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """One memory-mapped safetensors file; `entries` maps tensor names to where they lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        mapped = memory_map(path)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        self.entries: Mapping[str, _Entry] = self._parse(mapped, len(mapped))

    def _parse(self, mapped: mmap.mmap | bytes, size: int) -> dict[str, _Entry]:
        if size < _LENGTH_BYTES:
            raise CheckpointError(f"{self.path} has {size} bytes: it is no safetensors file")
        length = int.from_bytes(mapped[:_LENGTH_BYTES], "little")
        first = mapped[_LENGTH_BYTES : _LENGTH_BYTES + 1]
        if length > _MAX_HEADER_BYTES or (first and first != b"{"):
            raise CheckpointError(f"{self.path} is no safetensors file: it starts with {mapped[:16]!r}")
        start = _LENGTH_BYTES + length
        if start > size:
            raise CheckpointError(
                f"{self.path} is truncated: its header ends at byte {start}, the file at {size}; download it again"
            )
        try:
            header = json.loads(mapped[_LENGTH_BYTES:start])
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.path} is no safetensors file: its header is not JSON ({error})") from error
        if not isinstance(header, dict):
            raise CheckpointError(f"{self.path} is no safetensors file: its header is no JSON object")
        header.pop("__metadata__", None)
        return {name: self._entry(name, value, start, size) for name, value in header.items()}

    def _entry(self, name: str, value: Any, start: int, size: int) -> _Entry:
        try:
            shape = tuple(int(extent) for extent in value["shape"])
            begin, end = (start + int(offset) for offset in value["data_offsets"])
            dtype = str(value["dtype"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self.path}: the header's entry of {name!r} is malformed: {value!r}") from error
        if not start <= begin <= end:
            raise CheckpointError(f"{self.path}: the header's entry of {name!r} is malformed: {value!r}")
        if end > size:
            raise CheckpointError(
                f"{self.path} is truncated: weight {name} ends at byte {end}, the file at {size}; download it again"
            )
        return _Entry(dtype, shape, begin, end)

    def info(self, name: str) -> tuple[WeightFormat, tuple[int, ...]]:
        """Format and shape of a tensor; CheckpointError for a dtype that is no weight format."""
        entry = self.entries[name]
        form = _FORMATS.get(entry.dtype)
        if form is None:
            raise CheckpointError(
                f"{self.path}: weight {name} has dtype {entry.dtype}; supported: {', '.join(_FORMATS)}"
            )
        if math.prod(entry.shape) * form.block_bytes != entry.end - entry.begin:
            raise CheckpointError(
                f"{self.path}: weight {name} of shape {entry.shape} and dtype {entry.dtype} "
                f"cannot have {entry.end - entry.begin} bytes"
            )
        return form, entry.shape

    def tensor(self, name: str) -> WeightTensor:
        """The tensor as a view of the memory map: no byte is read before it is used."""
        form, shape = self.info(name)
        if not shape:
            raise CheckpointError(f"{self.path}: weight {name} is a scalar; a weight has at least one dimension")
        return WeightTensor(form, shape, self._data(name).reshape(*shape[:-1], form.row_bytes(shape[-1])))

    def stored(self, name: str) -> Stored:
        """The tensor whatever its dtype, as a part of a quantized weight."""
        entry = self.entries[name]
        return Stored(name, entry.dtype, entry.shape, partial(self._data, name))

    def _data(self, name: str) -> npt.NDArray[np.uint8]:
        entry = self.entries[name]
        return self._bytes[entry.begin : entry.end]


class SafetensorsCheckpoint:
    """A folder with config.json and model.safetensors, or shards and their index (see `Checkpoint`)."""

    def __init__(self, path: Path) -> None:
        """Open ``path``; CheckpointError if a file is missing, damaged, or not to be trusted."""
        self.path = path
        if not (path / "config.json").is_file():
            raise CheckpointError(_no_config(path))
        self.config: Mapping[str, Any] = read_json(path / "config.json")
        generation = path / "generation_config.json"
        self.generation_config: Mapping[str, Any] = read_json(generation) if generation.is_file() else {}
        self._where: dict[str, tuple[SafetensorsFile, str]] = {}
        tensors = _stored_tensors(path)
        # A model saved without its head has the names of its inside: those of a causal model less their first word.
        bare = any(stored == "embed_tokens.weight" for _, stored in tensors)
        for file, stored in tensors:
            self._where["model." + stored if bare else _text_name(stored)] = (file, stored)
        try:
            self._quantized = self._quantized_weights()
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error

    def _quantized_weights(self) -> dict[str, QuantizedWeight]:
        """The weights that several tensors make up, whose names they take the place of."""
        method = quantization_method(_with_quantization(self.path, self.config))
        if method is None:
            return {}
        modules: dict[str, dict[str, Stored]] = {}
        for name, (file, stored) in self._where.items():
            module, _, part = name.rpartition(".")
            if part in method.parts:
                modules.setdefault(module, {})[part] = file.stored(stored)
        modules = {module: parts for module, parts in modules.items() if method.marker in parts}
        if not modules:
            raise CheckpointError(f"config.json says that it is quantized, but no tensor is called {method.marker}")
        for module, parts in modules.items():
            for part in parts:
                del self._where[f"{module}.{part}"]
        for name in self._where:
            module, _, part = name.rpartition(".")
            if module in modules and part != "bias":
                raise CheckpointError(
                    f"{name} belongs to a quantized module and is not supported: it may change what the module "
                    f"computes (known: {', '.join(sorted(method.parts))}, bias)"
                )
        return {f"{module}.weight": method.weight(module, parts) for module, parts in modules.items()}

    def names(self) -> Sequence[str]:
        """Every weight in the folder, by the name a text-only checkpoint has for it."""
        return (*self._where, *self._quantized)

    def info(self, name: str) -> tuple[WeightFormat, tuple[int, ...]]:
        """Format and shape of a weight, without reading it; KeyError if there is no such weight."""
        if name in self._quantized:
            return self._quantized[name].format, self._quantized[name].shape
        file, stored = self._where[name]
        return file.info(stored)

    def tensor(self, name: str) -> WeightTensor:
        """The weight: a read-only view of its file, or assembled if it is quantized; KeyError if there is none."""
        if name in self._quantized:
            try:
                return self._quantized[name].read()
            except CheckpointError as error:
                raise CheckpointError(f"{self.path}: {error}") from error
        file, stored = self._where[name]
        return file.tensor(stored)


def _with_quantization(path: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """``config`` with the quantization_config of an older writer's own file, where config.json has none."""
    text = config.get("text_config")
    if config.get("quantization_config") or (isinstance(text, Mapping) and text.get("quantization_config")):
        return config
    for name in QUANTIZATION_FILES:
        if (path / name).is_file():
            options = read_json(path / name)
            method = "awq" if {"w_bit", "zero_point"} & options.keys() else "gptq"  # from before there was a name
            return {**config, "quantization_config": {"quant_method": method, **options}}
    return config


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint; CheckpointError if there is none."""
    value = _read_json(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """The JSON array of objects in a file of a checkpoint; CheckpointError if there is none."""
    value = _read_json(path)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise CheckpointError(f"{path} must hold a JSON array of objects")
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


def _stored_tensors(path: Path) -> list[tuple[SafetensorsFile, str]]:
    """Each tensor of the folder with the file that holds it, by its stored name."""
    if (path / INDEX).is_file():
        return _indexed_tensors(path)
    if (path / SINGLE).is_file():
        file = SafetensorsFile(path / SINGLE)
        _warn_of_unnamed_files(path, [SINGLE], SINGLE)
        return [(file, name) for name in file.entries]
    return _unindexed_tensors(path)


def _unindexed_tensors(path: Path) -> list[tuple[SafetensorsFile, str]]:
    """The tensors of a complete set of shards without their index, or of a single file of another name."""
    names = sorted(p.name for p in path.glob("*.safetensors") if not p.name.startswith(_OTHER_WEIGHTS))
    if not names:
        raise CheckpointError(_no_weights(path))
    if len(names) > 1:
        _require_all_shards(path, names)
    where: dict[str, SafetensorsFile] = {}
    for file in (SafetensorsFile(path / name) for name in names):
        for name in file.entries:
            if name in where:
                raise CheckpointError(f"{path}: weight {name} is in {where[name].path.name} and in {file.path.name}")
            where[name] = file
    return [(file, name) for name, file in where.items()]


def _require_all_shards(path: Path, names: Sequence[str]) -> None:
    """CheckpointError unless ``names`` are the shards 1 to N of one set."""
    parts = [_SHARD.fullmatch(name) for name in names]
    sets = {(part[1], part[3]) if part else None for part in parts}
    if len(sets) > 1 or None in sets:
        raise CheckpointError(
            f"{path} has neither {SINGLE} nor {INDEX}, and its files are not the shards of one model: "
            f"{', '.join(names)}; remove those that are not, or add the index"
        )
    ((stem, count),) = (found for found in sets if found)
    numbers = {int(part[2]) for part in parts if part}
    missing = [number for number in range(1, int(count) + 1) if number not in numbers]
    if missing or len(numbers) != int(count):
        lacking = ", ".join(f"{stem}-{number:05d}-of-{count}.safetensors" for number in missing)
        raise CheckpointError(f"{path} lacks {len(missing)} of {int(count)} shards: {lacking}; download them")


def _indexed_tensors(path: Path) -> list[tuple[SafetensorsFile, str]]:
    index = path / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map")
    shards = sorted({str(shard) for shard in weight_map.values()})
    for shard in shards:
        if Path(shard).name != shard:  # an index may not lead out of its folder
            raise CheckpointError(f"{index} names the shard {shard!r}; a shard must lie in the same folder")
    missing = [shard for shard in shards if not (path / shard).is_file()]
    if missing:
        raise CheckpointError(
            f"{path} lacks {len(missing)} of the {len(shards)} shards that {INDEX} names: {', '.join(missing)}"
        )
    files = {shard: SafetensorsFile(path / shard) for shard in shards}
    for name, shard in weight_map.items():
        if name not in files[shard].entries:
            raise CheckpointError(f"{index} places weight {name} in {shard}, which does not hold it")
    unlisted = [name for shard in shards for name in files[shard].entries if name not in weight_map]
    if unlisted:
        more = f" and {len(unlisted) - _LISTED} more" if len(unlisted) > _LISTED else ""
        _logger.warning(
            "%s: %s does not list %d tensors of its shards, which are not used: %s%s",
            path, INDEX, len(unlisted), ", ".join(unlisted[:_LISTED]), more,
        )  # fmt: skip
    _warn_of_unnamed_files(path, shards, INDEX)
    return [(files[shard], name) for name, shard in weight_map.items()]


def _warn_of_unnamed_files(path: Path, read: Sequence[str], by: str) -> None:
    """Warn of weights in files that ``by``, the index or the usual file, leaves out: an older version, or a part of the
    model that was meant to be read.
    """
    found = (p.name for p in path.glob("*.safetensors") if not p.name.startswith(_OTHER_WEIGHTS))
    unnamed = sorted(set(found) - set(read))
    if unnamed:
        _logger.warning("%s: not read, beside %s: %s", path, by, ", ".join(unnamed[:_LISTED]))


def _text_name(stored: str) -> str:
    for prefix, replacement in _TEXT_PREFIXES:
        if stored.startswith(prefix):
            return replacement + stored[len(prefix) :]
    for suffix, replacement in _NORM_SUFFIXES:
        if stored.endswith(suffix):
            return stored[: -len(suffix)] + replacement
    return stored


def _no_config(path: Path) -> str:
    ggufs = sorted(p.name for p in path.glob("*.gguf"))
    if ggufs:
        return f"{path} has no config.json; it holds {', '.join(ggufs)}: give the path of one of these files instead"
    return f"{path} has no config.json: it is no model folder"


def _no_weights(path: Path) -> str:
    pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLE_SUFFIXES)
    if pickles:
        return (
            f"{path} holds its weights as {', '.join(pickles)}: Octavo never unpickles a checkpoint, because a "
            "pickle can run any code; convert it to safetensors"
        )
    return f"{path} holds no weights: neither {SINGLE} nor {INDEX} nor shards are there"
