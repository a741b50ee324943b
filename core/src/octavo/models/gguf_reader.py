"""Checkpoints as GGUF files, under Hugging Face names and conventions.

Three things differ from the safetensors of the same model, and are undone here, so that one graph
serves both:

* names: ``blk.3.attn_q.weight`` is ``model.layers.3.self_attn.q_proj.weight``;
* Llama's converter interleaves the rows of q and k within a head (for a rope over neighbouring pairs); the rows
  go back to halves. Quantized blocks run along a row, so whole rows of bytes move and no code changes;
* Gemma's converter adds one to the norm weights; it is subtracted (in float32, as `transformers` does).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import CheckpointError
from octavo.models.gguf_config import generation_config, hugging_face_config
from octavo.models.gguf_file import GGUFFile
from octavo.quant import F32, WeightFormat, WeightTensor, dequantise

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA3_LAYER = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_TOP_NAME = re.compile(r"(\w+)\.(weight|bias)")
# Read into the config rather than used as a weight.
_CONSUMED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class GGUFCheckpoint:
    """A model in one GGUF file (see `Checkpoint`)."""

    def __init__(self, path: Path) -> None:
        """Open ``path``; CheckpointError if it is foreign, damaged, or holds what Octavo cannot read."""
        self.path = path
        self.file = GGUFFile(path)
        self.config: Mapping[str, Any] = hugging_face_config(self.file)
        self.generation_config: Mapping[str, Any] = generation_config(self.file)
        architecture = self.file.metadata["general.architecture"]
        layer_names = _GEMMA3_LAYER if architecture == "gemma3" else _LAYER
        self._stored: dict[str, str] = {
            _hugging_face_name(name, layer_names): name for name in self.file.tensors if name not in _CONSUMED
        }
        self._interleaved = architecture == "llama"
        self._turned: float = (
            self.config["rope_parameters"].get("partial_rotary_factor", 1.0) if self._interleaved else 1.0
        )
        self._shifted_norms = architecture == "gemma3"

    def names(self) -> Sequence[str]:
        """Every weight by its Hugging Face name; a tensor with none keeps its GGUF name."""
        return tuple(self._stored)

    def info(self, name: str) -> tuple[WeightFormat, tuple[int, ...]]:
        """Format and shape of a weight, without reading it; KeyError if there is no such weight."""
        entry = self.file.tensors[self._stored[name]]
        return (F32 if self._is_shifted(name) else entry.format), entry.shape

    def tensor(self, name: str) -> WeightTensor:
        """The weight, as a view of the file unless its rows or values must change; KeyError if there is none."""
        tensor = self.file.tensor(self._stored[name])
        if self._is_shifted(name):
            return _minus_one(tensor)
        if self._interleaved and (heads := self._interleaved_heads(name)):
            return WeightTensor(tensor.format, tensor.shape, _halves(tensor.data, tensor.shape[0], heads, self._turned))
        return tensor

    def _is_shifted(self, name: str) -> bool:
        return self._shifted_norms and name.endswith("norm.weight")

    def _interleaved_heads(self, name: str) -> int:
        """Heads whose rows lie interleaved in this weight; 0 where they do not."""
        if ".q_proj." in name:
            return int(self.config["num_attention_heads"])
        if ".k_proj." in name:
            return int(self.config["num_key_value_heads"])
        return 0


def _hugging_face_name(stored: str, layer_names: Mapping[str, str]) -> str:
    if match := _LAYER_NAME.fullmatch(stored):
        layer, part, kind = match.groups()
        if part in layer_names:
            return f"model.layers.{layer}.{layer_names[part]}.{kind}"
    elif (match := _TOP_NAME.fullmatch(stored)) and match[1] in _TOP:
        return f"{_TOP[match[1]]}.{match[2]}"
    return stored


def _halves(data: npt.NDArray[np.uint8], rows: int, heads: int, part: float = 1.0) -> npt.NDArray[np.uint8]:
    """Rows of each head from (0, half, 1, half+1, …) to (0, 1, …, half-1, half, …); the result is a copy. Pairs lie
    in the first ``part`` of a head, which is what is rotated.
    """
    if rows % (2 * heads):
        raise CheckpointError(f"a q or k projection of {rows} rows cannot be split into {heads} heads of even width")
    result = data.reshape(heads, rows // heads, data.size // rows).copy()
    turned = round(rows // heads * part)
    pairs = result[:, :turned].reshape(heads, turned // 2, 2, data.size // rows)
    result[:, :turned] = pairs.swapaxes(1, 2).reshape(heads, turned, data.size // rows)
    return result.reshape(data.shape)


def _minus_one(tensor: WeightTensor) -> WeightTensor:
    values = dequantise(tensor)
    values -= np.float32(1.0)
    data = values.astype("<f4", copy=False).view(np.uint8).reshape(*tensor.shape[:-1], 4 * tensor.shape[-1])
    return WeightTensor(F32, tensor.shape, data)
