"""Faults in what stored weights mean."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from octavo.quant import WeightTensor
from octavo_conformance.judge import quant
from octavo_conformance.mutants import mutant
from octavo_conformance.mutants.wrapped import Wrapped

NIBBLES = tuple(name for name in quant.FORMATS if "4" in name)
GROUPED = tuple(name for name, form in quant.FORMATS.items() if form.group)
OFFSET = tuple(name for name, form in quant.FORMATS.items() if form.offset)

# Where, in a block, scales (first byte, bytes each, how many) and offsets lie; blocks of one scale hold it at byte 0.
_SCALES = {"q4_k": (4, 12), "q5_k": (4, 12), "q6_k": (192, 16)}
_OFFSETS = {"q4_1": (2, 2), "q5_1": (2, 2), "q4_k": (2, 2), "q5_k": (2, 2)}


class _Stored(Wrapped):
    """Changes the bytes of quantized weights, block by block."""

    def weights(self, weights: Mapping[str, WeightTensor]) -> Mapping[str, WeightTensor]:
        return {name: self._changed(tensor) for name, tensor in weights.items()}

    def _changed(self, tensor: WeightTensor) -> WeightTensor:
        form = tensor.format
        if not form.quantized:
            return tensor
        data = tensor.data.copy()
        blocks = data[:, form.head_bytes :].reshape(len(data), -1, form.block_bytes)
        self.change(form.name, blocks, data[:, : form.head_bytes])
        return WeightTensor(form, tensor.shape, data)

    def change(self, format: str, blocks: np.ndarray, head: np.ndarray) -> None:
        """Change ``blocks`` [rows, blocks, bytes], or the ``head`` [rows, bytes] of each row, in place."""


@mutant("M23.nibbles", "the two codes of a byte are exchanged",
        killed_by=tuple(f"qnt.{name}.pack_layout" for name in NIBBLES))  # fmt: skip
class SwappedNibbles(_Stored):
    """High for low."""

    def change(self, format: str, blocks: np.ndarray, head: np.ndarray) -> None:
        if format in NIBBLES:
            codes = {"q4_k": 128}.get(format, quant.FORMATS[format].group // 2)
            part = blocks[..., -codes:]
            part[:] = (part >> 4) | (part << 4)


@mutant("M23.scales", "each group has the scale of the one before it",
        killed_by=tuple(f"qnt.{name}.scale_axis" for name in GROUPED))  # fmt: skip
class ShiftedScales(_Stored):
    """Scales moved on by one group; in blocks of many scales, by one block's."""

    def change(self, format: str, blocks: np.ndarray, head: np.ndarray) -> None:
        if format not in GROUPED:
            return
        start, size = _SCALES.get(format, (0, 2 if format.startswith("q") else 4))
        part = blocks[..., start : start + size]
        part[:] = np.roll(part, 1, axis=1 if format not in _SCALES else 2)


@mutant("M23.zeros", "minimums and zero points have the wrong sign",
        killed_by=tuple(f"qnt.{name}.zero_point" for name in OFFSET))  # fmt: skip
class NegatedOffsets(_Stored):
    """The sign bit of minimums turned; zero points counted from the other end."""

    def change(self, format: str, blocks: np.ndarray, head: np.ndarray) -> None:
        if format in _OFFSETS:
            start, _ = _OFFSETS[format]
            blocks[..., start + 1] ^= 0x80
        elif format in OFFSET:
            blocks[..., 4] = 15 - blocks[..., 4]


@mutant(
    "M24",
    "scales are a half too large",
    killed_by=tuple(f"qnt.{name}.{what}" for name in quant.FORMATS for what in ("dequant_exact", "gemm_budget")),
)
class LargeScales(_Stored):
    """Scales times 1.5, which a tolerance made for quantization would let pass."""

    def change(self, format: str, blocks: np.ndarray, head: np.ndarray) -> None:
        if format == "int8":
            head[:] = (head.copy().view("<f4") * np.float32(1.5)).view(np.uint8)
        elif format.startswith("q"):
            start = 208 if format == "q6_k" else 0
            part = blocks[..., start : start + 2]
            part[:] = (np.ascontiguousarray(part).view("<f2") * np.float16(1.5)).view(np.uint8)
        else:
            part = blocks[..., :4]
            part[:] = (np.ascontiguousarray(part).view("<f4") * np.float32(1.5)).view(np.uint8)
