"""AWQ folders (AutoAWQ, GPTQModel, AutoRound) in the "gemm" layout: 4 bits, a scale and a zero point for each group.

``qweight`` [inputs, outputs / 8] packs eight outputs into an int32, ``qzeros`` [groups, outputs / 8] likewise;
``scales`` are [groups, outputs]. GPTQModel's symmetric weights (``zero_point`` false) have zero points of 8 in the
file. Source: AutoAWQ's WQLinear_GEMM and its packing utilities, GPTQModel's AwqTorchLinear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.models.quantized.options import CURE, Options
from octavo.models.quantized.overrides import AUTO_ROUND_KEYS, OVERRIDES, check_overrides, weights_only
from octavo.models.quantized.parts import Parts, QuantizedWeight, group_size, need
from octavo.quant import WeightTensor, int4_format, int4_weight

_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The output, of eight, that the i-th lowest nibble of an int32 belongs to."""

_CENTRE = 8  # the zero point of symmetric weights

_KNOWN = frozenset({
    "quant_method", "bits", "w_bit", "group_size", "q_group_size", "zero_point", "version", "format",
    "checkpoint_format", "method", "dynamic",
    # which modules are quantized is read off the file
    "modules_to_not_convert", "modules_to_convert",
    # about the kernels of other engines, or how the codes were found
    "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "export_compatible", "desc_act",
    "sym", "lm_head", "meta", "pack_dtype",
    *AUTO_ROUND_KEYS,
})  # fmt: skip


def parse(options: Mapping[str, Any]) -> Awq:
    """The method that ``quantization_config`` describes; CheckpointError if it is not this one."""
    found = Options("awq", options)
    for layout in ("version", "format", "checkpoint_format"):
        found.one_of(layout, ("gemm", "GEMM"), "gemm")
    found.unset("rotation", "adapter", "activation")
    return awq(found)


def awq(found: Options) -> Awq:
    """The method with the options that every writer of the layout has."""
    found.one_of("bits" if "bits" in found else "w_bit", (4,))
    zero_points = found.one_of("zero_point", (True, False), True)
    found.one_of("pack_dtype", ("int32",), "int32")
    weights_only(found)
    uniform = [check_overrides(found, name) for name in OVERRIDES]
    found.warn_of_others(_KNOWN)
    return Awq(symmetric=not zero_points and all(uniform))


@dataclass(frozen=True)
class Awq:
    """Meets `octavo.models.quantized.Method`. Group sizes are read off the tensors.

    ``symmetric`` is whether every zero point is half of the codes' range.
    """

    symmetric: bool = False
    marker = "qweight"
    parts = frozenset({"qweight", "qzeros", "scales"})

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """See `Method.weight`."""
        qweight, qzeros, scales = (need(module, parts, name) for name in ("qweight", "qzeros", "scales"))
        qweight.require("I32")
        inputs, outputs = qweight.shape[0], qweight.shape[1] * 8
        group = group_size(module, inputs, scales, axis=0)
        groups = inputs // group
        scales.require(scales.dtype, (groups, outputs))
        qzeros.require("I32", (groups, outputs // 8))

        def read() -> WeightTensor:
            words = qweight.array().view("<u4")
            pairs = np.empty((outputs // 8, 8, inputs // 2), np.uint8)
            for i, output in enumerate(_ORDER):
                low, high = (words[half::2] >> 4 * i & 15 for half in (0, 1))
                pairs[:, output] = (low | high << 4).T
            zeros = _outputs_first(qzeros.array())
            if self.symmetric and (zeros != _CENTRE).any():
                raise CheckpointError(
                    f"{module} has zero points other than {_CENTRE}, which symmetric weights have (zero_point false); "
                    f"set zero_point to true in config.json if they are right, or {CURE}"
                )
            by_output = np.ascontiguousarray(scales.floats().T)
            return int4_weight(pairs.reshape(outputs, -1), by_output, None if self.symmetric else zeros)

        return QuantizedWeight(int4_format(group, zero_points=not self.symmetric), (outputs, inputs), read)


def _outputs_first(qzeros: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Packed zero points [groups, outputs / 8] as [outputs, groups]."""
    words = qzeros.view("<u4")
    zeros = np.empty((words.shape[1], 8, words.shape[0]), np.uint8)
    for i, output in enumerate(_ORDER):
        zeros[:, output] = (words >> 4 * i & 15).T
    return zeros.reshape(-1, len(qzeros))
