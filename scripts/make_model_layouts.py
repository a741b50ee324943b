"""Quantizers that write the tensors of AutoAWQ, GPTQ and compressed-tensors: round to nearest, groups of 128."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from make_model_shapes import Tensor

GROUP = 128

Part = tuple[str, str, tuple[int, ...]]  # name, dtype, shape


@dataclass(frozen=True)
class Layout:
    """How a folder stores its linear weights: quantization_config, each weight's tensors and their arrays, in order.

    Empty for plain weights.
    """

    config: dict[str, Any] | None = None
    parts: Callable[[Tensor], list[Part]] | None = None
    encode: Callable[[np.ndarray], Sequence[np.ndarray]] | None = None


def symmetric(weight: np.ndarray, group: int, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes -top … top, int32 [outputs, inputs], and scales, float32 [outputs, groups] that a float16 holds."""
    grouped = weight.reshape(len(weight), -1, group)
    scales = _half(np.abs(grouped).max(2) / top)
    codes = np.clip(np.rint(grouped / scales[..., None]), -top, top)
    return codes.astype(np.int32).reshape(weight.shape), scales


def with_zero_points(weight: np.ndarray, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes 0 … 15, scales, and zero points 0 … 15, each as in `symmetric`."""
    grouped = weight.reshape(len(weight), -1, group)
    low, high = np.minimum(grouped.min(2), 0), np.maximum(grouped.max(2), 0)
    scales = _half((high - low) / 15)
    zeros = np.clip(np.rint(-low / scales), 0, 15)
    codes = np.clip(np.rint(grouped / scales[..., None]) + zeros[..., None], 0, 15)
    return codes.astype(np.int32).reshape(weight.shape), scales, zeros.astype(np.int32)


def words(codes: np.ndarray, order: Sequence[int] = range(8)) -> np.ndarray:
    """Eight 4-bit codes along the last axis as one int32: code ``order[i]`` in the i-th lowest bits."""
    grouped = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.uint32)
    packed = np.zeros(grouped.shape[:-1], np.uint32)
    for place, code in enumerate(order):
        packed |= grouped[..., code] << np.uint32(4 * place)
    return packed


def _half(scales: np.ndarray) -> np.ndarray:
    """Scales as float16 and bfloat16 both hold them: eight bits of mantissa."""
    bits = np.maximum(scales, 1e-4).astype(np.float32).view(np.uint32)
    rounded: np.ndarray = (bits + 0x8000) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def _bf16(scales: np.ndarray) -> np.ndarray:
    return (scales.view(np.uint32) >> 16).astype("<u2")


def _stem(tensor: Tensor) -> tuple[str, int, int]:
    return tensor.name.removesuffix("weight"), tensor.shape[0], tensor.shape[1]


def _awq_parts(tensor: Tensor) -> list[Part]:
    stem, n, k = _stem(tensor)
    groups = k // GROUP
    return [
        (f"{stem}qweight", "i32", (k, n // 8)),
        (f"{stem}qzeros", "i32", (groups, n // 8)),
        (f"{stem}scales", "f16", (groups, n)),
    ]


def _awq(weight: np.ndarray) -> list[np.ndarray]:
    codes, scales, zeros = with_zero_points(weight, GROUP)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return [words(codes.T, order), words(zeros.T, order), scales.T.astype("<f2")]


def _gptq_parts(tensor: Tensor) -> list[Part]:
    stem, n, k = _stem(tensor)
    groups = k // GROUP
    return [
        (f"{stem}qweight", "i32", (k // 8, n)),
        (f"{stem}qzeros", "i32", (groups, n // 8)),
        (f"{stem}scales", "f16", (groups, n)),
        (f"{stem}g_idx", "i32", (k,)),
    ]


def _gptq(weight: np.ndarray) -> list[np.ndarray]:
    codes, scales = symmetric(weight, GROUP, 7)
    zeros = np.full(scales.T.shape, 7)  # of 8, stored less one
    index = np.arange(weight.shape[1], dtype="<i4") // GROUP
    return [words(codes + 8).T, words(zeros), scales.T.astype("<f2"), index]


def _packed_parts(tensor: Tensor) -> list[Part]:
    stem, n, k = _stem(tensor)
    return [
        (f"{stem}weight_packed", "i32", (n, k // 8)),
        (f"{stem}weight_scale", "bf16", (n, k // GROUP)),
        (f"{stem}weight_shape", "i64", (2,)),
    ]


def _packed(weight: np.ndarray) -> list[np.ndarray]:
    codes, scales = symmetric(weight, GROUP, 7)
    return [words(codes + 8), _bf16(scales), np.array(weight.shape, "<i8")]


def _int8_parts(tensor: Tensor) -> list[Part]:
    stem, n, k = _stem(tensor)
    return [(f"{stem}weight", "i8", (n, k)), (f"{stem}weight_scale", "bf16", (n, 1))]


def _int8(weight: np.ndarray) -> list[np.ndarray]:
    codes, scales = symmetric(weight, weight.shape[1], 127)
    return [codes.astype(np.int8), _bf16(scales)]


def _compressed(form: str, bits: int, activations: dict[str, Any] | None) -> dict[str, Any]:
    """The quantization_config of compressed-tensors."""
    weights = {
        "num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, "actorder": None, "block_structure": None,
        "strategy": "group" if bits == 4 else "channel", "group_size": GROUP if bits == 4 else None,
        "observer": "minmax", "observer_kwargs": {},
    }  # fmt: skip
    group = {
        "targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None,
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None,
    }  # fmt: skip


_PER_TOKEN = {
    "num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token", "group_size": None,
    "actorder": None, "block_structure": None, "observer": None, "observer_kwargs": {},
}  # fmt: skip

_AWQ_CONFIG = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
_GPTQ_CONFIG = {
    "quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True, "desc_act": False, "checkpoint_format": "gptq",
}  # fmt: skip

LAYOUTS = {
    "bf16": Layout(),
    "int4-awq": Layout(_AWQ_CONFIG, _awq_parts, _awq),
    "int4-gptq": Layout(_GPTQ_CONFIG, _gptq_parts, _gptq),
    "int4-packed": Layout(_compressed("pack-quantized", 4, None), _packed_parts, _packed),
    "int8": Layout(_compressed("int-quantized", 8, _PER_TOKEN), _int8_parts, _int8),
}
