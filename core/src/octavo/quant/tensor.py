"""One weight as its checkpoint stores it, and the numpy meaning of its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.quant.formats import WeightFormat


@dataclass(frozen=True)
class WeightTensor:
    """A weight in its stored format.

    ``shape`` is logical, outermost first, as PyTorch prints it: a linear weight is [outputs, inputs].
    ``data`` is uint8, shape ``[*shape[:-1], format.row_bytes(shape[-1])]``, C-contiguous, little
    endian; it may be a read-only memory map, and nobody may write to it.
    """

    format: WeightFormat
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        expected = (*self.shape[:-1], self.format.row_bytes(self.shape[-1]))
        if self.data.dtype != np.uint8 or self.data.shape != expected:
            raise CheckpointError(
                f"a {self.format.name} weight of shape {self.shape} needs bytes of shape {expected}, "
                f"not {self.data.dtype}{self.data.shape}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes that the stored weight takes."""
        return int(self.data.nbytes)


def dequantise(tensor: WeightTensor) -> npt.NDArray[np.float32]:
    """The weight as float32, shape ``tensor.shape``; the result is the caller's own.

    Plain formats convert exactly; the quantized ones follow GGML's definition through the `gguf`
    package, which works in slices of rows, so that temporaries stay small.
    """
    name, data = tensor.format.name, tensor.data
    if name == "f32":
        return data.view("<f4").astype(np.float32).reshape(tensor.shape)
    if name == "f16":
        return data.view("<f2").astype(np.float32).reshape(tensor.shape)
    if name == "bf16":
        widened = data.view("<u2").astype(np.uint32)
        widened <<= 16
        return widened.view(np.float32).reshape(tensor.shape)
    rows = gguf.dequantize(data, gguf.GGMLQuantizationType[name.upper()])
    return np.ascontiguousarray(rows, dtype=np.float32).reshape(tensor.shape)
