"""Folders of compressed-tensors (llm-compressor): 8 bits per channel, or 8 or 4 bits per group or channel.

int-quantized: ``weight`` [outputs, inputs] is int8, ``weight_scale`` [outputs, 1].
pack-quantized: ``weight_packed`` [outputs, inputs / 8 or / 4] has the codes of neighbouring inputs in an int32, the
first in its lowest bits, each plus half of its range; ``weight_scale`` is [outputs, groups], ``weight_shape`` the
logical shape. ``weight_zero_point``, where there is one, has eight outputs in an int32, [outputs / 8, groups], with the
same offset; older files have it as int8 [outputs, groups] without one. Source: the library's compressors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.models.quantized.options import CURE, Options
from octavo.models.quantized.parts import Parts, QuantizedWeight, Stored, group_size, need, nibbles, ordered
from octavo.quant import (
    FORMATS,
    WeightTensor,
    int4_format,
    int4_weight,
    int8_groups_format,
    int8_groups_weight,
    int8_weight,
)  # fmt: skip

_CENTRE = {4: 8, 8: 128}  # what is added to a signed code of so many bits

_KNOWN = frozenset({
    "quant_method", "format", "config_groups", "sparsity_config", "quantization_status",
    # which modules are quantized is read off the file
    "ignore",
    # about other engines, or how the codes were found
    "global_compression_ratio", "version", "run_compressed",
})  # fmt: skip

_KNOWN_OF_GROUP = frozenset({"targets", "weights", "input_activations", "output_activations", "format"})
_KNOWN_OF_ARGUMENTS = frozenset({
    "num_bits", "type", "symmetric", "strategy", "dynamic",
    # read off the tensors, where they are of weights
    "group_size", "block_structure", "actorder", "scale_dtype", "zp_dtype",
    # how the codes were found
    "observer", "observer_kwargs",
})  # fmt: skip


def parse(options: Mapping[str, Any]) -> PackQuantized | IntQuantized:
    """The method that ``quantization_config`` describes; CheckpointError if it is neither of these."""
    found = Options("compressed-tensors", options)
    form = found.one_of("format", ("pack-quantized", "int-quantized"))
    found.one_of("quantization_status", ("compressed",), "compressed")
    found.unset("kv_cache_scheme", "transform_config", "moe_sparsity_config")
    sparsity = found.get("sparsity_config")
    if sparsity:
        Options("compressed-tensors sparsity_config", sparsity).one_of("format", ("dense",), "dense")
    found.warn_of_others(_KNOWN)
    groups = Options("compressed-tensors config_groups", found.get("config_groups", {}))
    names = list(options.get("config_groups") or ())
    if not names:
        raise found.refusal("config_groups", "it must say how weights are quantized")
    for name in names:
        _check_group(form, Options(f"compressed-tensors {name}", groups.get(name)))
    return PackQuantized() if form == "pack-quantized" else IntQuantized()


def _check_group(form: str, group: Options) -> None:
    """CheckpointError for a group of modules whose weights are stored in another way than ``form`` is read here."""
    group.warn_of_others(_KNOWN_OF_GROUP)
    group.one_of("format", (form,), form)
    group.unset("output_activations")
    weights = Options(f"{group.where} weights", group.get("weights", {}))
    weights.warn_of_others(_KNOWN_OF_ARGUMENTS)
    weights.one_of("type", ("int",), "int")
    weights.one_of("dynamic", (False,), False)
    bits = weights.one_of("num_bits", (4, 8) if form == "pack-quantized" else (8,))
    weights.one_of("strategy", ("group", "channel") if form == "pack-quantized" else ("channel",))
    weights.one_of("symmetric", (True,) if bits == 8 else (True, False), True)
    activations = group.get("input_activations")
    if activations:  # what the platform makes of activations is its choice, where they need no stored scales
        fields = Options(f"{group.where} input_activations", activations)
        fields.warn_of_others(_KNOWN_OF_ARGUMENTS)
        fields.one_of("type", ("int",), "int")
        fields.one_of("num_bits", (8,))
        fields.one_of("dynamic", (True,), False)


@dataclass(frozen=True)
class IntQuantized:
    """Meets `octavo.models.quantized.Method`: int8, a scale per output."""

    marker = "weight_scale"
    parts = frozenset({"weight", "weight_scale", "weight_zero_point"})

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """See `Method.weight`."""
        weight, scale = (need(module, parts, name) for name in ("weight", "weight_scale"))
        weight.require("I8")
        outputs, inputs = weight.shape
        zero = parts.get("weight_zero_point")
        _require_channels(module, scale, zero, outputs, inputs)

        def read() -> WeightTensor:
            _require_zeros(module, zero)
            return int8_weight(weight.array(), scale.floats().reshape(-1))

        return QuantizedWeight(FORMATS["int8"], (outputs, inputs), read)


@dataclass(frozen=True)
class PackQuantized:
    """Meets `octavo.models.quantized.Method`. Bits and group sizes are read off the tensors."""

    marker = "weight_packed"
    parts = frozenset({"weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"})

    def weight(self, module: str, parts: Parts) -> QuantizedWeight:
        """See `Method.weight`."""
        packed, scale, shape = (need(module, parts, n) for n in ("weight_packed", "weight_scale", "weight_shape"))
        packed.require("I32")
        shape.require("I64", (2,))
        outputs, inputs = map(int, shape.array())
        zero = parts.get("weight_zero_point")
        if packed.shape == (outputs, inputs // 4) and inputs % 32 == 0:
            return _packed8(module, parts, outputs, inputs)
        packed.require("I32", (outputs, inputs // 8))
        group = group_size(module, inputs, scale, axis=1)
        groups = inputs // group
        scale.require(scale.dtype, (outputs, groups))
        _require_order(module, parts, inputs, groups)

        def read() -> WeightTensor:
            zeros = None if zero is None else _zero_points(zero, outputs, groups)
            return int4_weight(packed.array().view(np.uint8), scale.floats(), zeros)

        return QuantizedWeight(int4_format(group, zero_points=zero is not None), (outputs, inputs), read)


def _packed8(module: str, parts: Parts, outputs: int, inputs: int) -> QuantizedWeight:
    """Codes of 8 bits, packed: each byte is a code plus 128; a scale per output or per group."""
    packed, scale, zero = parts["weight_packed"], parts["weight_scale"], parts.get("weight_zero_point")
    if scale.shape == (outputs,):
        groups = 1
    else:
        groups = inputs // group_size(module, inputs, scale, axis=1)
        scale.require(scale.dtype, (outputs, groups))
    if zero is not None and zero.dtype != "I8":
        raise CheckpointError(f"{zero.name} has dtype {zero.dtype}: 8-bit weights with zero points are not supported")
    _require_order(module, parts, inputs, groups)

    def read() -> WeightTensor:
        _require_zeros(module, zero)
        codes = packed.array().view(np.uint8) ^ np.uint8(_CENTRE[8])
        return int8_groups_weight(codes.view(np.int8), scale.floats().reshape(outputs, groups), scale.name)

    return QuantizedWeight(int8_groups_format(groups), (outputs, inputs), read)


def _require_order(module: str, parts: Parts, inputs: int, groups: int) -> None:
    """CheckpointError for groups that are not runs of neighbouring inputs."""
    if "weight_g_idx" in parts and not ordered(parts["weight_g_idx"], inputs, groups):
        raise CheckpointError(
            f"{module} has its groups out of order (weight_g_idx), as actorder group makes them: only weights "
            f"quantized with actorder weight, or none, are supported; quantize again so, or {CURE}"
        )


def _zero_points(zero: Stored, outputs: int, groups: int) -> npt.NDArray[np.uint8]:
    """Zero points [outputs, groups] of codes from 0 to 15."""
    if zero.dtype == "I8":
        zero.require("I8", (outputs, groups))
        return (zero.array() + np.int8(_CENTRE[4])).view(np.uint8)
    zero.require("I32", (-(-outputs // 8), groups))
    by_eight = nibbles(zero.array())
    return np.ascontiguousarray(by_eight.swapaxes(1, 2)).reshape(-1, groups)[:outputs]


def _require_channels(module: str, scale: Stored, zero: Stored | None, outputs: int, inputs: int) -> None:
    """CheckpointError unless there is one scale per output."""
    if scale.shape not in ((outputs, 1), (outputs,)):
        raise CheckpointError(
            f"{scale.name} has shape {list(scale.shape)}; 8-bit weights need one scale for each of {outputs} outputs"
        )
    if inputs % 32:
        raise CheckpointError(f"{module} has {inputs} inputs; quantized weights must have a multiple of 32")
    if zero is not None and zero.dtype != "I8":
        raise CheckpointError(f"{zero.name} has dtype {zero.dtype}: 8-bit weights with zero points are not supported")


def _require_zeros(module: str, zero: Stored | None) -> None:
    """CheckpointError for zero points other than zero, which symmetric weights do not have."""
    if zero is not None and zero.array().any():
        raise CheckpointError(f"{module} has zero points: 8-bit weights with zero points are not supported; {CURE}")
