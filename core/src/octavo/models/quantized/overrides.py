"""Options for single modules: ``dynamic`` of GPTQModel and ``extra_config`` of AutoRound.

Which modules are quantized, and with which group size, is read off the tensors. An override of anything else that
says how codes become numbers must repeat what holds for the other modules. Source: GPTQModel's QuantizeConfig,
AutoRound's export_to_autoround.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.models.quantized.options import Options

_UNQUANTIZED_BITS = 16  # and more: AutoRound lists modules that it left in floating point by their bits
_DECISIVE = {"bits": None, "pack_dtype": "int32", "format": None, "checkpoint_format": None, "method": None,
             "quant_method": None, "data_type": "int", "act_bits": 16, "rotation": None, "adapter": None,
             "activation": None, "super_bits": None}  # fmt: skip
"""Options that change what codes mean or what is computed, and what holds where the config does not say."""


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
