"""The tensors that make up a quantized weight, as their file holds them, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.quant import WeightFormat, WeightTensor

_DTYPES: Mapping[str, str] = {"I8": "i1", "I32": "<i4", "I64": "<i8", "F16": "<f2", "BF16": "<u2", "F32": "<f4"}
_FLOATS = ("F16", "BF16", "F32")


@dataclass(frozen=True)
class Stored:
    """One tensor of a file: its name, the file's word for its dtype, its shape, and its bytes when asked for."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[], npt.NDArray[np.uint8]]
    """All bytes, flat: a view of the file."""

    def array(self) -> npt.NDArray[Any]:
        """The tensor in numpy; bfloat16 as its bits. CheckpointError for a dtype that no quantized weight has."""
        if self.dtype not in _DTYPES:
            raise CheckpointError(f"{self.name} has dtype {self.dtype}; expected one of {', '.join(_DTYPES)}")
        try:
            return self.read().view(_DTYPES[self.dtype]).reshape(self.shape)
        except ValueError:
            raise CheckpointError(
                f"{self.name} of shape {self.shape} and dtype {self.dtype} does not fit its bytes"
            ) from None

    def floats(self) -> npt.NDArray[np.float32]:
        """Scales as float32, each exactly."""
        if self.dtype not in _FLOATS:
            raise CheckpointError(f"{self.name} has dtype {self.dtype}; scales must be one of {', '.join(_FLOATS)}")
        found = self.array()
        if self.dtype == "BF16":
            return (found.astype(np.uint32) << 16).view(np.float32)
        return found.astype(np.float32)

    def require(self, dtype: str, shape: tuple[int, ...] | None = None) -> None:
        """CheckpointError unless the tensor is as expected: two-dimensional where no shape is given."""
        if self.dtype != dtype or (len(self.shape) != 2 if shape is None else self.shape != shape):
            wanted = "two dimensions" if shape is None else f"shape {list(shape)}"
            raise CheckpointError(
                f"{self.name} is {self.dtype} of shape {list(self.shape)}; expected {dtype} with {wanted}"
            )


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight that several tensors of a file make up: its format and shape are known, ``read`` assembles it."""

    format: WeightFormat
    shape: tuple[int, int]
    read: Callable[[], WeightTensor]


Parts = Mapping[str, Stored]
"""The tensors of one module, by the last part of their names."""


def need(module: str, parts: Parts, name: str) -> Stored:
    """The part called ``name``; CheckpointError if the module lacks it."""
    if name not in parts:
        raise CheckpointError(f"{module} is quantized but has no {name}")
    return parts[name]


def group_size(module: str, inputs: int, scales: Stored, axis: int) -> int:
    """Inputs that share a scale, of which ``scales`` has one per group along ``axis``; a multiple of 32."""
    groups = scales.shape[axis] if len(scales.shape) == 2 else 0
    if groups == 0 or inputs % groups or inputs // groups % 32:
        raise CheckpointError(
            f"{scales.name} has shape {list(scales.shape)}: of the {inputs} inputs of {module} a multiple of 32 must "
            "share each scale"
        )
    return inputs // groups


def nibbles(packed: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The eight 4-bit codes of each int32, the lowest first, along a new last axis."""
    words = np.ascontiguousarray(packed).view(np.uint8).reshape(*packed.shape, 4)
    return np.stack([words & 15, words >> 4], -1).reshape(*packed.shape, 8)


def ordered(index: Stored, inputs: int, groups: int) -> bool:
    """Whether a tensor of each input's group says what goes without saying: groups of equal size, in order."""
    index.require("I32", (inputs,))
    return inputs % groups == 0 and bool((index.array() == np.arange(inputs) // (inputs // groups)).all())
