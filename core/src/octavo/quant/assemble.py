"""Weights of the integer formats from their parts: what checkpoint readers, and tests, make them with."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.quant.formats import FORMATS, INT4_GROUPS, WeightFormat
from octavo.quant.integers import SCALE_BYTES
from octavo.quant.tensor import WeightTensor


def int8_weight(codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> WeightTensor:
    """An ``int8`` weight from codes [outputs, inputs] and scales [outputs]. CheckpointError for broken rows."""
    form = FORMATS["int8"]
    data = np.empty((len(codes), form.row_bytes(codes.shape[1])), np.uint8)
    data[:, :SCALE_BYTES] = _bytes(scales)
    data[:, SCALE_BYTES:] = codes.view(np.uint8)
    return WeightTensor(form, (codes.shape[0], codes.shape[1]), data)


def int8_groups_format(groups: int) -> WeightFormat:
    """The format that holds 8-bit codes with ``groups`` scales per output: ``int8`` for one, else ``q8_0``."""
    return FORMATS["int8" if groups == 1 else "q8_0"]


def int8_groups_weight(codes: npt.NDArray[np.int8], scales: npt.NDArray[np.float32], name: str) -> WeightTensor:
    """A weight of the format that `int8_groups_format` says, from codes [outputs, inputs] and scales [outputs, groups].

    Each group must be a multiple of 32 inputs. Blocks of q8_0 have scales in float16: CheckpointError that names
    ``name`` where one of several scales per output is none exactly.
    """
    outputs, groups = scales.shape
    if groups == 1:
        return int8_weight(codes, scales[:, 0])
    with np.errstate(over="ignore"):
        halves = scales.astype("<f2")
    if (halves != scales).any():
        raise CheckpointError(
            f"{name} has scales that float16 cannot hold, which 8-bit weights with groups need; "
            "quantize with one scale per channel, or use the original weights or a GGUF file"
        )
    form = FORMATS["q8_0"]
    blocks = codes.shape[1] // form.block_elements
    data = np.empty((outputs, blocks, form.block_bytes), np.uint8)
    data[:, :, :2] = np.repeat(halves.view(np.uint8).reshape(outputs, groups, 2), blocks // groups, 1)
    data[:, :, 2:] = np.ascontiguousarray(codes).view(np.uint8).reshape(outputs, blocks, -1)
    return WeightTensor(form, (outputs, codes.shape[1]), data.reshape(outputs, -1))


def int4_format(group: int, *, zero_points: bool) -> WeightFormat:
    """The format that holds scales for every ``group`` weights: each repeated where the group is none of `INT4_GROUPS`.

    CheckpointError unless ``group`` is a multiple of 32.
    """
    for n in INT4_GROUPS:
        if group > 0 and group % n == 0:
            return FORMATS[f"{'uint4' if zero_points else 'int4'}_g{n}"]
    raise CheckpointError(f"groups of {group} weights are not supported; a multiple of {INT4_GROUPS[-1]} is")


def int4_weight(
    pairs: npt.NDArray[np.uint8], scales: npt.NDArray[np.float32], zeros: npt.NDArray[np.uint8] | None = None
) -> WeightTensor:
    """A 4-bit weight of the format that `int4_format` says.

    ``pairs`` are two codes to a byte, the low one first: [outputs, inputs / 2]. ``scales`` are [outputs, groups], like
    the zero points, 0 to 255; without them a code of 8 means zero. CheckpointError for groups that are not supported.
    """
    outputs, groups = scales.shape
    inputs = 2 * pairs.shape[1]
    if groups == 0 or inputs % groups:
        raise CheckpointError(f"rows of {inputs} weights cannot have {groups} groups of equal size")
    form = int4_format(inputs // groups, zero_points=zeros is not None)
    blocks = inputs // form.block_elements
    data = np.empty((outputs, blocks, form.block_bytes), np.uint8)
    data[:, :, :SCALE_BYTES] = np.repeat(_bytes(scales), blocks // groups, 1)
    if zeros is not None:
        data[:, :, SCALE_BYTES] = np.repeat(zeros, blocks // groups, 1)
    data[:, :, -form.block_elements // 2 :] = pairs.reshape(outputs, blocks, -1)
    return WeightTensor(form, (outputs, inputs), data.reshape(outputs, -1))


def _bytes(scales: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Each scale as its bytes, along a new last axis."""
    return np.ascontiguousarray(scales, "<f4").view(np.uint8).reshape(*scales.shape, SCALE_BYTES)
