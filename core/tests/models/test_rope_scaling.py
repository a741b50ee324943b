"""Scaled and partial ropes: transformers is the judge, in float32, below the original context and beyond it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from models.tiny import VOCAB, random_tokens, reference_logits, stored_tensors, tiny_checkpoint, tiny_gguf
from safetensors.numpy import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo.errors import CheckpointError
from octavo.graph.reference import run_sequence
from octavo.graph.rope import inverse_frequencies
from octavo.models.load import load_model
from octavo.models.registry import family_for
from octavo.quant import dequantise

LONG = [1.0, 1.1, 1.5, 2.0, 3.0, 4.5, 6.0, 8.0]
SHORT = [1.0, 1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.4]
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "long_factor": LONG,
    "short_factor": SHORT,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, dict[str, Any]] = {
    "yarn": YARN,
    "yarn-attention-factor": {**YARN, "attention_factor": 1.7},
    "yarn-mscale": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn-betas": {**YARN, "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False},
    "longrope": LONGROPE,
    "longrope-factor": {**LONGROPE, "factor": 12.0},
    "longrope-attention-factor": {**LONGROPE, "attention_factor": 1.4},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 8.0},
}


def octavo_logits(folder: Path, tokens: list[int], length: int | None = None) -> np.ndarray:
    model = load_model(folder, max_length=length)
    weights = {name: dequantise(model.checkpoint.tensor(name)) for name in model.graph.weights}
    return run_sequence(model.graph, weights, tokens)


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    assert np.ptp(wanted) > 1, "the model says too little for this test to mean anything"
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def older(folder: Path) -> None:
    """The config as transformers 4 wrote it: ``rope_scaling``, and the base beside it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scaling = config.pop("rope_parameters")
    theta, kind = scaling.pop("rope_theta"), scaling.pop("rope_type")
    path.write_text(json.dumps({**config, "rope_theta": theta, "rope_scaling": {**scaling, "type": kind}}))


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("case", CASES)
def test_logits_beyond_the_original_context_equal_transformers(case: str, spelling: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path, rope_parameters=CASES[case], num_hidden_layers=2)
    if spelling == "rope_scaling":
        older(folder)
    tokens = random_tokens(300)
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("case", ["yarn", "longrope"])
def test_every_family_scales(family: str, case: str, tmp_path: Path) -> None:
    parameters = {**CASES[case]}
    if family == "qwen3":  # heads of 32
        parameters |= {
            key: [*parameters[key], *parameters[key]] for key in ("long_factor", "short_factor") if key in parameters
        }
    folder = tiny_checkpoint(family, tmp_path, rope_parameters=parameters)
    tokens = random_tokens(150)
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))


def test_gemma_scales_its_global_layers_alone(tmp_path: Path) -> None:
    ropes = {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    folder = tiny_checkpoint("gemma3", tmp_path, rope_parameters=ropes)
    tokens = random_tokens(150)
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))


def test_longrope_takes_the_short_factors_where_no_longer_text_is_served(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path, rope_parameters=LONGROPE)
    tokens = random_tokens(64)
    wanted = reference_logits(folder, tokens)
    assert_same(octavo_logits(folder, tokens, length=64), wanted)
    assert np.abs(octavo_logits(folder, tokens, length=65) - wanted).max() > 0.1


def test_dynamic_scaling_is_that_of_the_longest_text_served(tmp_path: Path) -> None:
    fields = {"rope_parameters": CASES["dynamic"], "max_position_embeddings": 64}
    folder = tiny_checkpoint("llama", tmp_path, **fields)
    short, long = random_tokens(64), random_tokens(200)
    assert_same(octavo_logits(folder, short), reference_logits(folder, short))
    assert load_model(folder).config.max_position == 64
    assert load_model(folder, max_length=200).config.max_position == 200
    assert load_model(folder, max_length=10**6).config.max_position == 8 * 64, "no further than the factor reaches"
    assert_same(octavo_logits(folder, long, length=200), reference_logits(folder, long))


def test_yarn_reaches_as_far_as_its_factor(tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path, rope_parameters=YARN, max_position_embeddings=32)
    assert load_model(folder).config.max_position == 256
    tokens = random_tokens(250)
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))


@pytest.mark.parametrize("kind", ["llama3", "yarn", "longrope"])
def test_the_original_context_beside_the_rope_parameters_comes_first(kind: str, tmp_path: Path) -> None:
    llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0}  # fmt: skip
    parameters = {"llama3": llama3, "yarn": YARN, "longrope": LONGROPE}[kind]
    folder = tiny_checkpoint("llama", tmp_path, rope_parameters=parameters)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"].pop("original_max_position_embeddings", None)
    path.write_text(json.dumps({**config, "original_max_position_embeddings": 48}))
    tokens = random_tokens(150)
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))
    config["rope_parameters"]["original_max_position_embeddings"] = 200
    path.write_text(json.dumps({**config, "original_max_position_embeddings": 48}))
    assert_same(octavo_logits(folder, tokens), reference_logits(folder, tokens))


