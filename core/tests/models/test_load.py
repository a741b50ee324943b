"""load_model: a model is its config, its graph and a checkpoint that is known to fit; or a clear error."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.tiny import stored_tensors, tiny_checkpoint, tiny_gguf
from safetensors.numpy import save_file

from octavo.errors import CheckpointError, UnknownArchitecture
from octavo.models.load import load_model
from octavo.quant import dequantise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_checkpoint("llama", tmp_path)


def rewrite(folder: Path, **tensors: np.ndarray | None) -> None:
    """Replace, add or (None) remove weights; ``__`` stands for a dot."""
    stored = stored_tensors(folder)
    for name, tensor in tensors.items():
        if tensor is None:
            del stored[name.replace("__", ".")]
        else:
            stored[name.replace("__", ".")] = tensor
    save_file(stored, folder / "model.safetensors")


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_model_has_every_weight_its_graph_names(folder: Path) -> None:
    model = load_model(folder)
    assert set(model.graph.weights) == set(model.checkpoint.names())
    assert model.config.layers == 3
    assert model.graph.dtype == "f32"


def test_activations_have_the_dtype_asked_for(folder: Path) -> None:
    graph = load_model(folder, "bf16").graph
    assert graph.dtype == "bf16"
    assert graph.weights["model.norm.weight"].format == "f32"


def test_missing_weights_are_named_together(folder: Path) -> None:
    rewrite(folder, model__norm__weight=None, model__layers__1__mlp__up_proj__weight=None)
    with pytest.raises(
        CheckpointError, match=r"lacks 2 weights: model\.layers\.1\.mlp\.up_proj\.weight, model\.norm\.weight"
    ):
        load_model(folder)


def test_many_missing_weights_are_counted(folder: Path) -> None:
    change_config(folder, num_hidden_layers=5)
    with pytest.raises(CheckpointError, match=r"lacks 18 weights: model\.layers\.3\..* and 13 more"):
        load_model(folder)


def test_an_output_matrix_that_config_says_is_there_must_be_there(folder: Path) -> None:
    rewrite(folder, lm_head__weight=None)
    with pytest.raises(CheckpointError, match=r"lacks weight lm_head\.weight"):
        load_model(folder)
    change_config(folder, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_model(folder).graph.weights


def test_a_weight_of_the_wrong_shape_says_both_shapes(folder: Path) -> None:
    rewrite(folder, model__layers__0__self_attn__k_proj__weight=np.zeros((64, 64), np.float32))
    with pytest.raises(
        CheckpointError,
        match=r"shape of weight model\.layers\.0\.self_attn\.k_proj\.weight \[64, 64\] \(expected \[32, 64\]\)",
    ):
        load_model(folder)


def test_weights_that_are_not_needed_are_told_at_debug_level_only(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(folder, model__layers__0__self_attn__rotary_emb__inv_freq=np.zeros(8, np.float32))
    with caplog.at_level(logging.DEBUG, logger="octavo.models.load"):
        load_model(folder)
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert "model.layers.0.self_attn.rotary_emb.inv_freq" in record.getMessage()


def test_layers_beyond_those_of_the_config_are_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    change_config(folder, num_hidden_layers=2)
    load_model(folder)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "not used are 9 weights: model.layers.2." in record.getMessage()
    assert record.getMessage().endswith("; it has layers up to 2, and num_hidden_layers is 2")


def test_a_weight_that_the_graph_has_no_use_for_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rewrite(folder, model__layers__0__self_attn__q_proj__bias=np.ones(64, np.float32), score__weight=np.ones((2, 64)))
    load_model(folder)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "not used are 2 weights: model.layers.0.self_attn.q_proj.bias, score.weight" in record.getMessage()


def test_errors_of_a_config_name_the_checkpoint(folder: Path) -> None:
    change_config(folder, hidden_act="mish")
    with pytest.raises(CheckpointError, match=rf"^{folder}: config\.json: activation 'mish'"):
        load_model(folder)


def test_an_unknown_architecture_stays_one(folder: Path) -> None:
    change_config(folder, architectures=["FalconForCausalLM"])
    with pytest.raises(UnknownArchitecture, match=rf"^{folder}: .*FalconForCausalLM"):
        load_model(folder)


@pytest.mark.parametrize(("options", "count"), [({}, 3), ({"small_first_shard": True}, 4)])
def test_a_model_in_parts_is_the_model_in_one_file(
    options: dict[str, bool], count: int, folder: Path, tmp_path: Path
) -> None:
    """Parts that the gguf package wrote, all metadata in the first, which may have no tensors."""
    whole = load_model(tiny_gguf(folder, tmp_path / "whole.gguf", quantization="Q8_0"))
    tiny_gguf(folder, tmp_path / "m.gguf", quantization="Q8_0", split_max_tensors=12, **options)
    names = [f"m-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]
    assert sorted(path.name for path in tmp_path.glob("m-*.gguf")) == names
    split = load_model(tmp_path / names[0])
    assert split.config == whole.config
    assert split.graph == whole.graph
    assert list(split.files) == [tmp_path / name for name in names]
    for name in whole.graph.weights:
        found, expected = (dequantise(model.checkpoint.tensor(name)) for model in (split, whole))
        np.testing.assert_array_equal(found, expected)
