"""Quantized folders, each exactly as its project writes it, from a tiny model; and what every weight in them means.

The layouts are restated here one code at a time (AutoAWQ's WQLinear_GEMM, AutoGPTQ's QuantLinear, the compressors of
compressed-tensors), not shared with the readers, so that the two check each other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from models.tiny import stored_tensors, tiny_checkpoint
from safetensors.torch import save_file

Dense = dict[str, np.ndarray]
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Codes:
    """A quantized matrix: weight[n, k] = scale[n, k // group] * (code[n, k] - zero[n, k // group])."""

    codes: np.ndarray  # int64 [outputs, inputs], 0 … 2^bits - 1
    scales: torch.Tensor  # [outputs, groups]
    zeros: np.ndarray  # int64 [outputs, groups]

    @property
    def values(self) -> np.ndarray:
        """The weights, exact in float64 and rounded once."""
        group = self.codes.shape[1] // self.zeros.shape[1]
        scales, zeros = (np.repeat(a, group, 1) for a in (self.scales.double().numpy(), self.zeros))
        return (scales * (self.codes - zeros)).astype(np.float32)


@dataclass(frozen=True)
class Kind:
    """A way to quantize, and what the folder says of it. ``group`` -1 is the whole row."""

    write: Callable[[str, Codes], Tensors]
    config: Mapping[str, Any]
    group: int
    symmetric: bool
    format: str
    bits: int = 4
    dtype: torch.dtype = torch.float16


def _signed(values: np.ndarray) -> torch.Tensor:
    """Words of 32 bits as the int32 tensor that files hold."""
    return torch.from_numpy(np.ascontiguousarray(values.astype("<u4")).view(np.int32))


def _words(codes: np.ndarray, places: tuple[int, ...], bits: int = 4) -> np.ndarray:
    """[…, 32 / bits] codes into one word each; code i goes to place ``places[i]``, counted from the lowest."""
    words = np.zeros(codes.shape[:-1], np.uint32)
    for i, place in enumerate(places):
        words |= codes[..., i].astype(np.uint32) << np.uint32(bits * place)
    return words


IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def awq(module: str, matrix: Codes) -> Tensors:
    outputs, inputs = matrix.codes.shape
    by_input, zeros = matrix.codes.T.reshape(inputs, -1, 8), matrix.zeros.T.reshape(-1, outputs // 8, 8)
    return {
        f"{module}.qweight": _signed(_words(by_input, AWQ_PLACES)),
        f"{module}.qzeros": _signed(_words(zeros, AWQ_PLACES)),
        f"{module}.scales": matrix.scales.T.contiguous(),
    }


def gptq(module: str, matrix: Codes, less: int = 1, index: bool = True, bits: int = 4) -> Tensors:
    outputs, inputs = matrix.codes.shape
    per_word = 32 // bits
    by_word = matrix.codes.T.reshape(inputs // per_word, per_word, outputs).swapaxes(1, 2)
    zeros = matrix.zeros.T.reshape(-1, outputs // per_word, per_word)
    ones = _words(np.full(per_word, less), IN_ORDER[:per_word], bits)  # whole words, so that 0 borrows
    order = {f"{module}.g_idx": torch.arange(inputs, dtype=torch.int32) // (inputs // matrix.zeros.shape[1])}
    return {
        f"{module}.qweight": _signed(_words(by_word, IN_ORDER[:per_word], bits)),
        f"{module}.qzeros": _signed(_words(zeros, IN_ORDER[:per_word], bits) - ones),
        f"{module}.scales": matrix.scales.T.contiguous(),
        **(order if index else {}),
    }


def gptq_v2(module: str, matrix: Codes) -> Tensors:
    return gptq(module, matrix, less=0, index=False)


def gptq8(module: str, matrix: Codes) -> Tensors:
    return gptq(module, matrix, bits=8)


def packed(module: str, matrix: Codes, bits: int = 4) -> Tensors:
    outputs, inputs = matrix.codes.shape
    per_word = 32 // bits
    by_word = matrix.codes.reshape(outputs, -1, per_word)
    return {
        f"{module}.weight_packed": _signed(_words(by_word, IN_ORDER[:per_word], bits)),
        f"{module}.weight_scale": matrix.scales,
        f"{module}.weight_shape": torch.tensor([outputs, inputs]),
    }


def packed8(module: str, matrix: Codes) -> Tensors:
    return packed(module, matrix, bits=8)


def packed_zeros(module: str, matrix: Codes) -> Tensors:
    """Zero points packed along the outputs, of which the last word may not be full."""
    outputs, groups = matrix.zeros.shape
    padded = np.zeros((-(-outputs // 8) * 8, groups), np.int64)
    padded[:outputs] = matrix.zeros
    words = _words(padded.reshape(-1, 8, groups).swapaxes(1, 2), IN_ORDER)
    return {**packed(module, matrix), f"{module}.weight_zero_point": _signed(words)}


def packed_plain_zeros(module: str, matrix: Codes) -> Tensors:
    """Zero points as older files have them: signed bytes."""
    zeros = torch.from_numpy((matrix.zeros - 8).astype(np.int8))
    return {**packed(module, matrix), f"{module}.weight_zero_point": zeros}


def int8(module: str, matrix: Codes) -> Tensors:
    return {
        f"{module}.weight": torch.from_numpy((matrix.codes - 128).astype(np.int8)),
        f"{module}.weight_scale": matrix.scales,
    }


def awq_config(group: int) -> dict[str, Any]:
    return {
        "quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
        "backend": "autoawq", "do_fuse": False, "exllama_config": None, "modules_to_not_convert": ["lm_head"],
    }  # fmt: skip


def gptq_config(group: int, *, sym: bool, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "gptq", "bits": 4, "group_size": group, "sym": sym, "desc_act": False, "damp_percent": 0.01,
        "true_sequential": True, "static_groups": False, "lm_head": False, **more,
    }  # fmt: skip


def compressed_config(
    format: str, bits: int, group: int, *, symmetric: bool, activations: bool = False
) -> dict[str, Any]:
    weights = {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": None if group == -1 else group,
        "strategy": "channel" if group == -1 else "group", "block_structure": None, "dynamic": False, "actorder": None,
        "observer": "minmax", "observer_kwargs": {},
    }  # fmt: skip
    per_token = {**weights, "num_bits": 8, "strategy": "token", "group_size": None, "dynamic": True, "symmetric": True}
    group_0 = {
        "targets": ["Linear"], "weights": weights, "input_activations": per_token if activations else None,
        "output_activations": None,
    }  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
        "config_groups": {"group_0": group_0}, "ignore": ["lm_head"], "kv_cache_scheme": None,
        "global_compression_ratio": 1.5, "sparsity_config": {}, "transform_config": {}, "version": "0.12.0",
    }  # fmt: skip


# Written by hand after the source of auto-round 0.16.1; whole folders that it wrote are in producers/.
AUTO_ROUND: Mapping[str, Any] = {
    "quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4, "data_type": "int",
    "group_size": 128, "sym": True, "autoround_version": "0.16.1", "block_name_to_quantize": "model.layers",
    "iters": 200, "extra_config": {"lm_head": {"bits": 16, "data_type": "float"}},
}  # fmt: skip
# Written by hand after the source of gptqmodel 7.7.0; whole folders that it wrote are in producers/.
GPTQMODEL: Mapping[str, Any] = {
    "bits": 4, "group_size": 128, "desc_act": False, "lm_head": False, "method": "gptq", "quant_method": "gptq",
    "format": "gptq", "checkpoint_format": "gptq", "pack_dtype": "int32", "sym": True,
    "meta": {"quantizer": ["gptqmodel:7.7.0"], "fallback": {"strategy": "rtn", "threshold": "0.5%", "smooth": None}},
}  # fmt: skip


def _compressed(write: Callable[[str, Codes], Tensors], group: int, symmetric: bool, format: str) -> Kind:
    config = compressed_config("pack-quantized", 4, group, symmetric=symmetric)
    return Kind(write, config, group, symmetric, format, dtype=torch.bfloat16)


KINDS: Mapping[str, Kind] = {
    "awq-32": Kind(awq, awq_config(32), 32, False, "uint4_g32"),
    "awq-64": Kind(awq, awq_config(64), 64, False, "uint4_g64"),
    "awq-128": Kind(awq, awq_config(128), 128, False, "uint4_g128"),
    "gptq-128": Kind(gptq, gptq_config(128, sym=True), 128, True, "int4_g128"),
    "gptq-32-zeros": Kind(gptq, gptq_config(32, sym=False, checkpoint_format="gptq"), 32, False, "uint4_g32"),
    "gptq-row": Kind(gptq, gptq_config(-1, sym=True), -1, True, "int4_g128"),
    "gptq_v2-64": Kind(gptq_v2, gptq_config(64, sym=False, checkpoint_format="gptq_v2"), 64, False, "uint4_g64"),
    "packed-32": _compressed(packed, 32, True, "int4_g32"),
    "packed-128": _compressed(packed, 128, True, "int4_g128"),
    "packed-row": _compressed(packed, -1, True, "int4_g128"),
    "packed-64-zeros": _compressed(packed_zeros, 64, False, "uint4_g64"),
    "packed-128-old-zeros": _compressed(packed_plain_zeros, 128, False, "uint4_g128"),
    "gptq8-64": Kind(gptq8, {**gptq_config(64, sym=True), "bits": 8}, 64, True, "q8_0", 8),
    "gptq8-row": Kind(gptq8, {**gptq_config(-1, sym=True), "bits": 8}, -1, True, "int8", 8),
    "packed8-64": Kind(
        packed8, compressed_config("pack-quantized", 8, 64, symmetric=True), 64, True, "q8_0", 8, torch.bfloat16,
    ),
    "auto-round": Kind(gptq, AUTO_ROUND, 128, True, "int4_g128"),
    "auto-round-zeros": Kind(
        gptq_v2, {**AUTO_ROUND, "sym": False, "group_size": 32, "packing_format": "auto_round:exllamav2"}, 32, False,
        "uint4_g32",
    ),
    "auto-round-awq": Kind(awq, {**AUTO_ROUND, "packing_format": "auto_round:auto_awq"}, 128, False, "uint4_g128"),
    "packed8": Kind(packed8, compressed_config("pack-quantized", 8, -1, symmetric=True), -1, True, "int8", 8),
    "int8": Kind(
        int8, compressed_config("int-quantized", 8, -1, symmetric=True, activations=True), -1, True, "int8", 8,
        torch.float32,
    ),
}  # fmt: skip

SIZES: Mapping[str, Any] = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
"""Of the tiny model: rows that groups of 128 divide."""


def quantise(weight: np.ndarray, kind: Kind) -> Codes:
    """Round to nearest, per group: what each project does once it has chosen scales."""
    outputs, inputs = weight.shape
    group = inputs if kind.group == -1 else kind.group
    grouped = weight.reshape(outputs, -1, group).astype(np.float64)
    top = 2**kind.bits - 1
    if kind.symmetric:
        scales, zeros = np.abs(grouped).max(2) / (top // 2), np.full(grouped.shape[:2], (top + 1) // 2)
    else:  # the range holds 0, and so zero points lie within the codes
        low, high = np.minimum(grouped.min(2), 0), np.maximum(grouped.max(2), 0)
        scales = (high - low) / top
        zeros = np.rint(-low / scales).astype(np.int64)
    stored = torch.from_numpy(scales).to(kind.dtype)
    codes = np.clip(np.rint(grouped / stored.double().numpy()[..., None]) + zeros[..., None], 0, top)
    return Codes(codes.astype(np.int64).reshape(outputs, inputs), stored, zeros)


def quantised_folder(
    kind: Kind,
    tmp_path: Path,
    *,
    family: str = "llama",
    others: Mapping[str, Kind | None] = MappingProxyType({}),
    **fields: Any,
) -> tuple[Path, Dense]:
    """A tiny folder with all linear layers but lm_head quantized, in bfloat16 otherwise; and every weight's meaning.

    ``others`` are the linear layers of another kind, or of none, by the last part of their names.
    """
    folder = tiny_checkpoint(family, tmp_path, **{**SIZES, **fields})
    dense, tensors = stored_tensors(folder), dict[str, torch.Tensor]()
    for name, weight in dense.items():
        own = others.get(name.split(".")[-2], kind) if "_proj.weight" in name else None
        if own is not None:
            matrix = quantise(weight, own)
            tensors |= own.write(name.removesuffix(".weight"), matrix)
            dense[name] = matrix.values
        else:
            tensors[name] = torch.from_numpy(weight).bfloat16()
            dense[name] = tensors[name].float().numpy()
    save_file(tensors, folder / "model.safetensors")
    set_quantization(folder, kind.config)
    return folder, dense


def set_quantization(folder: Path, config: Any) -> None:
    """Write config.json's quantization_config."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": config}))


def dense_folder(folder: Path, dense: Dense, to: Path) -> Path:
    """The plain float32 folder that means the same as a quantized one."""
    to.mkdir()
    save_file({name: torch.from_numpy(values) for name, values in dense.items()}, to / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    (to / "config.json").write_text(json.dumps(config))
    return to


def of(name: str, **changes: Any) -> Kind:
    """One of `KINDS` with some fields changed."""
    return replace(KINDS[name], **changes)
