"""What writers say of single modules, and what AutoRound says whichever layout it writes.

Options for single modules are ``dynamic`` of GPTQModel, ``extra_config`` and ``regex_config`` of AutoRound.

Which modules are quantized, and with which group size, is read off the tensors. An override of anything else that
says how codes become numbers must repeat what holds for the other modules. Source: GPTQModel's QuantizeConfig,
AutoRound's export_to_autoround and SerializedCompressorConfig.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.quantized.options import Options

OVERRIDES = ("dynamic", "extra_config", "regex_config")

AUTO_ROUND_KEYS = frozenset({
    "quant_method", "packing_format", "bits", "group_size", "sym", "data_type", "extra_config", "regex_config",
    # which modules are quantized is read off the file
    "block_name_to_quantize", "to_quant_block_names", "quant_block_list", "quant_lm_head", "supported_types",
    # of activations, which act_bits says are not quantized; of what `weights_only` refuses
    "act_bits", "act_data_type", "act_group_size", "act_sym", "act_dynamic", "static_attention_granularity",
    "static_kv_granularity",
    # how the codes were found
    "autoround_version", "provider", "model_free", "amp", "batch_size", "enable_minmax_tuning",
    "enable_norm_bias_tuning", "enable_quanted_input", "gradient_accumulate_steps", "iters", "lr", "low_gpu_mem_usage",
    "minmax_lr", "nsamples", "scale_dtype", "seqlen",
})  # fmt: skip
"""Options of AutoRound that are read, or that cannot change what weights mean."""

_UNQUANTIZED_BITS = 16  # and more: AutoRound lists modules that it left in floating point by their bits
_DECISIVE = {"bits": None, "pack_dtype": "int32", "format": None, "checkpoint_format": None, "method": None,
             "quant_method": None, "data_type": "int", "act_bits": 16, "rotation": None, "adapter": None,
             "activation": None, "super_bits": None}  # fmt: skip
"""Options that change what codes mean or what is computed, and what holds where the config does not say."""


def weights_only(found: Options) -> None:
    """CheckpointError for options by which more than weights is quantized, or weights in two stages or rotated."""
    bits = found.get("act_bits", _UNQUANTIZED_BITS)
    if not isinstance(bits, int) or bits < _UNQUANTIZED_BITS:
        raise found.refusal("act_bits", "only weights may be quantized (16)")
    found.one_of("data_type", ("int",), "int")
    found.unset("rotation_configs", "rotation_config", "spinquant_config", "static_kv_dtype", "static_attention_dtype",
                "super_bits", "super_group_size")  # fmt: skip


def check_overrides(found: Options, name: str) -> bool:
    """Whether the overrides in option ``name`` leave every module symmetric.

    CheckpointError, by the name of the module's pattern, for an override that is not supported.
    """
    symmetric = True
    overrides = found.get(name)
    if not overrides:
        return symmetric
    if not isinstance(overrides, Mapping):
        raise found.refusal(name, "it must be an object")
    for pattern, values in overrides.items():
        if str(pattern).startswith("-:") or not values:  # modules that are not quantized
            continue
        fields = Options(f"{found.where} {name} {pattern}", values)
        bits = fields.get("bits")
        if isinstance(bits, int) and bits >= _UNQUANTIZED_BITS:
            continue
        for key, default in _DECISIVE.items():
            general = found.get(key, default)
            if fields.get(key, general) != general:
                raise fields.refusal(key, f"modules with other {key} than the rest ({general!r}) are not supported")
        symmetric &= fields.get("sym", True) is not False
    return symmetric
