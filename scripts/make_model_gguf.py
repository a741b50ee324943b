"""The GGUF file of make_model.py: Q4_0, the embedding table Q8_0, with the tokenizer of another file."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from make_model_shapes import Shape, Tensor, draw

_VECTOR, _LINEAR, _TABLE = (gguf.GGMLQuantizationType[name] for name in ("F32", "Q4_0", "Q8_0"))


def write_gguf(shape: Shape, seed: int, tokenizer: Path, path: Path) -> None:
    """Llama as llama.cpp's converter writes it: rows of q and k interleaved for its rope."""
    if not tokenizer.is_file():
        raise SystemExit(f"{tokenizer} is no file: for gguf-q4_0, --tokenizer must name a GGUF file")
    writer = gguf.GGUFWriter(path, "llama")
    _write_metadata(writer, shape)
    _borrow_tokenizer(writer, gguf.GGUFReader(tokenizer), shape.vocab)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, shape.layers)
    tensors = shape.tensors()
    divisors = _rope_divisors(shape)
    if divisors is not None:
        writer.add_tensor_info("rope_freqs.weight", divisors.shape, divisors.dtype, divisors.nbytes)
    for tensor in tensors:
        kind = _kind(tensor)
        stored = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
        name = names.get_name(tensor.name, try_suffixes=(".weight",))
        if kind == _VECTOR:
            writer.add_tensor_info(name, tensor.shape, np.dtype(np.float32), int(np.prod(stored)))
        else:
            writer.add_tensor_info(name, stored, np.dtype(np.uint8), int(np.prod(stored)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if divisors is not None:
        writer.write_tensor_data(divisors)
    for tensor in tensors:
        slices = [gguf.quants.quantize(_arranged(rows, tensor, shape), _kind(tensor)) for rows in draw(tensor, seed)]
        writer.write_tensor_data(np.concatenate(slices))
    writer.close()


def _kind(tensor: Tensor) -> gguf.GGMLQuantizationType:
    return _LINEAR if tensor.linear else _VECTOR if len(tensor.shape) == 1 else _TABLE


def _arranged(rows: np.ndarray, tensor: Tensor, shape: Shape) -> np.ndarray:
    """Rows of q and k of each head from halves to neighbouring pairs."""
    if ".q_proj." not in tensor.name and ".k_proj." not in tensor.name:
        return rows
    assert rows.shape == tensor.shape, "a slice may end within a head"
    halves = rows.reshape(-1, 2, shape.head_dim // 2, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def _write_metadata(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name("made up")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(shape.vocab)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape.theta)


def _borrow_tokenizer(writer: gguf.GGUFWriter, source: gguf.GGUFReader, vocab: int) -> None:
    """Copy what tells about the tokenizer; ids that it does not have become unused tokens."""
    for field in source.fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        value = field.contents()
        if field.name == gguf.Keys.Tokenizer.LIST:
            if len(value) > vocab:
                value = value[:vocab]
            value = [*value, *(f"[unused{i}]" for i in range(len(value), vocab))]
        elif field.name == gguf.Keys.Tokenizer.TOKEN_TYPE:
            value = [*value[:vocab], *[int(gguf.TokenType.UNUSED)] * (vocab - len(value))]
        elif field.name == gguf.Keys.Tokenizer.SCORES:
            value = [*value[:vocab], *[0.0] * (vocab - len(value))]
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type)


def _rope_divisors(shape: Shape) -> np.ndarray | None:
    """llama3's scaling as the converter stores it: what each frequency is divided by."""
    scaling = shape.rope_scaling
    if scaling is None:
        return None
    wavelengths = 2 * np.pi * shape.theta ** (np.arange(0, shape.head_dim, 2) / shape.head_dim)
    context, low, high = (
        scaling[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    smooth = np.clip((context / wavelengths - low) / (high - low), 0, 1)
    divisors: np.ndarray = 1 / ((1 - smooth) / scaling["factor"] + smooth)
    return divisors.astype(np.float32)