# Rope parameters as published models have them, with their numbers of heads.
PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen2.5-7b-yarn": {
        "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768,
        },
    },
    "qwen3-8b-yarn": {
        "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128, "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768,
        },
    },
    "llama-2-yarn-128k": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        },
    },
    "llama-3.1-8b": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        },
    },
    "longrope-128k": {
        "hidden_size": 3072, "num_attention_heads": 32, "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 4096,
            "short_factor": [1.0 + i / 100 for i in range(48)], "long_factor": [1.0 + i * 1.3 for i in range(48)],
        },
    },
    "dynamic": {
        "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("length", [1000, 4096, 8192, 16000])
@pytest.mark.parametrize("name", PUBLISHED)
def test_frequencies_of_published_models_equal_transformers(name: str, length: int) -> None:
    config = transformers.LlamaConfig(**{"num_hidden_layers": 1, **PUBLISHED[name]})
    wanted, factor = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]](config, "cpu", seq_len=length)
    ours = {**config.to_dict(), "architectures": ["LlamaForCausalLM"], "octavo_served_length": length}
    found = family_for(ours).parse(ours)
    np.testing.assert_allclose(inverse_frequencies(found.ropes[0]), wanted.double().numpy(), rtol=2e-6)
    assert found.attention_factors == pytest.approx([factor], rel=1e-6)


def phi3_as_llama(folder: Path, llama: Path, **fields: Any) -> None:
    """A tiny Phi 3, and the same model under Llama's names: Phi 3 is a Llama whose rope may be partial."""
    config = transformers.Phi3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2, **fields,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.Phi3ForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape) * (1 if weight.dim() == 1 else weight.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in stored_tensors(folder).items():
        if "qkv_proj" in name:
            for part, rows in zip("qkv", np.split(tensor, [64, 96]), strict=True):
                tensors[name.replace("qkv_proj", f"{part}_proj")] = np.ascontiguousarray(rows)
        elif "gate_up_proj" in name:
            for part, rows in zip(("gate", "up"), np.split(tensor, 2), strict=True):
                tensors[name.replace("gate_up_proj", f"{part}_proj")] = np.ascontiguousarray(rows)
        else:
            tensors[name] = tensor
    llama.mkdir()
    save_file(tensors, llama / "model.safetensors")
    stored = json.loads((folder / "config.json").read_text())
    (llama / "config.json").write_text(
        json.dumps({**stored, "architectures": ["LlamaForCausalLM"], "sliding_window": None})
    )


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_partial_rotary_equals_transformers(part: float, scaled: bool, tmp_path: Path) -> None:
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": part}
    if scaled:
        factors = {"long_factor": LONG[: int(8 * part)], "short_factor": SHORT[: int(8 * part)]}
        parameters |= {"rope_type": "longrope", "attention_factor": 1.0, **factors}
    phi3, llama = tmp_path / "phi3", tmp_path / "llama"
    phi3_as_llama(phi3, llama, rope_parameters=parameters, original_max_position_embeddings=64)
    tokens = random_tokens(120)
    assert_same(octavo_logits(llama, tokens), reference_logits(phi3, tokens))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "case", [YARN, {**LONGROPE, "attention_factor": 1.4}, CASES["linear"]], ids=lambda case: str(case["rope_type"])
)
def test_a_gguf_scales_as_its_folder_does(case: dict[str, Any], family: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path, rope_parameters=case)
    file = tiny_gguf(folder, tmp_path / "m.gguf")
    for count, length in ((150, None), (60, 64)):
        tokens = random_tokens(count)
        assert_same(octavo_logits(file, tokens, length), reference_logits(folder, tokens))


def test_a_gguf_whose_heads_turn_in_part_is_its_folder(tmp_path: Path) -> None:
    parameters = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    phi3, llama = tmp_path / "phi3", tmp_path / "llama"
    phi3_as_llama(phi3, llama, rope_parameters=parameters, original_max_position_embeddings=64)
    file = tiny_gguf(llama, tmp_path / "m.gguf")
    tokens = random_tokens(120)
    assert_same(octavo_logits(file, tokens), reference_logits(phi3, tokens))


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "yarn", "factor": 0}, "factor is 0; it must be above 0"),
        ({"rope_type": "yarn", "factor": float("nan")}, "factor is nan; it must be a finite number"),
        ({"rope_type": "dynamic"}, "rope type dynamic lacks factor"),
        ({"rope_type": "mrope"}, "rope type 'mrope' is not supported; known: default, linear, dynamic, yarn"),
        ({"rope_type": ["yarn"]}, r"rope type \['yarn'\] is not supported"),
        ({"rope_type": "longrope", "short_factor": LONG}, "lacks a list of long_factor"),
        (
            {"rope_type": "longrope", "short_factor": LONG, "long_factor": LONG[:3]},
            "long_factor of the rope has 3 entries for 8 rotated pairs",
        ),
        ({"partial_rotary_factor": 0.35}, r"partial_rotary_factor is 0.35, which rotates 5 of 16"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"),
        ({**YARN, "partial_rotary_factor": 0.5}, "attention factor 1.2.* is not supported where only 8 of 16"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0; it must be above 0"),
        ({"rope_type": "linear", "factor": 1e308, "rope_theta": 1e30}, "frequencies that are no numbers above 0"),
    ],
)
def test_what_no_rope_can_be_made_of_is_named(rope: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("llama", tmp_path)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rope_parameters": rope}))
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)
