"""One weight as its checkpoint stores it, and the numpy meaning of its bytes."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.quant.formats import WeightFormat
from octavo.quant.integers import decode_int4, decode_int8

_SLICE_ELEMENTS = 1 << 20  # the gguf package holds its output twice: 8 MB for a slice of this many weights


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

    Plain formats convert exactly; the ``int`` and ``uint`` ones are rounded once; GGML's follow its definition through
    the `gguf` package. Rows are taken a slice at a time, so that temporaries stay small beside the result.
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
    values = np.empty(tensor.shape, np.float32)
    rows, stored = values.reshape(-1, tensor.shape[-1]), data.reshape(-1, data.shape[-1])
    step = max(1, _SLICE_ELEMENTS // tensor.shape[-1])
    for start in range(0, len(rows), step):
        rows[start : start + step] = _decode(tensor.format, stored[start : start + step])
    return values


def _decode(form: WeightFormat, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Rows of a quantized format as float32."""
    if form.name == "int8":
        return decode_int8(rows)
    if "int4" in form.name:
        return decode_int4(form, rows)
    values: npt.NDArray[np.float32] = gguf.dequantize(rows, gguf.GGMLQuantizationType[form.name.upper()])
    return values
