"""GGUF files under Hugging Face's names and conventions, and their metadata as a config.json."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from models.tiny import FAMILIES, stored_tensors, tiny_checkpoint, tiny_gguf

from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.models.gguf_reader import GGUFCheckpoint
from octavo.models.registry import family_for
from octavo.quant import dequantise


@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_equal_those_of_the_safetensors_folder(family: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path)
    checkpoint = GGUFCheckpoint(tiny_gguf(folder, tmp_path / "m.gguf"))
    wanted = stored_tensors(folder)
    assert set(checkpoint.names()) == set(wanted)
    for name, tensor in wanted.items():
        form, shape = checkpoint.info(name)
        assert (form.name, shape) == ("f32", tensor.shape)
        # Gemma's norms went through "plus one": one rounding.
        np.testing.assert_allclose(dequantise(checkpoint.tensor(name)), tensor, rtol=0, atol=1.2e-7)


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_rows_move_back_whatever_their_format(quantization: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path)
    checkpoint = GGUFCheckpoint(tiny_gguf(folder, tmp_path / "m.gguf", quantization=quantization))
    kind = gguf.GGMLQuantizationType[quantization]
    for name, tensor in stored_tensors(folder).items():
        if tensor.ndim == 2:
            assert checkpoint.info(name)[0].name == quantization.lower()
            wanted = gguf.quants.dequantize(gguf.quants.quantize(tensor, kind), kind)
            np.testing.assert_array_equal(dequantise(checkpoint.tensor(name)), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_metadata_gives_the_same_model_as_config_json(family: str, tmp_path: Path) -> None:
    from octavo.models.safetensors_reader import SafetensorsCheckpoint

    folder = tiny_checkpoint(family, tmp_path, rms_norm_eps=2.0**-20)
    converted, original = GGUFCheckpoint(tiny_gguf(folder, tmp_path / "m.gguf")), SafetensorsCheckpoint(folder)
    found, wanted = (family_for(c.config).parse(c.config) for c in (converted, original))
    if family == "llama3":  # its unusual numbers come back as the table they amount to; see test_gguf_rope
        assert [len(rope.scaling.factors) for rope in found.ropes] == [8, 8, 8]  # type: ignore[union-attr]
        found, wanted = (_without_ropes(config) for config in (found, wanted))
    assert found == wanted


def _without_ropes(config: Any) -> Any:
    return {**vars(config), "ropes": None}


def test_every_id_that_ends_a_turn_is_in_generation_config(tmp_path: Path) -> None:
    checkpoint = GGUFCheckpoint(tiny_gguf(tiny_checkpoint("llama", tmp_path), tmp_path / "m.gguf"))
    assert checkpoint.generation_config == {"bos_token_id": 1, "eos_token_id": [2, 3]}


def test_only_changed_tensors_are_copies(tmp_path: Path) -> None:
    llama = GGUFCheckpoint(tiny_gguf(tiny_checkpoint("llama", tmp_path), tmp_path / "l.gguf"))
    gemma = GGUFCheckpoint(tiny_gguf(tiny_checkpoint("gemma3", tmp_path), tmp_path / "g.gguf"))

    def copied(checkpoint: GGUFCheckpoint) -> set[str]:
        return {name for name in checkpoint.names() if checkpoint.tensor(name).data.flags.writeable}

    assert copied(llama) == {name for name in llama.names() if ".q_proj." in name or ".k_proj." in name}
    assert copied(gemma) == {name for name in gemma.names() if "norm" in name}


@pytest.mark.real_model
def test_reading_every_tensor_takes_no_more_memory_than_the_copies(smollm2_gguf: Path) -> None:
    checkpoint = GGUFCheckpoint(smollm2_gguf)
    tracemalloc.start()
    try:
        for name in checkpoint.names():
            checkpoint.tensor(name)
        one_by_one = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        held = [checkpoint.tensor(name) for name in checkpoint.names()]
        together = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    q_proj = checkpoint.tensor("model.layers.0.self_attn.q_proj.weight").nbytes
    copies = sum(t.nbytes for n, t in zip(checkpoint.names(), held, strict=True) if ".q_proj." in n or ".k_proj." in n)
    assert one_by_one < 2 * q_proj + 500_000  # the one being copied, the one before it, and Python objects
    assert together < copies + q_proj + 500_000


def write(path: Path, architecture: str, change: Callable[[gguf.GGUFWriter], None], **fields: int) -> Path:
    """A GGUF of one tensor: enough metadata for a config, then whatever ``change`` adds."""
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "embedding_length": 64,
        "feed_forward_length": 96,
        "block_count": 12,
        "context_length": 512,
        "attention.head_count": 4,
    }
    for field, value in {**sizes, **fields}.items():
        writer.add_uint32(f"{architecture}.{field}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((300, 64), np.float32))
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def config_of(path: Path) -> Any:
    config = GGUFCheckpoint(path).config
    return family_for(config).parse(config)


def nothing(writer: gguf.GGUFWriter) -> None:
    pass


def test_defaults_of_absent_keys(tmp_path: Path) -> None:
    config = config_of(write(tmp_path / "m.gguf", "llama", nothing))
    assert (config.kv_heads, config.head_dim, config.vocab_size) == (4, 16, 300)
    assert config.tied_embeddings
    assert config.ropes[0].theta == 10000.0


def test_gemma_without_a_pattern_has_a_global_layer_every_sixth(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_sliding_window(32)

    config = config_of(write(tmp_path / "m.gguf", "gemma3", change))
    assert config.windows == (32, 32, 32, 32, 32, None) * 2
    assert [rope.theta for rope in config.ropes] == [10000.0] * 5 + [1000000.0] + [10000.0] * 5 + [1000000.0]


def test_only_the_27b_gemma_scales_queries_by_width_per_head(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_key_length(32)
        writer.add_value_length(32)
        writer.add_sliding_window(32)

    small = config_of(write(tmp_path / "s.gguf", "gemma3", change))
    large = config_of(write(tmp_path / "l.gguf", "gemma3", change, block_count=62))
    assert (small.attention_scale, large.attention_scale) == (32**-0.5, 16**-0.5)


def test_a_list_of_equal_values_counts_as_one(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_head_count_kv([2] * 12)

    assert config_of(write(tmp_path / "m.gguf", "llama", change)).kv_heads == 2


def test_layers_of_different_widths_are_refused(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_head_count_kv([2] * 11 + [4])

    with pytest.raises(CheckpointError, match=r"llama\.attention\.head_count_kv differs from layer to layer"):
        GGUFCheckpoint(write(tmp_path / "m.gguf", "llama", change))


def test_an_unknown_architecture_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match=r"'falcon'.*llama, qwen2, qwen3, gemma3"):
        GGUFCheckpoint(write(tmp_path / "m.gguf", "falcon", nothing))


def test_a_mixture_of_experts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitecture, match="mixture of experts"):
        GGUFCheckpoint(write(tmp_path / "m.gguf", "llama", nothing, expert_count=8))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("token_embd.weight", np.zeros((300, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match=r"m\.gguf lacks the metadata key llama\.attention\.head_count"):
        GGUFCheckpoint(tmp_path / "m.gguf")


def test_a_file_with_no_embedding_holds_no_language_model(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="holds no language model"):
        GGUFCheckpoint(tmp_path / "m.gguf")


def test_a_head_cannot_turn_more_than_it_has(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"rope\.dimension_count is 18, but heads have 16"):
        GGUFCheckpoint(write(tmp_path / "m.gguf", "llama", nothing, **{"rope.dimension_count": 18}))


def test_sampling_defaults_of_the_file_are_kept(tmp_path: Path) -> None:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.add_float32("general.sampling.temp", 0.5)
        writer.add_int32("general.sampling.top_k", 20)

    checkpoint = GGUFCheckpoint(write(tmp_path / "m.gguf", "llama", change))
    assert checkpoint.generation_config == {"temperature": 0.5, "top_k": 20}
