"""Every family computes what transformers computes, from safetensors and from GGUF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.tiny import FAMILIES, random_tokens, reference_logits, stored_tensors, tiny_checkpoint, tiny_gguf
from safetensors.numpy import save_file

from octavo.graph import graph_hash
from octavo.graph.reference import run_sequence
from octavo.models.load import load_model
from octavo.quant import dequantise


def octavo_logits(path: Path, tokens: list[int]) -> np.ndarray:
    model = load_model(path)
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    return run_sequence(model.graph, weights, tokens)


def assert_same_logits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.ptp(wanted) > 1, "the model says too little for this test to mean anything"
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# (family, config overrides): the plain model of each family, then each switch that changes the numbers.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((family, {}) for family in FAMILIES),
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"head_dim": 32, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
    ("mistral", {"sliding_window": None}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
    ("qwen3", {"attention_bias": True}),
    ("gemma3", {"attn_logit_softcapping": 0.5}),
    ("gemma3", {"query_pre_attn_scalar": 24, "final_logit_softcapping": None, "attention_bias": True}),
]


@pytest.mark.parametrize(
    ("family", "fields"), VARIANTS, ids=[f"{family}-{'-'.join(fields) or 'plain'}" for family, fields in VARIANTS]
)
def test_logits_from_safetensors_equal_transformers(family: str, fields: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path, **fields)
    tokens = random_tokens(150)  # far beyond the windows and llama3's original context
    assert_same_logits(octavo_logits(folder, tokens), reference_logits(folder, tokens))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_from_gguf_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path, seed=1)
    tokens = random_tokens(150, seed=1)
    assert_same_logits(octavo_logits(tiny_gguf(folder, tmp_path / "m.gguf"), tokens), reference_logits(folder, tokens))


def test_biases_of_llama_survive_gguf(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path, attention_bias=True, mlp_bias=True)
    tokens = random_tokens(40)
    assert_same_logits(octavo_logits(tiny_gguf(folder, tmp_path / "m.gguf"), tokens), reference_logits(folder, tokens))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama3"])
def test_the_graph_does_not_depend_on_the_files_format(family: str, tmp_path: Path) -> None:
    # rms_norm_eps is a power of two so that the float32 of a GGUF and the text of a config agree.
    folder = tiny_checkpoint(family, tmp_path, rms_norm_eps=2.0**-20)
    converted = tiny_gguf(folder, tmp_path / "m.gguf")
    assert graph_hash(load_model(folder).graph) == graph_hash(load_model(converted).graph)


def test_each_weight_keeps_its_format_in_the_graph(tmp_path: Path) -> None:
    path = tiny_gguf(tiny_checkpoint("llama", tmp_path), tmp_path / "m.gguf", quantization="Q5_1")
    formats = {name: spec.format for name, spec in load_model(path).graph.weights.items()}
    assert formats["model.layers.0.self_attn.q_proj.weight"] == "q5_1"
    assert formats["model.norm.weight"] == "f32"


@pytest.mark.parametrize(
    ("body", "head"), [("language_model.model.", "language_model."), ("model.language_model.", "")], ids=["v4", "v5"]
)
def test_a_multimodal_gemma_runs_as_text(body: str, head: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("gemma3", tmp_path)
    tokens = random_tokens(30)
    wanted = reference_logits(folder, tokens)

    tensors = {body + name.removeprefix("model."): tensor for name, tensor in stored_tensors(folder).items()}
    tensors["vision_tower.vision_model.post_layernorm.weight"] = np.ones(8, np.float32)
    if head:
        tensors[head + "lm_head.weight"] = stored_tensors(folder)["model.embed_tokens.weight"]
    multimodal = tmp_path / "multimodal"
    multimodal.mkdir()
    save_file(tensors, multimodal / "model.safetensors")
    config = (folder / "config.json").read_text()
    (multimodal / "config.json").write_text(
        f'{{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {config}}}'
    )

    assert_same_logits(octavo_logits(multimodal, tokens), wanted)


@pytest.mark.parametrize("family", ["llama3", "qwen2", "gemma3"])
def test_a_tied_model_with_an_output_matrix_of_its_own_uses_it(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tiny_checkpoint(family, tmp_path, tie_word_embeddings=True)
    tensors = stored_tensors(folder)
    head = np.random.default_rng(0).standard_normal((300, 64), np.float32)
    save_file({**tensors, "lm_head.weight": head}, folder / "model.safetensors", metadata={"format": "pt"})
    tokens = random_tokens(40)
    wanted = reference_logits(folder, tokens)
    assert_same_logits(octavo_logits(folder, tokens), wanted)
    assert "the checkpoint has a lm_head.weight of its own" in caplog.text
    caplog.clear()

    copy = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].copy()}
    save_file(copy, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lm_head.weight" not in load_model(folder).graph.weights, "a copy is not stored twice"
    assert caplog.records == []
    assert np.abs(octavo_logits(folder, tokens) - wanted).max() > 1


def test_a_mistral_with_layer_types_is_a_ministral(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    folder = tiny_checkpoint("mistral", tmp_path)
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), "layer_types": kinds}
    path.write_text(json.dumps({**config, "model_type": "ministral", "architectures": ["MinistralForCausalLM"]}))
    tokens = random_tokens(100)
    wanted = reference_logits(folder, tokens)
    assert_same_logits(octavo_logits(folder, tokens), wanted)
    path.write_text(json.dumps(config))
    assert_same_logits(octavo_logits(folder, tokens), wanted)


def test_windows_and_ropes_reach_the_graph(tmp_path: Path) -> None:
    graph = load_model(tiny_checkpoint("gemma3", tmp_path)).graph
    assert [layer.window for layer in graph.kv] == [8, 8, None, 8]
    thetas = [node.attrs["theta"] for node in graph.nodes if node.op == "rope"]
    assert thetas == [10000.0, 10000.0, 1000000.0, 10000.0]


def test_only_the_rows_to_sample_meet_the_output_matrix(tmp_path: Path) -> None:
    graph = load_model(tiny_checkpoint("llama", tmp_path)).graph
    assert graph.types[graph.outputs["logits"]].shape == ("S", 300)
