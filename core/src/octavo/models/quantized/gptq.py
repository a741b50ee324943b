"""GPTQ folders (AutoGPTQ, GPTQModel, AutoRound): 4 or 8 bits, a scale and a zero point for each group of inputs.

With n = 32 / bits, ``qweight`` [inputs / n, outputs] packs n inputs into an int32, the first into its lowest bits;
``qzeros`` [groups, outputs / n] n outputs; ``scales`` are [groups, outputs]; ``g_idx`` [inputs] is each input's group.
The first version of the layout ("gptq") stores zero points less one, subtracted from whole words: a zero point of 0
borrows from its neighbour. "gptq_v2" stores them as they are. 8 bits must be symmetric. Source: AutoGPTQ's QuantLinear,
GPTQModel's conversion between the two versions, AutoRound's qlinear_torch and qlinear_torch_zp.
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
from octavo.models.quantized.parts import Parts, QuantizedWeight, Stored, group_size, need, nibbles, ordered
from octavo.quant import WeightTensor, int4_format, int4_weight, int8_groups_format, int8_groups_weight

_ONES = {4: 0x11111111, 8: 0x01010101}
"""What the first version of the layout takes from each word of zero points."""

_KNOWN = frozenset({
    "quant_method", "method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "dynamic",
    *AUTO_ROUND_KEYS,
    # which modules are quantized is read off the file
    "lm_head", "modules_in_block_to_quantize", "block_name_to_quantize", "module_name_preceding_first_block",
    "modules_to_not_convert",
    # about the kernels of other engines, or how the codes were found
    "damp_percent", "damp_auto_increment", "true_sequential", "static_groups", "act_group_aware", "hyb_act", "mse",
    "dataset", "tokenizer", "batch_size", "pad_token_id", "cache_block_outputs", "model_seqlen", "model_name_or_path",
    "model_file_base_name", "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config", "max_input_length",
    "backend", "meta", "pack_dtype", "pack_impl", "device", "offload_to_disk", "offload_to_disk_path",
})  # fmt: skip


def parse(options: Mapping[str, Any]) -> Gptq:
    """The method that ``quantization_config`` describes; CheckpointError if it is not this one."""
    found = Options("gptq", options)
    layout = "checkpoint_format" if "checkpoint_format" in found else "format"
    version = found.one_of(layout, ("gptq", "gptq_v2"), "gptq")
    found.unset("is_marlin_format", "rotation", "adapter", "activation")
    return gptq(found, version, reordered=bool(found.get("desc_act", False)))


def gptq(found: Options, version: str, *, reordered: bool) -> Gptq:
    """The method of ``version`` of the layout with the options that every writer of it has."""
    bits = found.one_of("bits", (4, 8))
    found.one_of("pack_dtype", ("int32",), "int32")
    for name in ("checkpoint_format", "format"):
        if found.get(name, version) != version:
            raise found.refusal(name, f"other options say that the layout is {version!r}; they must agree")
    weights_only(found)
    uniform = [check_overrides(found, name) for name in OVERRIDES]
    found.warn_of_others(_KNOWN)
    return Gptq(
        bits=bits,
        version=version,
        symmetric=bits == 8 or (bool(found.get("sym", True)) and all(uniform)),
        reordered=reordered,
    )


@dataclass(frozen=True)
class Gptq:
    """Meets `octavo.models.quantized.Method`. Group sizes are read off the tensors.

    ``version`` is that of the layout, ``symmetric`` whether every zero point is half of the codes' range,
    ``reordered`` whether ``desc_act`` says that groups may be out of order.
    """

    bits: int
    version: str
    symmetric: bool
    reordered: bool
    marker = "qweight"
    parts = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """See `Method.weight`."""
        qweight, qzeros, scales = (need(module, parts, name) for name in ("qweight", "qzeros", "scales"))
        qweight.require("I32")
        per_word = 32 // self.bits
        inputs, outputs = qweight.shape[0] * per_word, qweight.shape[1]
        group = group_size(module, inputs, scales, axis=0)
        groups = inputs // group
        scales.require(scales.dtype, (groups, outputs))
        qzeros.require("I32", (groups, outputs // per_word))
        if self.reordered or "g_idx" in parts:
            self._require_order(module, parts, inputs, groups)

        def read() -> WeightTensor:
            codes = np.ascontiguousarray(qweight.array().T).view(np.uint8)
            by_output = np.ascontiguousarray(scales.floats().T)
            zeros = self._zeros(qzeros).reshape(groups, outputs)
            if self.symmetric:
                self._require_symmetric(module, zeros)
            if self.bits == 8:
                return int8_groups_weight((codes ^ np.uint8(128)).view(np.int8), by_output, scales.name)
            return int4_weight(codes, by_output, None if self.symmetric else np.ascontiguousarray(zeros.T))

        form = int8_groups_format(groups) if self.bits == 8 else int4_format(group, zero_points=not self.symmetric)
        return QuantizedWeight(form, (outputs, inputs), read)

    def _zeros(self, qzeros: Stored) -> npt.NDArray[np.uint8]:
        """Zero points, in the order of their outputs."""
        words = qzeros.array().view("<u4")
        if self.version == "gptq":
            words = words + np.uint32(_ONES[self.bits])
        return nibbles(words) if self.bits == 4 else np.ascontiguousarray(words, "<u4").view(np.uint8)

    def _require_symmetric(self, module: str, zeros: npt.NDArray[np.uint8]) -> None:
        """CheckpointError unless each zero point is the middle of the range, with the option that is wrong."""
        centre = 1 << self.bits - 1
        if (zeros == centre).all():
            return
        other = "gptq_v2" if self.version == "gptq" else "gptq"
        read_as_other = centre + (1 if other == "gptq_v2" else -1)
        if (zeros == read_as_other).all():
            cure = (
                "they are those of the other version: set checkpoint_format, and format if it is there, to "
                f"{other} in config.json"
            )
        elif self.bits == 8:
            cure = f"8-bit weights with zero points are not supported; {CURE}"
        else:
            cure = "set sym to false in config.json"
        raise CheckpointError(
            f"{module} has zero points other than {centre}, which symmetric weights have (sym true, checkpoint_format "
            f"{self.version}); {cure}"
        )

    def _require_order(self, module: str, parts: Parts, inputs: int, groups: int) -> None:
        """Refuse groups that are not runs of neighbouring inputs: no kernel could read their scales in order."""
        if not ordered(need(module, parts, "g_idx"), inputs, groups):
            raise CheckpointError(
                f"{module} has its groups out of order (g_idx): quantization_config has desc_act "
                f"{str(self.reordered).lower()}, and only weights quantized with desc_act false, or with static_groups "
                f"true, are supported; quantize again so, or {CURE}"
            )
