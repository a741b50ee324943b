"""GPTQ folders (AutoGPTQ, GPTQModel): 4 bits, a scale and a zero point for each group of inputs.

``qweight`` [inputs / 8, outputs] packs eight inputs into an int32, the first into its lowest bits; ``qzeros``
[groups, outputs / 8] eight outputs; ``scales`` are [groups, outputs]; ``g_idx`` [inputs] is each input's group. The
first version of the layout stores zero points less one. Source: AutoGPTQ's QuantLinear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.errors import CheckpointError
from octavo.models.quantized.options import CURE, Options
from octavo.models.quantized.parts import Parts, QuantizedWeight, group_size, need, nibbles, ordered
from octavo.quant import WeightTensor, int4_format, int4_weight

_CENTRE = 8  # the zero point of symmetric weights

_KNOWN = frozenset({
    "quant_method", "bits", "group_size", "sym", "desc_act", "checkpoint_format", "format", "is_marlin_format",
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
    found.one_of("bits", (4,))
    layout = "checkpoint_format" if "checkpoint_format" in options else "format"
    version = found.one_of(layout, ("gptq", "gptq_v2"), "gptq")
    found.one_of("pack_dtype", ("int32",), "int32")
    found.unset("is_marlin_format", "dynamic", "rotation", "adapter")
    found.no_others(_KNOWN)
    return Gptq(
        stored_zero=_CENTRE - 1 if version == "gptq" else _CENTRE,
        symmetric=bool(found.get("sym", True)),
        reordered=bool(found.get("desc_act", False)),
    )


@dataclass(frozen=True)
class Gptq:
    """Meets `octavo.models.quantized.Method`. Group sizes are read off the tensors.

    ``stored_zero`` is what is stored for a zero point of 8, ``symmetric`` whether every zero point is that,
    ``reordered`` whether ``desc_act`` says that groups may be out of order.
    """

    stored_zero: int
    symmetric: bool
    reordered: bool
    marker = "qweight"
    parts = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """See `Method.weight`."""
        qweight, qzeros, scales = (need(module, parts, name) for name in ("qweight", "qzeros", "scales"))
        qweight.require("I32")
        inputs, outputs = qweight.shape[0] * 8, qweight.shape[1]
        group = group_size(module, inputs, scales, axis=0)
        groups = inputs // group
        scales.require(scales.dtype, (groups, outputs))
        qzeros.require("I32", (groups, outputs // 8))
        if self.reordered or "g_idx" in parts:
            self._require_order(module, parts, inputs, groups)

        def read() -> WeightTensor:
            pairs = np.ascontiguousarray(qweight.array().T).view(np.uint8)
            stored = nibbles(qzeros.array()).reshape(groups, outputs)
            zeros = None
            if not self.symmetric:
                zeros = np.ascontiguousarray(stored.T) + np.uint8(_CENTRE - self.stored_zero)
            elif (stored != self.stored_zero).any():
                raise CheckpointError(
                    f"{module} has zero points other than {self.stored_zero}, though quantization_config has sym true; "
                    "set sym to false in config.json"
                )
            return int4_weight(pairs, np.ascontiguousarray(scales.floats().T), zeros)

        form = int4_format(group, zero_points=not self.symmetric)
        return QuantizedWeight(form, (outputs, inputs), read)

    def _require_order(self, module: str, parts: Parts, inputs: int, groups: int) -> None:
        """Refuse groups that are not runs of neighbouring inputs: no kernel could read their scales in order."""
        if not ordered(need(module, parts, "g_idx"), inputs, groups):
            raise CheckpointError(
                f"{module} has its groups out of order (g_idx): quantization_config has desc_act "
                f"{str(self.reordered).lower()}, and only weights quantized with desc_act false, or with static_groups "
                f"true, are supported; quantize again so, or {CURE}"
            )
